"""Computes every card from the API server's objects, at every watch event.

It exists because a card that is over-committed for a moment leaves no trace, and because the extender must not judge
itself. It must not ask the extender. Invariants: after every event the node concerned is computed anew by the slow
reference; a watch that ends goes on from the last event; where that cannot be, as after a restart of the API server,
everything is listed again and the gap is counted.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import orjson

from accounting.node import Node
from accounting.pod import Pod
from accounting.reference import state as reference_state
from accounting.reference.state import Amounts
from benchmarks.kill_watcher import read_node, read_pod
from tests.apiserver.beside import Beside

Json = dict[str, Any]
_UNLIMITED: Final = aiohttp.ClientTimeout(total=None)
_AGAIN_SECONDS: Final = 0.1
_GONE: Final = 410
Take = Callable[[str, Json], None]


class Audit:
    """All nodes and pods as the API server has them."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.pods: dict[str, Json] = {}  # UID -> object
        self.nodes: dict[str, Json] = {}  # name -> object
        self.overcommitted: list[str] = []
        """Every card that was over-committed after some event, as text."""
        self.events: Counter[str] = Counter()
        self.went: dict[str, str] = {}
        """Pods that were deleted, or that somebody began to delete: UID -> name."""
        self.gaps = 0
        """How often events were lost and everything was listed again."""
        self.placed_at: dict[str, float] = {}  # pod UID -> time.monotonic() when it was first seen on a node
        self.timeline: list[str] = []
        self._session = session
        self._begun = time.monotonic()
        self._read_pods: dict[str, Pod] = {}
        self._read_nodes: dict[str, Node] = {}
        self._on: dict[str, set[str]] = {}  # node -> UIDs
        self._changed = asyncio.Condition()

    # -- following ----------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow("nodes", self._take_node, self.nodes, lambda obj: obj["metadata"]["name"]))
            tasks.create_task(self._follow("pods", self._take_pod, self.pods, lambda obj: obj["metadata"]["uid"]))

    def note(self, text: str) -> None:
        """Write something down in the timeline."""
        self.timeline.append(f"{time.monotonic() - self._begun:8.3f} {text}")

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()

    async def _follow(self, what: str, take: Take, known: dict[str, Json], key: Callable[[Json], str]) -> None:
        lists = 0
        while True:
            try:
                version, items = await self._list(what)
                self.gaps += lists > 0
                lists += 1
                await self._take_list(items, take, known, key)
                while version:
                    version = await self._watch(what, take, version)
            except (aiohttp.ClientError, OSError) as error:
                self.note(f"no list of {what}: {error!r}")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _list(self, what: str) -> tuple[str, list[Json]]:
        """The version, and what is there."""
        async with self._session.get(f"/api/v1/{what}") as response:
            response.raise_for_status()
            listed = await response.json()
        return str(listed["metadata"]["resourceVersion"]), listed["items"]

    async def _take_list(
        self, items: list[Json], take: Take, known: dict[str, Json], key: Callable[[Json], str]
    ) -> None:
        """Take what is gone, then what is there."""
        here = {key(item) for item in items}
        gone = [obj for own, obj in known.items() if own not in here]
        for kind, objects in (("DELETED", gone), ("ADDED", items)):
            for obj in objects:
                await self._event(kind, obj, take)

    async def _watch(self, what: str, take: Take, version: str) -> str:
        """Take events until the API server ends the watch; return the last version, "" if it is too old to go on."""
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        async with Beside() as beside:
            beside.start(self._read(what, version, lines))
            while (line := await lines.get()) != b"":
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.events[what] += 1
                    await self._event(event["type"], event["object"], take)
        return version

    async def _read(self, what: str, version: str, lines: asyncio.Queue[bytes]) -> None:
        """Read faster than events are judged: the API server ends the watches of those who are slow."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        why = "it was at its end"
        try:
            async with self._session.get(f"/api/v1/{what}", params=query, timeout=_UNLIMITED) as response:
                if response.status == _GONE:
                    lines.put_nowait(b'{"type":"ERROR"}')
                # Any other refusal says nothing about the version: the watch is begun again from there.
                response.raise_for_status()
                async for line in response.content:
                    # Half a line is the end of a broken connection, not an event.
                    if line.endswith(b"\n"):
                        lines.put_nowait(line)
        except (aiohttp.ClientError, OSError) as error:
            why = repr(error)
            await asyncio.sleep(_AGAIN_SECONDS)
        self.note(f"a watch of {what} ended: {why}")
        lines.put_nowait(b"")

    async def _event(self, kind: str, obj: Json, take: Take) -> None:
        take(kind, obj)
        async with self._changed:
            self._changed.notify_all()
        # Judging takes a while, so the reader and other waiters get their turn.
        await asyncio.sleep(0)

    # -- judging ------------------------------------------------------------------------------------------------------

    def _take_node(self, kind: str, obj: Json) -> None:
        name = obj["metadata"]["name"]
        if kind == "DELETED":
            self.nodes.pop(name, None)
            self._read_nodes.pop(name, None)
            return
        self.nodes[name], self._read_nodes[name] = obj, read_node(obj)
        self._judge(name, f"{kind} node {name}")

    def _take_pod(self, kind: str, obj: Json) -> None:
        uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName")
        self._note_pod(kind, obj)
        if kind == "DELETED" or obj["metadata"].get("deletionTimestamp"):
            self.went[uid] = obj["metadata"]["name"]
        if kind == "DELETED":
            self.pods.pop(uid, None)
            self._read_pods.pop(uid, None)
            self._on.get(node or "", set()).discard(uid)
            return
        self.pods[uid], self._read_pods[uid] = obj, read_pod(obj)
        if node:
            self.placed_at.setdefault(uid, time.monotonic())
            self._on.setdefault(node, set()).add(uid)
            self._judge(node, f"{kind} pod {obj['metadata']['name']}")

    def _judge(self, node: str, event: str) -> None:
        state = self.state(node)
        for uuid, card in state.cards.items():
            if card.overcommitted and not card.orphan:
                self.overcommitted.append(f"after {event}: {node} {uuid} holds {card.requested} of {card.capacity}")
        limit = None if state.node is None else state.node.count_allocatable
        if limit is not None and state.requested_count > limit:
            self.overcommitted.append(f"after {event}: {node} has {state.requested_count} of {limit} cards by count")

    def _note_pod(self, kind: str, obj: Json) -> None:
        status = obj.get("status", {})
        conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        where, name = obj["spec"].get("nodeName", "-"), obj["metadata"]["name"]
        phase, scheduled = status.get("phase", "-"), conditions.get("PodScheduled", "-")
        going = " deleted" if obj["metadata"].get("deletionTimestamp") else ""
        self.note(f"{kind:8} {name:24} node {where:12} {phase:9} scheduled {scheduled}{going}")

    # -- asking -------------------------------------------------------------------------------------------------------

    def state(self, node: str) -> reference_state.NodeState:
        """One node, computed anew."""
        pods = [pod for uid in sorted(self._on.get(node, ())) if not (pod := self._read_pods[uid]).terminal]
        return reference_state.node_state(self._read_nodes.get(node), pods)

    def held(self) -> dict[str, Amounts]:
        """What is held of each card, by `node/UUID`, where anything is."""
        states = {name: self.state(name) for name in self._read_nodes.keys() | self._on.keys()}
        return {
            f"{name}/{uuid}": card.requested
            for name, state in states.items()
            for uuid, card in state.cards.items()
            if any(card.requested)
        }

    def pod(self, name: str) -> Json | None:
        """Return the pod that has a name now."""
        return next((obj for obj in self.pods.values() if obj["metadata"]["name"] == name), None)

    def read(self, uid: str) -> Pod:
        """Return a pod as accounting sees it."""
        return self._read_pods[uid]

    def placed(self) -> list[Json]:
        """The pods that are on nodes."""
        return [obj for obj in self.pods.values() if obj["spec"].get("nodeName")]

    async def until(self, holds: Callable[[], object], what: str, within: float) -> float:
        """Wait until something holds of the objects; return the seconds that it took. Raises AssertionError."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(lambda: bool(holds()))
        except TimeoutError:
            raise AssertionError(f"not within {within:g} s: {what}") from None
        return time.monotonic() - begun


def condition(pod: Json, kind: str = "PodScheduled") -> Json:
    """A condition of a pod; {} if it has none of the kind."""
    found = (one for one in pod.get("status", {}).get("conditions") or () if one["type"] == kind)
    return dict(next(found, {}))
