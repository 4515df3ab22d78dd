"""What must hold for the rest of a pod to find places on one node's cards, told without trying any.

Why it exists: most ways that lead nowhere have too little room left, and sums say so at once. It must not place
anything. Invariant: where a placement exists, nothing here says no.
"""

from collections.abc import Sequence

from accounting.mig.assignment import Copy
from accounting.mig.budget import Amounts, cheapest
from accounting.mig.cards import Card, What
from accounting.mig.problem import Demand, Facts, Question


class Room:
    """One node's cards, asked about the containers from some place on."""

    def __init__(self, question: Question, cards: Sequence[Card], facts: Sequence[Facts]) -> None:
        self._question, self._cards, self._facts = question, cards, facts

    def enough(self, number: int, free: list[int], copy: Copy) -> bool:
        """Return whether the containers from the number-th on may have room. `free`: the free slices per card.

        An instance that is large enough for a request is large enough for a smaller one. So the rows that ask as much
        as a request or more must have room together as if each asked just that.
        """
        rest = self._question.rest[number]
        return all(self._room(at, demand, free, copy) >= demand.rows for at, demand in rest)

    def _room(self, number: int, demand: Demand, free: list[int], copy: Copy) -> int:
        room = 0
        for at, facts in enumerate(self._facts):
            offers, memory = facts.of_demands[number]
            if offers is None:
                room += _rows_of_shared(self._cards[at].what, memory, demand, copy.slots[at], copy.memory[at])
            else:
                room += offers.room(free[at])
            if room >= demand.rows:
                break
        return room

    def least_of_shared(self, number: int, free: list[int]) -> Amounts:
        """Return what the sidecars and apps from the number-th on add up to at least.

        As if each row asked the least of any of them.
        """
        asked = self._question.phases.shared[number:]
        cores = min(asking.request.cores for asking in asked)
        rows = []
        for at, facts in enumerate(self._facts):
            offers, memory = facts.of_rest[number]
            if offers is None:
                rows.append((len(asked), (memory, cores)))
            else:
                rows.append((offers.room(free[at]), offers.least(free[at])))
        return cheapest(rows, sum(asking.request.count for asking in asked))


def most_rows(question: Question, card: Card, facts: Facts) -> tuple[int, ...]:
    """Return how many rows of each of the pod's demands a card may take."""
    return tuple(
        _rows_of_shared(card.what, memory, demand, 0, 0) if offers is None else offers.room(facts.free)
        for demand, (offers, memory) in zip(question.demands, facts.of_demands, strict=True)
    )


def _rows_of_shared(card: What, memory: int, demand: Demand, slots: int, held: int) -> int:
    """Return how many rows a shared card of which this is taken may have: one per container."""
    room = min(demand.shared, card.slots_left - slots)
    if memory:
        room = min(room, (card.memory_left - held) // memory)
    return max(room, 0) + (demand.inits if memory <= card.memory_left else 0)
