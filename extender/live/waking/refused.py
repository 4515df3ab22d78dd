"""Pods that filter refused on every node, in the order in which they should be woken.

Why it exists: ten thousand pods of one deployment ask for the same, so whether they fit is judged once for all of them.
It must not know nodes. Invariants: pods with the same demand that count in the same quotas form one group, since what
helps one helps all; within a group the highest priority comes first, then the pod that was woken in vain less often,
then the one refused longest; if there are too many pods, the oldest are forgotten.
"""

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from accounting.demand import Demand, QuotaKey
from accounting.pod import Pod


class GroupKey(NamedTuple):
    """What decides whether there is a place for a pod; it is the same for all pods of a group."""

    demand: Demand
    quota: QuotaKey
    launcher: str = ""
    """UID of a pod that asks for whole devices: which VMI lists it decides what it adds."""

    @classmethod
    def of(cls, pod: Pod) -> "GroupKey":
        """Return a pod's key."""
        return cls(Demand.of(pod), QuotaKey.of(pod), pod.uid if pod.raw else "")


class Rank(NamedTuple):
    """The order of waking; the smallest goes first."""

    low_priority: int
    in_vain: int
    """How often it was woken and refused again, because something unknown here keeps it out."""
    refused_at: float
    uid: str


@dataclass(slots=True)
class Refused:
    """One refused pod. Times are the loop's."""

    pod: Pod
    key: GroupKey
    rank: Rank
    woken_at: float = float("-inf")
    asked_again: bool = True
    """Filter has judged it since it was woken, or the patch failed; otherwise it may still take that room."""


class RefusedPods:
    """All refused pods, by UID and by group."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pods: OrderedDict[str, Refused] = OrderedDict()  # pod UID -> pod, longest refused first
        self._groups: dict[GroupKey, list[Rank]] = {}  # key -> sorted ranks
        self._namespaces: Counter[str] = Counter()  # namespace -> refused pods; no zeros

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> Refused | None:
        """Return a refused pod."""
        return self._pods.get(uid)

    def has_namespace(self, namespace: str) -> bool:
        """Whether some pod of a namespace is refused."""
        return namespace in self._namespaces

    def put(self, pod: Pod, priority: int, now: float) -> None:
        """Note that a pod was refused, for the first time or again."""
        known, key = self._pods.get(pod.uid), GroupKey.of(pod)
        rank = Rank(-priority, 0, now, pod.uid)
        if known is not None:
            rank = rank._replace(in_vain=known.rank.in_vain + (not known.asked_again), refused_at=known.rank.refused_at)
            if (known.key, known.rank) == (key, rank):
                known.pod, known.asked_again = pod, True
                return
        refused = Refused(pod, key, rank, float("-inf") if known is None else known.woken_at)
        self.drop(pod.uid)
        self._pods[pod.uid] = refused
        insort(self._groups.setdefault(key, []), rank)
        self._namespaces[pod.namespace] += 1
        if len(self._pods) > self._most:
            self.drop(next(iter(self._pods)))

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        refused = self._pods.pop(uid, None)
        if refused is None:
            return
        group = self._groups[refused.key]
        del group[bisect_left(group, refused.rank)]
        if not group:
            del self._groups[refused.key]
        self._namespaces[refused.pod.namespace] -= 1
        if not self._namespaces[refused.pod.namespace]:
            del self._namespaces[refused.pod.namespace]

    def in_order(self) -> "Order":
        """Return the pods as they are now, in the order of waking."""
        return Order(self._pods, self._groups)


class Order:
    """Goes through the refused pods in order. A group that fits nowhere is left out from then on.

    Pods that are refused during the round are left for the next round.
    """

    def __init__(self, pods: OrderedDict[str, Refused], groups: dict[GroupKey, list[Rank]]) -> None:
        self._pods = pods
        self._next = [(group[0], number, 0) for number, group in enumerate(groups.values())]
        self._groups = list(groups.values())
        self._copies: dict[int, list[Rank]] = {}
        heapify(self._next)
        self._group = self._place = 0

    def next(self) -> Refused | None:
        """Return the next pod that is still refused; None at the end."""
        while self._next:
            rank, self._group, self._place = heappop(self._next)
            found = self._pods.get(rank.uid)
            if found is not None and found.rank == rank:
                return found
            self.more_of_this_group()
        return None

    def more_of_this_group(self) -> None:
        """Keep the last pod's group in the round; without this call the group is left out."""
        ranks = self._copies.get(self._group)
        if ranks is None:
            # Most groups fit nowhere and are looked at once, so a group is copied only when it is needed.
            ranks = self._copies[self._group] = list(self._groups[self._group])
        place = self._place + 1
        if place < len(ranks):
            heappush(self._next, (ranks[place], self._group, place))
