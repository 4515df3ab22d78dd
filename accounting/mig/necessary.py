"""Necessary conditions for placing the rest of a pod on one node's cards, without trying any place.

Why it exists: most dead ends have too little left, and sums show that at once. It must not place anything. Invariant:
where a placement exists, no condition fails.
"""

from collections.abc import Sequence

from accounting.mig.assignment import Copy
from accounting.mig.budget import Amounts, cheapest
from accounting.mig.cards import Card, What
from accounting.mig.problem import Facts, Need, Question


class NecessaryTest:
    """The conditions on one node's cards, for the containers from some position on."""

    def __init__(self, question: Question, cards: Sequence[Card], facts: Sequence[Facts]) -> None:
        self._question, self._cards, self._facts = question, cards, facts

    def enough(self, number: int, free: list[int], copy: Copy) -> bool:
        """Return whether the containers from the number-th on may still be placed. `free`: free slices per card.

        An instance that is large enough for a request is large enough for a smaller one. So all rows that ask for at
        least as much as some request must find places together, as if each asked for exactly that.
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
        """Return the least that the sidecars and apps from the number-th on add up to.

        It is computed as if each row asked for the least of any of them.
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
    """Return how many rows a card may take, for each of the pod's needs."""
    return tuple(
        _rows_of_shared(card.what, memory, need, 0, 0) if offers is None else offers.most_rows(facts.free)
        for need, (offers, memory) in zip(question.needs, facts.of_needs, strict=True)
    )


def _rows_of_shared(card: What, memory: int, need: Need, slots: int, held: int) -> int:
    """Return how many rows a card not in MIG mode may have beside what is taken of it: one per container."""
    most = min(need.shared, card.slots_left - slots)
    if memory:
        most = min(most, (card.memory_left - held) // memory)
    return max(most, 0) + (need.inits if memory <= card.memory_left else 0)
