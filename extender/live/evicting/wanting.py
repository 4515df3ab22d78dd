"""Refused pods for which others may have to go, and which of them is next.

Why it exists: kube-scheduler's question is over when it is known that a pod must wait, so what it said is remembered:
the nodes that nobody but the extender refused. It must not choose victims. Invariants: a pod is looked at when its time
has come, the highest priority first, then the longest refused; memory is bounded.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.demand import Demand, QuotaKey
from accounting.pod import Pod
from accounting.state import Snapshot


@dataclass(slots=True)
class Want:
    """One refused pod. Times are the loop's."""

    uid: str
    priority: int
    refused_at: float
    """For the first time since it was scheduled last."""
    due_at: float
    rows: Mapping[str, int]
    offered: npt.NDArray[np.uint8]
    """(row / 8,): the nodes of the last question, as bits by their rows then."""
    key: Hashable = None
    """Equal for those for whom the same pods may go: what they ask, their priority, and the nodes."""
    in_vain: int = 0

    def nodes(self) -> list[str]:
        """Return the nodes of the last question."""
        offered = np.unpackbits(self.offered)
        return [name for name, row in self.rows.items() if offered[row]]


class Wanting:
    """All of them, by UID."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._wants: dict[str, Want] = {}

    def __len__(self) -> int:
        return len(self._wants)

    def get(self, uid: str) -> Want | None:
        """Return what is known of a refused pod."""
        return self._wants.get(uid)

    def put(self, pod: Pod, names: Sequence[str], snapshot: Snapshot, now: float, due_at: float) -> None:
        """Note that filter refused a pod on all of these nodes, perhaps once more."""
        uid, priority = pod.uid, pod.info.priority
        rows = snapshot.rows_of(names)
        offered = np.zeros(snapshot.columns, np.bool_)
        offered[rows[rows >= 0]] = True
        bits = np.packbits(offered)
        key = Demand.of(pod), QuotaKey.of(pod), priority, bits.tobytes()
        known = self._wants.get(uid)
        if known is not None:
            known.priority, known.rows, known.offered, known.key = priority, snapshot.rows, bits, key
            return
        self._wants[uid] = Want(uid, priority, now, due_at, snapshot.rows, bits, key)
        if len(self._wants) > self._most:
            self.drop(max(self._wants.values(), key=_rank).uid)

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        self._wants.pop(uid, None)

    def alike(self, want: Want) -> list[Want]:
        """Return those, this one included, for whom there is somebody exactly if there is for this one."""
        return [each for each in self._wants.values() if each.key == want.key]

    def due(self, now: float) -> Iterator[Want]:
        """Yield those whose time has come, in order, as long as they are still refused."""
        for want in sorted((want for want in self._wants.values() if want.due_at <= now), key=_rank):
            if self._wants.get(want.uid) is want and want.due_at <= now:
                yield want


def _rank(want: Want) -> tuple[int, float, str]:
    return -want.priority, want.refused_at, want.uid
