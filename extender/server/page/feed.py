"""What is sent to the page: first everything, then every change.

Why it exists: a page over 10,000 nodes can neither ask for all of them again, nor wait for all of them before it shows
the first. It must not know HTTP. Invariants: work is done in slices of a few milliseconds; every reader sees the newest
state of each node, however slow it is, and only its position is kept for it; without readers no work is done.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import orjson

from accounting.answers import Reports, raw_reports_in_steps
from accounting.pod import Pod
from accounting.state import Int64Array, Snapshot
from extender.cluster import Cluster
from extender.reports import asks, first_waiting, request_text, summary_in_steps
from extender.server.api import quota_rows
from extender.server.page.rows import node_line
from extender.server.turns import Turns
from extender.verbs import Decisions

#: Pause between two looks at the state.
_PAUSE_SECONDS = 0.5
#: Number of nodes that are made first: more than a screen shows.
_FIRST_NODES = 60
_NODES_PER_MESSAGE = 200
#: Waiting pods that are listed; the summary has their number.
_WAITING = 1_000


class Message(NamedTuple):
    """One event: its kind, its JSON, and the reader's position after it."""

    kind: str
    body: bytes
    mark: str


class Feed:
    """The state as lines for the page, each with the number of its last change."""

    def __init__(
        self, cluster: Cluster, decisions: Decisions, turns: Turns, pause_seconds: float = _PAUSE_SECONDS
    ) -> None:
        self._cluster = cluster
        self._decisions = decisions
        self._turns = turns
        self._pause_seconds = pause_seconds
        self._run = uuid4().hex[:8]
        self._number = 0
        self._nodes: OrderedDict[str, tuple[int, bytes | None]] = OrderedDict()  # in order of last change; None: gone
        self._others: dict[str, tuple[int, bytes]] = {}  # kind -> number, body
        self._raw: Reports = {}
        self._raw_version = -1
        self._rows: Int64Array = np.zeros(0, np.int64)  # stamps by row, as of when the row's line was made
        self._named: Mapping[str, int] = {}  # the last snapshot's rows by name
        self._names: dict[int, str] = {}  # the same by row
        self._gone: dict[str, int] = {}  # deleted nodes in `_nodes`, and the number of their deletion
        self._readers: dict[int, int] = {}  # reader -> its position
        self._forgotten = 0  # the last change of a deleted node that all readers have seen
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._stopped = False

    def stop(self) -> None:
        """End every stream, so that the server need not wait for its readers."""
        self._stopped = True
        self._tell()

    async def messages(self, mark: str = "") -> AsyncGenerator[Message]:
        """Yield the changes since a mark, until `stop`; everything first without one, or with one of another run."""
        run, _, number = mark.partition("-")
        known = run == self._run and number.isascii() and number.isdigit() and int(number) >= self._forgotten
        seen = int(number) if known else 0
        with self._reading() as reader:
            if not known:
                yield Message("reset", b"{}", self._mark(0))
            while not self._stopped:
                changed, reached = self._changed, self._number
                for message in self._since(seen, reached):
                    yield message
                self._readers[reader] = seen = reached
                await changed.wait()

    def _since(self, seen: int, reached: int) -> Iterator[Message]:
        for kind, (number, body) in list(self._others.items()):
            if seen < number:
                yield Message(kind, body, self._mark(seen))
        lines, gone = [], []
        for name, (number, line) in reversed(self._nodes.items()):
            if number <= seen:
                break
            if line is None:
                gone.append(name)
            else:
                lines.append(line)
        lines.reverse()
        for first in range(0, len(lines), _NODES_PER_MESSAGE):
            yield Message("nodes", b"[%b]" % b",".join(lines[first : first + _NODES_PER_MESSAGE]), self._mark(seen))
        if gone:
            yield Message("gone", orjson.dumps(gone), self._mark(seen))
        yield Message("reached", b"%d" % len(self._nodes), self._mark(reached))

    def _mark(self, number: int) -> str:
        return f"{self._run}-{number}"

    @contextmanager
    def _reading(self) -> Iterator[int]:
        reader = max(self._readers, default=0) + 1
        self._readers[reader] = 0
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield reader
        finally:
            del self._readers[reader]
            if not self._readers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _look(self) -> None:
        """Look at the state at intervals, while there are readers."""
        version: object = None
        while True:
            if version != self._version():
                version = self._version()
                await self._refresh()
            await asyncio.sleep(self._pause_seconds)

    def _version(self) -> object:
        return self._cluster.list_version, self._decisions.changes

    async def _refresh(self) -> None:
        self._drop_gone()
        async for _ in self._turns.taken(self._steps()):
            self._tell()

    def _steps(self) -> Iterator[None]:
        """Look at what may have changed: first a screenful of nodes, then the sums, then all other nodes."""
        yield from self._look_at_raw()
        lines = self._lines()
        yield from islice(lines, _FIRST_NODES)
        yield from self._others_in_steps()
        yield from lines

    def _others_in_steps(self) -> Iterator[None]:
        """Make what is not of one node: the pods that wait, the sums, the quotas."""
        waiting, quotas = [], []
        for pod in (yield from first_waiting(self._cluster, _WAITING)):
            waiting.append(self._waiting_line(pod))
            yield
        self._put("waiting", waiting)
        for sums in summary_in_steps(self._cluster):
            if sums is not None:
                self._put("summary", sums)
            yield
        for row in quota_rows(self._cluster):
            quotas.append(row)
            yield
        self._put("quotas", quotas)

    def _look_at_raw(self) -> Iterator[None]:
        """Make the lines stale of nodes on which whole devices have changed hands."""
        raw = self._cluster.raw
        if raw.version == self._raw_version:
            return
        known, self._raw = self._raw, (yield from raw_reports_in_steps(raw))
        self._raw_version = raw.version
        snapshot = self._cluster.cache.snapshot()
        self._fit(snapshot)
        for name in known.keys() | self._raw.keys():
            row = snapshot.rows.get(name)
            if row is not None and known.get(name) != self._raw.get(name):
                self._rows[row] = -1

    def _stale(self) -> list[str]:
        """Return the nodes whose rows have changed since their lines were made, by name."""
        snapshot = self._cluster.cache.snapshot()
        self._fit(snapshot)
        self._name(snapshot)
        changed = np.flatnonzero(self._rows != snapshot.stamps).tolist()
        return sorted(self._names[row] for row in changed if row in self._names)

    def _name(self, snapshot: Snapshot) -> bool:
        """Name the rows; returns whether nodes have come or gone, in which case a snapshot has another table."""
        if self._named is snapshot.rows:
            return False
        self._named, self._names = snapshot.rows, {row: name for name, row in snapshot.rows.items()}
        return True

    def _fit(self, snapshot: Snapshot) -> None:
        more = snapshot.columns - len(self._rows)
        if more > 0:
            self._rows = np.concatenate([self._rows, np.full(more, -1, np.int64)])

    def _lines(self) -> Iterator[None]:
        """Make the stale lines, one per step."""
        for name in self._stale():
            snapshot = self._cluster.cache.snapshot()
            row = snapshot.rows.get(name)
            # Of a node that is gone by now the next look tells.
            if row is not None and row < len(self._rows):
                self._number += 1
                self._nodes[name] = (self._number, node_line(self._cluster, name, self._raw.get(name, ())))
                self._nodes.move_to_end(name)
                self._gone.pop(name, None)
                self._rows[row] = snapshot.stamps[row]
            yield

    def _drop_gone(self) -> None:
        snapshot = self._cluster.cache.snapshot()
        if self._name(snapshot):
            rows = snapshot.rows
            for name in [name for name, (_, line) in self._nodes.items() if line is not None and name not in rows]:
                self._number += 1
                self._nodes[name] = (self._number, None)
                self._nodes.move_to_end(name)
                self._gone[name] = self._number
        self._tell()
        known = min(self._readers.values(), default=0)
        for name in [name for name, number in self._gone.items() if number <= known]:
            self._forgotten = max(self._forgotten, self._gone.pop(name))
            del self._nodes[name]

    def _put(self, kind: str, value: object) -> None:
        body = orjson.dumps(value)
        if self._others.get(kind, (0, b""))[1] != body:
            self._number += 1
            self._others[kind] = (self._number, body)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _waiting_line(self, pod: Pod) -> dict[str, object]:
        last = self._decisions.last(pod.uid)
        return {
            "pod": pod.key,
            "asks": [
                f"{each['name']}: {request_text(request)}"
                for each in asks(pod.containers)
                for request in each["requests"]
            ],
            "invalid": [str(each) for each in pod.invalid],
            "nodes": None if last is None else last.node_count,
            "refused": [] if last is None else [[each.code, each.count] for each in islice(last.refused, 4)],
        }
