"""Nominated pods, which wait on a node for others to go, and the room that is kept there for them.

Why it exists: the room that an eviction frees belongs to the pod that it was made for. It must not nominate or evict.
Invariants: no room is kept for a pod that is booked, has ended or is gone; pods of higher priority are never refused
because of it; `version` changes whenever an answer changes for another reason than the cache.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accounting.answers.preemption import NodePod, Occupied, Preemptor, beside_kept, kept_for, leaving_for
from accounting.pod import Pod
from accounting.state import Snapshot
from accounting.state.cache import Cache
from extender.cluster.events import Kept
from extender.cluster.residents import Residents

_NOTHING: Mapping[int, Snapshot] = {}


class _Worked(NamedTuple):
    """The result for a node at some moment."""

    stamp: int
    version: int
    kept: tuple[NodePod, ...]


class Nominations:
    """Pending pods by the node that they are nominated for."""

    def __init__(self, cache: Cache, residents: Residents) -> None:
        self.version = 0
        self._cache = cache
        self._residents = residents
        self._nominated: dict[str, Pod] = {}  # pod UID -> pod
        self._on: dict[str, dict[str, None]] = {}  # node -> UIDs
        self._worked: dict[str, _Worked] = {}

    def __len__(self) -> int:
        return len(self._nominated)

    def kept(self, event: Kept) -> None:
        """A pod is kept as it is now."""
        known, pod = event
        if pod.waits_on or pod.uid in self._nominated:
            self._put(pod)
        elif self._on and pod.node in self._on and (known is None or known.deleting != pod.deleting):
            self.version += 1

    def gone(self, uid: str) -> None:
        """Forget a pod."""
        if uid in self._nominated:
            self._drop(uid)

    def nodes(self) -> list[str]:
        """Return the nodes for which some pod is nominated, sorted."""
        return sorted(self._on)

    def preempting(self) -> list[Pod]:
        """Return the pods for which the extender has said that it evicts others, by UID."""
        return sorted((pod for pod in self._nominated.values() if pod.preempting is not None), key=lambda pod: pod.uid)

    def on(self, node: str) -> list[Pod]:
        """Return the pods that are nominated for a node and not booked."""
        return [self._nominated[uid] for uid in self._on.get(node, ()) if self._cache.state(uid) is None]

    def before(self, preemptor: Preemptor, node: str) -> tuple[NodePod, ...]:
        """Return the pods for which room on a node is kept from this one, with their cards."""
        return self._before(preemptor.pod.uid, preemptor.priority, node)

    def rows(self, pod: Pod) -> Mapping[int, Snapshot]:
        """Return the rows where room is kept from this pod, and these nodes' state with that room taken."""
        if not self._on:
            return _NOTHING
        return dict(self._rows(pod))

    def of_node(self, pod: Pod, node: str) -> Snapshot | None:
        """Return a node's state with the room taken that is kept from this pod; None if there is none."""
        kept = self._before(pod.uid, pod.info.priority, node) if node in self._on else ()
        return self._beside(node, kept) if kept else None

    def _rows(self, pod: Pod) -> Iterator[tuple[int, Snapshot]]:
        rows = self._cache.snapshot().rows
        for node in self._on:
            alone = self.of_node(pod, node) if node in rows else None
            if alone is not None:
                yield rows[node], alone

    def _beside(self, node: str, kept: tuple[NodePod, ...]) -> Snapshot | None:
        occupied = self._occupied(node)
        return None if occupied is None else beside_kept(self._cache.snapshot(), occupied, kept)

    def _before(self, uid: str, priority: int, node: str) -> tuple[NodePod, ...]:
        return tuple(pod for pod in self._kept_on(node) if pod.priority >= priority and pod.uid != uid)

    def _kept_on(self, node: str) -> tuple[NodePod, ...]:
        """Return all pods for which room is kept on a node; remembered while nothing there changes."""
        snapshot = self._cache.snapshot()
        if node not in self._on or node not in snapshot.rows:
            return ()
        stamp, known = int(snapshot.stamps[snapshot.rows[node]]), self._worked.get(node)
        if known is not None and (known.stamp, known.version) == (stamp, self.version):
            return known.kept
        occupied = self._occupied(node)
        kept = () if occupied is None else kept_for(snapshot, occupied, self.on(node))
        self._worked[node] = _Worked(stamp, self.version, kept)
        return kept

    def _occupied(self, node: str) -> Occupied | None:
        """Return a node whose pods are leaving that are to go for one that waits there."""
        occupied = self._residents.occupied(node)
        if occupied is None:
            return None
        named = [(pod.info.priority, pod.preempting.victims) for pod in self.on(node) if pod.preempting is not None]
        return leaving_for(occupied, named)

    def _put(self, pod: Pod) -> None:
        if not pod.waits_on or pod.node is not None or pod.terminal or pod.deleting or pod.invalid or not pod.asks:
            self.gone(pod.uid)
            return
        known = self._nominated.get(pod.uid)
        if known == pod:
            return
        if known is not None:
            self._drop(pod.uid)
        self._nominated[pod.uid] = pod
        self._on.setdefault(pod.waits_on, {})[pod.uid] = None
        self.version += 1

    def _drop(self, uid: str) -> None:
        node = self._nominated.pop(uid).waits_on
        own = self._on[node]
        del own[uid]
        if not own:
            del self._on[node]
            self._worked.pop(node, None)
        self.version += 1
