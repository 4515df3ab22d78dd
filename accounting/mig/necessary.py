"""What must hold for the rest of a pod to find places on one node's cards, told without trying any.

Why it exists: most ways that lead nowhere have too little left, and sums say so at once. It must not place
anything. Invariant: where a placement exists, nothing here says no.
"""

from collections.abc import Sequence

from accounting.mig.assignment import Copy
from accounting.mig.budget import Amounts, cheapest
from accounting.mig.cards import Card, What
from accounting.mig.problem import Facts, Need, Question


class NecessaryTest:
    """One node's cards, asked about the containers from some place on."""

    def __init__(self, question: Question, cards: Sequence[Card], facts: Sequence[Facts]) -> None:
        self._question, self._cards, self._facts = question, cards, facts

    def enough(self, number: int, free: list[int], copy: Copy) -> bool:
        """Return whether the containers from the number-th on may still be placed. `free`: the free slices per card.

        An instance that is large enough for a request is large enough for a smaller one. So the rows that ask as much
        as a request or more must find places together as if each asked just that.
        """
        rest = self._question.rest[number]
        return all(self._most_rows(at, need, free, copy) >= need.rows for at, need in rest)

    def _most_rows(self, number: int, need: Need, free: list[int], copy: Copy) -> int:
        most = 0
        for at, facts in enumerate(self._facts):
            offers, memory = facts.of_needs[number]
            if offers is None:
                most += _rows_of_shared(self._cards[at].what, memory, need, copy.slots[at], copy.memory[at])
            else:
                most += offers.most_rows(free[at])
            if most >= need.rows:
                break
        return most

    def least_of_shared(self, number: int, free: list[int]) -> Amounts:
        """Return what the sidecars and apps from the number-th on add up to at least.

        As if each row asked the least of any of them.
        """
        asked = self._question.phases.shared[number:]
        cores = min(container.request.cores for container in asked)
        rows = []
        for at, facts in enumerate(self._facts):
            offers, memory = facts.of_rest[number]
            if offers is None:
                rows.append((len(asked), (memory, cores)))
            else:
                rows.append((offers.most_rows(free[at]), offers.least(free[at])))
        return cheapest(rows, sum(container.request.count for container in asked))


def most_rows(question: Question, card: Card, facts: Facts) -> tuple[int, ...]:
    """Return how many rows of each of the pod's needs a card may take."""
    return tuple(
        _rows_of_shared(card.what, memory, need, 0, 0) if offers is None else offers.most_rows(facts.free)
        for need, (offers, memory) in zip(question.needs, facts.of_needs, strict=True)
    )


def _rows_of_shared(card: What, memory: int, need: Need, slots: int, held: int) -> int:
    """Return how many rows a shared card of which this is taken may have: one per container."""
    most = min(need.shared, card.slots_left - slots)
    if memory:
        most = min(most, (card.memory_left - held) // memory)
    return max(most, 0) + (need.inits if memory <= card.memory_left else 0)
