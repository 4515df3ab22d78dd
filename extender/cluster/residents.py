"""The pods on a node, for preemption: those with cards and those without.

Why it exists: the cache knows what pods hold, and the registry how important they are, but of pods without cards both
keep only the CPU. It must not choose victims. Invariants: a pod without cards is here from its Binding to its end;
replicas share one object for what they have in common.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from accounting.answers.preemption import NodePod, Occupied, Standing
from accounting.disruption import DisruptionBudgets
from accounting.pod import Pod
from accounting.pod_info import PodInfo
from accounting.pod_record import PodRecord, State
from accounting.state.cache import Cache


class _Cardless(NamedTuple):
    """A pod that neither asks for nor holds cards."""

    namespace: str
    name: str
    node: str
    info: PodInfo
    started: int
    deleting: bool


class Residents:
    """The pods of every node."""

    def __init__(self, cache: Cache, pod: Callable[[str], Pod | None]) -> None:
        """`pod`: returns a pod that concerns cards by its UID."""
        self.budgets = DisruptionBudgets()
        self._cache = cache
        self._pod = pod
        self._cardless: dict[str, _Cardless] = {}
        self._cardless_on: dict[str, dict[str, None]] = {}  # node name -> UIDs

    def put_cardless(self, pod: Pod) -> None:
        """Record a bound pod without cards as it is now."""
        known = self._cardless.get(pod.uid)
        new = _Cardless(pod.namespace, pod.name, str(pod.node), pod.info, pod.started, pod.deleting)
        if known == new:
            return
        if known is not None and known.node != new.node:
            self.remove_cardless(pod.uid)
        self._cardless[pod.uid] = new
        self._cardless_on.setdefault(new.node, {})[pod.uid] = None

    def remove_cardless(self, uid: str) -> None:
        """Record that a pod without cards has ended or is gone."""
        known = self._cardless.pop(uid, None)
        if known is None:
            return
        own = self._cardless_on[known.node]
        del own[uid]
        if not own:
            del self._cardless_on[known.node]

    def occupied(self, node: str) -> Occupied | None:
        """Return a node with all its pods; None if it is not known."""
        known = self._cache.nodes.get(node)
        if known is None:
            return None
        row = self._cache.snapshot().rows[node]
        allocatable = dict(known.allocatable) if known.allocatable else None
        return Occupied(node, row, self._cache.positions(node), tuple(self._pods_on(node)), allocatable)

    def of_record(self, record: PodRecord) -> NodePod:
        """Return a pod that holds or asks for cards, in the form that preemption uses."""
        pod = self._pod(record.uid)
        if pod is None:
            return NodePod(record, standing=Standing.PROTECTED)
        return self._node_pod(record, pod.info, pod.started, deleting=pod.deleting)

    def _pods_on(self, node: str) -> Iterator[NodePod]:
        for record in self._cache.pods_on(node):
            yield self.of_record(record)
        for uid in sorted(self._cardless_on.get(node, ())):
            one = self._cardless[uid]
            record = PodRecord(uid, one.namespace, one.name, node, State.STEADY)
            yield self._node_pod(record, one.info, one.started, deleting=one.deleting)

    def _node_pod(self, record: PodRecord, info: PodInfo, started: int, *, deleting: bool) -> NodePod:
        standing = Standing.LEAVING if deleting else Standing.PROTECTED if info.protected else Standing.EVICTABLE
        budgets = self.budgets.of(record.namespace, record.name, info.labels)
        return NodePod(record, info.priority, started, standing, budgets, info.room)
