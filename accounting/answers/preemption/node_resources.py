"""Whether a node provably has room for a pod by what kube-scheduler counts.

Why it exists: kube-scheduler may offer a victim for any reason, so it may be spared only if none of these reasons can
apply. It must not know cards. Invariants: unknown amounts prove nothing; pods that are leaving still count, as in
kube-scheduler. Source: NodeResourcesFit; the requests are those of PodRequests.
"""

from collections.abc import Iterable, Mapping

from accounting.answers.preemption.candidates import NodePod, Occupied, Preemptor
from accounting.pod_info import PODS, Room


class RoomCheck:
    """What is short on a node with all its pods."""

    def __init__(self, short: Mapping[str, int]) -> None:
        self._short = {name: amount for name, amount in short.items() if amount > 0}
        self._gives: dict[str, tuple[int, ...]] = {}  # UID -> what the pod would free of each

    @classmethod
    def of(cls, preemptor: Preemptor, occupied: Occupied, kept: Iterable[NodePod]) -> "RoomCheck | None":
        """Return the check; None if too little is known, or if more than resources decides."""
        rooms = [pod.room for pod in (*occupied.pods, *kept) if pod.uid != preemptor.pod.uid]
        known = [room for room in rooms if room is not None and room.plain]
        if occupied.allocatable is None or preemptor.room is None:
            return None
        if not preemptor.room.plain or len(known) < len(rooms):
            return None
        short = {
            name: amount - occupied.allocatable.get(name, 0)
            for name, amount in _amounts(preemptor.room).items()
            if amount and (name in occupied.allocatable or name not in preemptor.unless_advertised)
        }
        for room in known:
            for name, amount in _amounts(room).items():
                if name in short:
                    short[name] += amount
        return cls(short)

    def gives(self, pod: NodePod) -> bool:
        """Whether a pod would free anything of what is short."""
        return any(self._of(pod))

    def suffices(self, pods: Iterable[NodePod]) -> bool:
        """Whether there is room once these are gone."""
        if not self._short:
            return True
        given = [self._of(pod) for pod in pods]
        sums = map(sum, zip(*given, strict=True)) if given else (0 for _ in self._short)
        return all(amount <= total for amount, total in zip(self._short.values(), sums, strict=True))

    def _of(self, pod: NodePod) -> tuple[int, ...]:
        known = self._gives.get(pod.uid)
        if known is None:
            amounts = _amounts(pod.room)
            known = self._gives[pod.uid] = tuple(amounts.get(name, 0) for name in self._short)
        return known


def _amounts(room: Room | None) -> dict[str, int]:
    return {} if room is None else {**dict(room.requests), PODS: 1}
