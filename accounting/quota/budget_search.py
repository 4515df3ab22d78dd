"""The search for cards of one node that keep a pod's memory within a budget.

Why it exists: where neither the choice by policy nor the smallest cards keep the budget, only trying the other choices
tells whether any does. It must not know quotas. Invariants: choices are tried in the order of preference, container by
container, so the first that is found is the one that is preferred; it ends after a given number of steps.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from accounting.cards import Assignment, Preference, fitting_cards, memory_of, ranking, wanted_memory
from accounting.demand import Demand
from accounting.pod import ContainerKind, DeviceRequest
from accounting.state import BoolArray, Rows, View

#: Container position -> device positions.
Cards = dict[int, tuple[int, ...]]


class Steps:
    """How many choices may still be tried."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.exhausted = False
        """Whether a choice was left out, so that finding none says nothing."""

    def take(self) -> bool:
        """Count one; returns whether it may be tried."""
        self.exhausted |= self._left <= 0
        self._left -= 1
        return not self.exhausted


class Search:
    """One pod on one node, a view of one column."""

    def __init__(
        self,
        view: View,
        demand: Demand,
        accepted_cards: BoolArray | None,
        preference: Preference,
        mib: int,
        steps: Steps,
    ) -> None:
        self.view, self.mib = view, mib
        self.forks: dict[int, tuple[Assignment, int]] = {}
        """Init's position -> the sidecars before it on the way that was found, and the memory that is left for it."""
        self._accepted, self._mutex = accepted_cards, demand.policies.card.mutex
        self._preference, self.steps = preference, steps
        self.requests: dict[int, DeviceRequest] = {
            at: container.request for at, container in enumerate(demand.containers) if container.request is not None
        }
        self.inits = {at for at in self.requests if demand.containers[at].kind is ContainerKind.INIT}
        self._order = list(self.requests)
        self.shared = Assignment.of(view)
        """All sidecars and apps, on the way that was found."""
        least = [self._least(self.shared, self.requests[at]) for at in self._order]
        self._rest = [
            sum(least[later] for later in range(place, len(least)) if self._order[later] not in self.inits)
            for place in range(len(least) + 1)
        ]

    def run(self) -> Cards | None:
        """Return the cards of sidecars and apps such that every init finds some as well; None if none were found."""
        return self._from(0, self.shared, 0)

    def sets(self, position: int, assignment: Assignment, most: int) -> Iterator[tuple[int, ...]]:
        """Yield a container's sets of cards that fit and take at most `most` MiB, in the order of preference."""
        request = self.requests[position]
        cards = self._fitting(assignment, request)
        amounts = self.amounts(request)
        # A set takes a card beside the smallest ones at best, so a card that leaves no room for those is useless.
        cards &= amounts + self._others(cards, amounts, request.count) <= most
        ordered = ranking(cards, self.view, assignment, self._preference)
        numa = self.view.nodes.numa[:, 0]
        for chosen in combinations(ordered, request.count):
            if not self.steps.take():
                return
            if sum(int(amounts[card]) for card in chosen) > most:
                continue
            if not self._preference.numa_bind or len({int(numa[card]) for card in chosen}) == 1:
                yield chosen

    def amounts(self, request: DeviceRequest) -> Rows:
        """Return (device,) the MiB that a request takes on each card."""
        wanted = np.broadcast_to(wanted_memory(self.view, request), (self.view.devices, 1))
        return wanted[:, 0].astype(np.int64)

    def _from(self, place: int, assignment: Assignment, spent: int) -> Cards | None:
        if place == len(self._order):
            self.shared = assignment
            return {}
        position = self._order[place]
        left = self.mib - spent
        if position in self.inits:
            self.forks[position] = assignment, left
            has_some = next(self.sets(position, assignment, left), None) is not None
            return self._from(place + 1, assignment, spent) if has_some else None
        for chosen in self.sets(position, assignment, left - self._rest[place + 1]):
            booked, memory = self._booked(assignment, position, chosen)
            found = self._from(place + 1, booked, spent + memory)
            if found is not None:
                return {position: chosen, **found}
        return None

    def _booked(self, assignment: Assignment, position: int, chosen: tuple[int, ...]) -> tuple[Assignment, int]:
        request, booked, cells = self.requests[position], assignment.fork(), np.array(chosen)
        memory = memory_of(self.view, request, cells)
        booked.book(cells, memory, request.cores)
        return booked, int(np.sum(np.broadcast_to(memory, len(chosen))))

    def _fitting(self, assignment: Assignment, request: DeviceRequest) -> BoolArray:
        return fitting_cards(self.view, assignment, request, self._accepted, mutex=self._mutex)[:, 0]

    def _least(self, assignment: Assignment, request: DeviceRequest) -> int:
        amounts = self.amounts(request)[self._fitting(assignment, request)]
        return int(np.sum(np.sort(amounts)[: request.count]))

    def _others(self, cards: BoolArray, amounts: Rows, count: int) -> int:
        """Return the least that the other cards of a set take."""
        return int(np.sum(np.sort(amounts[cards])[: count - 1]))


def choose_inits(search: Search, found: Cards) -> dict[int, list[Rows]]:
    """Return all cards of a placement: each init gets those that keep the budget and add least to the footprint."""
    chosen = dict(found)
    search.steps = Steps(_SETS_OF_AN_INIT)
    merged = [_amounts(search.shared, dimension) for dimension in _DIMENSIONS]
    for position in sorted(search.inits):
        assignment, left = search.forks[position]
        request = search.requests[position]
        own = [_amounts(assignment, dimension) for dimension in _DIMENSIONS]
        adds = (search.amounts(request), np.full(search.view.devices, request.cores), np.ones(search.view.devices, int))
        after = [have + more for have, more in zip(own, adds, strict=True)]
        growth = [np.maximum(new - old, 0) for new, old in zip(after, merged, strict=True)]
        best = min(
            search.sets(position, assignment, left), key=lambda cards: [int(sum(g[list(cards)])) for g in growth]
        )
        chosen[position] = best
        for dimension, new in enumerate(after):
            merged[dimension] = np.maximum(merged[dimension], own[dimension])
            merged[dimension][list(best)] = np.maximum(merged[dimension], new)[list(best)]
    return {position: [np.array([card]) for card in cards] for position, cards in chosen.items()}


#: Above the number of sets of 8 of 16 cards.
_SETS_OF_AN_INIT = 20_000
_DIMENSIONS = ("memory", "cores", "slots")


def _amounts(assignment: Assignment, dimension: str) -> Rows:
    array = getattr(assignment, dimension)
    return np.zeros(assignment.shape[0], np.int64) if array is None else array[:, 0].astype(np.int64)
