"""Sets of pods in the order of what evicting them costs.

Why it exists: there are 2^n sets, so they are made when their turn comes, and those that cannot be the answer are left
out. It must not know whether a set helps. Invariants: no set comes before a cheaper one; a set is left out only if it
contains a cheaper answer, or if one that is cheaper and helps as much is not left out.

Left out are sets that pass over a cheaper pod that frees the same, and sets that free more cards than the pod has
containers for: some victim would then free a card for nobody.
"""

from collections.abc import Sequence
from functools import reduce
from heapq import heappop, heappush
from itertools import accumulate
from operator import and_

from accounting.answers.preemption.candidates import NodePod
from accounting.answers.preemption.order import Cost, cost_of, violations

#: Places in the list of candidates, ascending but for those that are in every set.
Set = tuple[int, ...]

_LEAST = -(2**31)


class Ways:
    """The sets of some candidates, the most important of whom come first."""

    def __init__(
        self,
        candidates: Sequence[NodePod],
        alike: Sequence[object],
        allowed: Sequence[int],
        required: Set,
        lowest: int,
    ) -> None:
        """`required`: are in every set. `lowest`: a set without a pod of at least this priority is no answer."""
        self._pods = candidates
        self._allowed = allowed
        self._required = frozenset(required)
        self._budgets = any(pod.budgets for pod in candidates)
        self._freed = [_freed(pod) for pod in candidates]
        # What the cheapest pod at or after a place adds to the sum of priorities.
        adds = [pod.priority - _LEAST for pod in candidates]
        self._least_after = [*reversed(list(accumulate(reversed(adds), min))), 0]
        self._twin = _cheaper_twins(candidates, alike)
        self._cards: Sequence[int] | None = None
        self._most_cards = 0
        # A set with its cost, or the promise (True) of all sets that have one pod more.
        self._heap: list[tuple[Cost, bool, Set, int]] = []
        if required:
            self._push(cost_of([candidates[at] for at in required], allowed), required, 0)
            return
        for at, pod in enumerate(candidates):
            # The first pod of a set is its most important one.
            if pod.priority >= lowest:
                self._push(cost_of([pod], allowed), (at,), at + 1)

    def keep_to_cards(self, cards: Sequence[int], most: int) -> None:
        """Leave out sets that free more than so many cards. `cards`: those that each candidate frees, as bits."""
        self._cards, self._most_cards = cards, most

    def next(self, most: int) -> list[Set]:
        """Return the next sets, the cheapest first; none only at the end."""
        batch: list[Set] = []
        while self._heap and len(batch) < most:
            cost, is_promise, chosen, following = heappop(self._heap)
            if is_promise:
                self._extend(cost, chosen, following)
                continue
            self._promise(cost, chosen, following)
            if all(self._twin[at] in (None, *chosen) for at in chosen):
                batch.append(chosen)
        return batch

    def _promise(self, cost: Cost, chosen: Set, following: int) -> None:
        """Put the sets with one pod more where the cheapest of them may come."""
        if following < len(self._pods):
            least = cost._replace(total=cost.total + self._least_after[following], number=cost.number + 1)
            heappush(self._heap, (least, True, chosen, following))

    def _extend(self, least: Cost, chosen: Set, following: int) -> None:
        before = least.total - self._least_after[following]
        for at in range(following, len(self._pods)):
            if at in self._required:
                continue
            larger, pod, (slots, memory, cores) = (*chosen, at), self._pods[at], self._freed[at]
            if self._is_too_wide(larger):
                continue
            if self._required or not least.uids:
                cost = cost_of([self._pods[each] for each in larger], self._allowed)
            else:
                # The first pod has the highest priority, and of those with it the earliest start.
                cost = Cost(
                    violations([self._pods[each] for each in larger], self._allowed) if self._budgets else 0,
                    least.highest,
                    before + pod.priority - _LEAST,
                    least.number,
                    least.slots + slots,
                    least.memory + memory,
                    least.cores + cores,
                    least.started,
                    tuple(sorted((*least.uids, pod.uid))),
                )
            self._push(cost, larger, at + 1)

    def _push(self, cost: Cost, chosen: Set, following: int) -> None:
        heappush(self._heap, (cost, False, chosen, following))

    def _is_too_wide(self, chosen: Set) -> bool:
        if self._cards is None:
            return False
        sets = [self._cards[at] for at in chosen if at not in self._required and self._cards[at]]
        return not _coverable(sets, self._most_cards)


def _freed(pod: NodePod) -> tuple[int, int, int]:
    uses = pod.record.held
    return sum(use.slots for use in uses), sum(use.memory for use in uses), sum(use.cores for use in uses)


def _coverable(sets: list[int], most: int) -> bool:
    """Whether so few cards can be named that each set of cards, as bits, has one of them."""
    if not sets:
        return True
    if most <= 1:
        return most == 1 and reduce(and_, sets) != 0
    fewest = min(sets, key=int.bit_count)
    while fewest:
        card = fewest & -fewest
        if _coverable([cards for cards in sets if not cards & card], most - 1):
            return True
        fewest ^= card
    return False


def _cheaper_twins(candidates: Sequence[NodePod], alike: Sequence[object]) -> list[int | None]:
    """Return for each candidate the one that frees the same and costs just less, if there is one."""
    last: dict[object, int] = {}
    twin: list[int | None] = [None] * len(candidates)
    for at in sorted(range(len(candidates)), key=lambda at: _cheapness(candidates[at])):
        twin[at] = last.get(alike[at])
        last[alike[at]] = at
    return twin


def _cheapness(pod: NodePod) -> tuple[int, int, str]:
    return pod.priority, -pod.started, pod.uid
