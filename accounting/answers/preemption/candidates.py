"""The pods on a node as preemption sees them, and which of them may be evicted.

Why it exists: victims are chosen among a node's pods, and most rules about them concern one pod alone. It must not know
arrays or objects of the API. Invariants: a pod of equal or higher priority, a protected pod and a pod that is already
leaving are never victims; unknown requests of a pod prove nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from accounting.pod import Pod
from accounting.pod_info import NOT_STARTED, Room
from accounting.pod_record import PodRecord
from accounting.quota import QuotaCheck


class Standing(StrEnum):
    """Whether a pod may be evicted."""

    EVICTABLE = "evictable"
    PROTECTED = "protected"
    """A mirror, static, DaemonSet or system-critical pod: it comes back at once, or the node needs it."""
    LEAVING = "leaving"
    """Its deletion has begun, so it frees its cards without an eviction."""


class NodePod(NamedTuple):
    """A pod on a node."""

    record: PodRecord
    priority: int = 0
    started: int = NOT_STARTED
    """status.startTime, in seconds since 1970."""
    standing: Standing = Standing.EVICTABLE
    budgets: tuple[int, ...] = ()
    """The PodDisruptionBudgets that select it, by number."""
    room: Room | None = None
    """None: not known."""

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.record.uid


class Occupied(NamedTuple):
    """A node with all its pods."""

    node: str
    row: int
    """Its row in the snapshot."""
    positions: Mapping[str, int]
    """Device position by card UUID."""
    pods: tuple[NodePod, ...]
    """All pods on it, those without cards too; in any order."""
    allocatable: Mapping[str, int] | None = None
    """Allocatable amounts by resource name, including `PODS`; None if unknown."""


class Preemptor(NamedTuple):
    """The pod that needs room."""

    pod: Pod
    priority: int
    room: Room | None = None
    """None: not known."""
    never: bool = False
    """Whether its preemptionPolicy is Never."""
    quota: Callable[[Sequence[PodRecord]], QuotaCheck] | None = None
    """The verdict of its namespace's quotas once these pods are gone; None if no quota limits it."""
    unless_advertised: frozenset[str] = frozenset()
    """Resources that kube-scheduler may be configured to ignore; it counts them only on nodes that advertise them."""

    @property
    def preempts(self) -> bool:
        """Whether others may go for it: its policy allows it, and what it asks for can be used."""
        return not self.never and not self.pod.invalid

    @property
    def over_quota(self) -> bool:
        """Whether a quota refuses it now."""
        return self.quota is not None and bool(self.quota(()).exceeded)


def may_evict(preemptor: Preemptor, pod: NodePod) -> bool:
    """Return whether a pod may be evicted for the preemptor at all."""
    return pod.standing is Standing.EVICTABLE and pod.priority < preemptor.priority and pod.uid != preemptor.pod.uid


def evictable(preemptor: Preemptor, pods: Sequence[NodePod]) -> list[NodePod]:
    """Return the pods that may be evicted, the most important first: high priority, early start, UID.

    If a quota refuses the preemptor, only pods of its own namespace are candidates.
    """
    if not preemptor.preempts:
        return []
    own = preemptor.pod.namespace if preemptor.over_quota else None
    found = [pod for pod in pods if may_evict(preemptor, pod) and (own is None or pod.record.namespace == own)]
    return sorted(found, key=importance)


def leaving_for(occupied: Occupied, named: Iterable[tuple[int, Collection[str]]]) -> Occupied:
    """Return a node where those who are to go are leaving already.

    `named`: priorities of preemptors, each with the UIDs of its victims. Who may not be evicted for one stays.
    """
    going = {uid: priority for priority, uids in sorted(named, key=lambda each: each[0]) for uid in uids}
    if not going:
        return occupied
    pods = tuple(
        pod._replace(standing=Standing.LEAVING)
        if pod.standing is Standing.EVICTABLE and pod.priority < going.get(pod.uid, pod.priority)
        else pod
        for pod in occupied.pods
    )
    return occupied._replace(pods=pods)


def importance(pod: NodePod) -> tuple[int, int, str]:
    """Sort key: the most important pod first (kube-scheduler's MoreImportantPod)."""
    return -pod.priority, pod.started, pod.uid
