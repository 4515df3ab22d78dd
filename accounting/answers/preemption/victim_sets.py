"""Sets of pods in the order of what their eviction costs.

Why it exists: there are 2^n sets, so each is made only when its turn comes, and sets that cannot be the answer are left
out. It must not know whether a set helps. Invariants: no set comes before a cheaper one; a set is left out only if it
contains a cheaper answer, or if a cheaper set that helps as much is kept.

Two kinds of sets are left out: those without a pod that is cheaper than one of theirs and frees the same, and those
that free more cards than the pod can use, since some victim then frees a card for nothing.
"""

from collections.abc import Sequence
from functools import reduce
from heapq import heappop, heappush
from itertools import accumulate
from operator import and_

from accounting.answers.preemption.candidates import NodePod
from accounting.answers.preemption.order import Cost, cost_of, violations

#: Places in the list of candidates, in ascending order, apart from those that are in every set.
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
        """`required`: places that are in every set. `lowest`: each set has a pod of at least this priority."""
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
        # A set with its cost, or (True) a placeholder for all sets that have one pod more.
        self._heap: list[tuple[Cost, bool, Set, int]] = []
        if required:
            self._push(cost_of([candidates[at] for at in required], allowed), required, 0)
            return
        for at, pod in enumerate(candidates):
            # The first pod of a set is its most important one.
            if pod.priority >= lowest:
                self._push(cost_of([pod], allowed), (at,), at + 1)

    def keep_to_cards(self, cards: Sequence[int], most: int) -> None:
        """Leave out sets that free more than so many cards. `cards`: what each candidate frees, as bits."""
        self._cards, self._most_cards = cards, most

    def next(self, most: int) -> list[Set]:
        """Return the next sets, cheapest first; an empty list only at the end."""
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
        """Queue the sets with one pod more, at the least cost that any of them may have."""
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
                # The first pod has the highest priority, and among equals the earliest start.
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
    """Return for each candidate the next cheaper one that frees the same, None if there is none."""
    last: dict[object, int] = {}
    twin: list[int | None] = [None] * len(candidates)
    for at in sorted(range(len(candidates)), key=lambda at: _cheapness(candidates[at])):
        twin[at] = last.get(alike[at])
        last[alike[at]] = at
    return twin


def _cheapness(pod: NodePod) -> tuple[int, int, str]:
    return pod.priority, -pod.started, pod.uid
