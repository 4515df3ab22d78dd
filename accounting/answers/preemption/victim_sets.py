"""Sets of pods in the order of what their eviction costs.

Why it exists: there are 2^n sets, so each is made only when its turn comes, and sets that cannot be the answer are left
out. It must not know whether a set helps. Invariants: no set comes before a cheaper one; a set is left out only if it
contains a cheaper answer, or if a cheaper set that helps as much is kept.

Two kinds of sets are left out: those without a pod that is cheaper than one of theirs and frees the same, and those
that free more cards than the pod can use, since some victim then frees a card for nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import and_, or_

from accounting.answers.preemption.candidates import NodePod
from accounting.answers.preemption.order import violations
from accounting.answers.preemption.packed_costs import PackedCosts

#: Places in the list of candidates, in ascending order, apart from those that are in every set.
Set = tuple[int, ...]


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
        self._costs = PackedCosts(candidates)
        self._twin = _cheaper_twins(candidates, alike)
        self._cards: Sequence[int] = ()
        self._most_cards = 0
        # Violations and packed cost of a set, or of the promise (True) of all sets that have one pod more.
        self._heap: list[tuple[int, int, bool, Set, int]] = []
        if required:
            cost = sum(self._costs.adds[at] for at in required) + self._costs.leads[min(required)]
            self._heap.append((self._violations(required), cost, False, required, 0))
            return
        for at, pod in enumerate(candidates):
            # The first pod of a set is its most important one.
            cheaper = self._twin[at]
            if pod.priority >= lowest and (cheaper is None or cheaper > at):
                cost = self._costs.adds[at] + self._costs.leads[at]
                self._heap.append((self._violations((at,)), cost, False, (at,), at + 1))
        heapify(self._heap)

    def keep_to_cards(self, cards: Sequence[int], most: int) -> None:
        """Leave out sets that free more than so many cards. `cards`: what each candidate frees, as bits."""
        self._cards, self._most_cards = cards, most

    def next(self, most: int) -> list[Set]:
        """Return the next sets, cheapest first; an empty list only at the end."""
        batch: list[Set] = []
        heap, twin = self._heap, self._twin
        while heap and len(batch) < most:
            violated, cost, is_promise, chosen, following = heappop(heap)
            if is_promise:
                self._extend(cost, chosen, following)
                continue
            if following < len(self._pods):
                # Where the cheapest of the sets with one pod more may come.
                heappush(heap, (violated, cost + self._costs.least_after[following], True, chosen, following))
            for at in chosen:
                cheaper = twin[at]
                if cheaper is not None and cheaper not in chosen:
                    break
            else:
                batch.append(chosen)
        return batch

    def _extend(self, least: int, chosen: Set, following: int) -> None:
        costs, required, violations = self._costs, self._required, 0
        before = least - costs.least_after[following]
        lead = min(chosen)
        for at in self._joining(chosen, following):
            larger = (*chosen, at)
            cost = before + costs.adds[at]
            if required and at < lead:
                cost += costs.leads[at] - costs.leads[lead]
            if self._budgets:
                violations = self._violations(larger)
            heappush(self._heap, (violations, cost, False, larger, at + 1))

    def _joining(self, chosen: Set, following: int) -> Iterator[int]:
        """Return the pods that may be the next one of a set.

        A set that passes over a cheaper twin has it after the others or not at all, so nobody after it may come before.
        """
        twin, required = self._twin, self._required
        last = len(self._pods) - 1
        for at in chosen:
            cheaper = twin[at]
            if cheaper is not None and following <= cheaper < last and cheaper not in chosen:
                last = cheaper
        fits_beside = self._fits_beside(chosen)
        for at in range(following, last + 1):
            if at in required or not fits_beside(at):
                continue
            cheaper = twin[at]
            if cheaper is None or cheaper > at or cheaper in chosen:
                yield at

    def _fits_beside(self, chosen: Set) -> Callable[[int], bool]:
        """Return a function that says whether a set with one pod more frees few enough cards."""
        cards, most = self._cards, self._most_cards
        if not cards:
            return lambda _: True
        sets = [cards[at] for at in chosen if at not in self._required and cards[at]]
        union = reduce(or_, sets, 0)

        def fits(at: int) -> bool:
            own = cards[at]
            return not own or (union | own).bit_count() <= most or _coverable([*sets, own], most)

        return fits

    def _violations(self, chosen: Set) -> int:
        return violations([self._pods[at] for at in chosen], self._allowed) if self._budgets else 0


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
