"""All pods that may have to go, as arrays over all nodes.

Why it exists: a choice over 10,000 nodes cannot look at every pod by itself. It must not judge. Invariants: an entry is
a pod on one card; of pods that are protected there is none, since they stay; entries of a row are replaced together, so
that a row is never half of now and half of before.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from accounting.answers.preemption.candidates import NodePod, Standing
from accounting.state import Int64Array
from accounting.vendor import DEFAULT_VENDOR_KEY

_FIRST_CAPACITY = 1024
#: Of a UID that many bytes are in an entry, enough to tell random ones apart.
_UID_BYTES = 7


class Field(IntEnum):
    """What stands in which row of the array."""

    ROW = 0
    """The node's row; -1: no entry."""
    POSITION = 1
    PRIORITY = 2
    LEAVING = 3
    SLOTS = 4
    MEMORY = 5
    CORES = 6
    EXCLUSIVE = 7
    HOLDERS = 8
    COUNT = 9
    """The pod's count of the first vendor's cards; 0 but for its first card."""
    BLOCKS = 10
    """1 if the pod's allocation cannot be read."""
    BUDGET = 11
    """The number of its PodDisruptionBudget; -1 if there is none or more than one."""
    NAMESPACE = 12
    FREED_SLOTS = 13
    """What the pod frees on all its cards; the three stand together."""
    FREED_MEMORY = 14
    FREED_CORES = 15
    STARTED = 16
    """Its start, negated: the latest is cheapest."""
    POD = 17
    """Another number for every pod; its entries have the same one."""
    UID = 18
    """The first bytes of its UID; they are in its order."""


class _Segment(NamedTuple):
    start: int
    length: int


class VictimTable:
    """Entries of pods with cards on all nodes."""

    def __init__(self, vendor: str = DEFAULT_VENDOR_KEY) -> None:
        """`vendor`: the key of the first vendor, whose cards `Field.COUNT` is about."""
        self._vendor = vendor
        self._array = np.full((len(Field), _FIRST_CAPACITY), -1, np.int64)
        self._end = 0
        self._live = 0
        self._pods = 0
        self._segments: dict[int, _Segment] = {}  # row -> where its entries are
        self._namespaces: dict[str, int] = {}

    def __len__(self) -> int:
        return self._live

    @property
    def entries(self) -> Int64Array:
        """Return (field, entry); those with row -1 are none."""
        return self._array[:, : self._end]

    def namespace(self, name: str) -> int:
        """Return a namespace's number; one of its own for a namespace without pods."""
        return self._namespaces.setdefault(name, len(self._namespaces))

    def rows(self) -> Iterable[int]:
        """Return the rows that have entries."""
        return self._segments.keys()

    def clear(self) -> None:
        """Forget all entries."""
        self._array[Field.ROW] = -1
        self._end = self._live = 0
        self._segments.clear()

    def put(self, row: int, positions: Mapping[str, int], pods: Sequence[NodePod]) -> None:
        """Replace what is known of a node's pods. `positions`: device position by card UUID."""
        may_go = [pod for pod in pods if pod.standing is not Standing.PROTECTED]
        found = [entry for pod in may_go for entry in self._of(row, positions, pod)]
        known = self._segments.pop(row, None)
        if known is not None:
            self._array[Field.ROW, known.start : known.start + known.length] = -1
            self._live -= known.length
        if not found:
            return
        self._make_room(len(found))
        self._array[:, self._end : self._end + len(found)] = np.array(found, np.int64).T
        self._segments[row] = _Segment(self._end, len(found))
        self._end += len(found)
        self._live += len(found)

    def _of(self, row: int, positions: Mapping[str, int], pod: NodePod) -> list[tuple[int, ...]]:
        record, uses = pod.record, pod.record.held
        places = [(position, use) for use in uses if (position := positions.get(use.uuid)) is not None]
        blocks, count = record.blocks is not None, record.total_peak.count
        if not (places or blocks or count):
            return []
        freed = sum(use.slots for use in uses), sum(use.memory for use in uses), sum(use.cores for use in uses)
        budget = pod.budgets[0] if len(pod.budgets) == 1 else -1
        of_pod = (
            int(blocks),
            budget,
            self.namespace(record.namespace),
            *freed,
            -pod.started,
            self._next_pod(),
            uid_number(record.uid),
        )
        leaving = int(pod.standing is Standing.LEAVING)
        first = next((each.peak.count for each in record.vendor_totals if each.vendor == self._vendor), 0)
        entries: list[tuple[int, ...]] = []
        for number, (position, use) in enumerate(places):
            card = (
                position,
                pod.priority,
                leaving,
                use.slots,
                use.memory,
                use.cores,
                int(use.exclusive),
                1 + use.crowded,
            )
            entries.append((row, *card, 0 if number else first, *of_pod))
        return entries or [(row, 0, pod.priority, leaving, 0, 0, 0, 0, 0, first, *of_pod)]

    def _next_pod(self) -> int:
        self._pods += 1
        return self._pods

    def _make_room(self, more: int) -> None:
        if self._end + more <= self._array.shape[1]:
            return
        kept = self._array[:, : self._end]
        kept = kept[:, kept[Field.ROW] >= 0]
        capacity = max(_FIRST_CAPACITY, 2 * (kept.shape[1] + more))
        self._array = np.full((len(Field), capacity), -1, np.int64)
        self._end = kept.shape[1]
        self._array[:, : self._end] = kept
        # Entries of a row stay one after another.
        rows, starts, lengths = np.unique(kept[Field.ROW], return_index=True, return_counts=True)
        self._segments = {
            row: _Segment(start, length)
            for row, start, length in zip(rows.tolist(), starts.tolist(), lengths.tolist(), strict=True)
        }


def uid_number(uid: str) -> int:
    """Return a number for a UID: of two UIDs the smaller one never has the larger number."""
    return int.from_bytes(uid.encode(errors="surrogatepass")[:_UID_BYTES].ljust(_UID_BYTES, b"\0"), "big")
