"""What preemption must know of a pod beside its cards.

Why it exists: who is evicted for whom follows from a few facts that are the same for all replicas, so they are one
value that replicas share. It must not know cards. Invariant: what is not known proves nothing.
"""

from typing import NamedTuple

#: A pod that has not started yet counts as started last (kube-scheduler's GetPodStartTime).
NOT_STARTED = 2**62
#: The resource of which every pod takes one.
PODS = "pods"


class Room(NamedTuple):
    """What kube-scheduler counts for a pod on its node, by the formula of PodRequests."""

    requests: tuple[tuple[str, int], ...] = ()
    """Resource name and amount, sorted; CPU in thousandths, memory and storage in bytes."""
    plain: bool = True
    """Nothing but resources decides beside it: no host port, required term, hard spread, volume or claim."""


class PodInfo(NamedTuple):
    """Facts that replicas share."""

    priority: int = 0
    protected: bool = False
    """A mirror, static, DaemonSet or system-critical pod: it comes back at once, or the node does not work without."""
    never: bool = False
    """preemptionPolicy Never: nobody is evicted for it."""
    labels: tuple[tuple[str, str], ...] = ()
    """By these a PodDisruptionBudget selects it."""
    room: Room | None = None
    """None: not known."""


UNKNOWN = PodInfo()
