"""The plainest search on one node with cards in MIG mode: it tries every choice in order of preference.

It exists to be compared with `accounting.mig.search`, which skips choices and works on plain numbers. It must not skip
any: only complete choices are summed and judged. Invariant: `card_fit` and `choice` say whether a card is open and
which cards are preferred, as on nodes without MIG mode.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards, memory_of
from accounting.cards.greedy import Preference, ranking
from accounting.cards.selection_mask import accepted
from accounting.demand import Demand
from accounting.holdings import peak_and_steady
from accounting.mig.budget import Most
from accounting.mig.cards import mig_cards
from accounting.mig.fit import Pick, Picks
from accounting.mig_profiles import EVERY_SLICE, MigLayout, options
from accounting.phases import ContainerRequest, Phases
from accounting.pod import Pod
from accounting.state.snapshot import Snapshot, View
from accounting.state.tables import BoolArray

#: Some questions would take it minutes.
_MOST_CHOICES = 10_000


class TooManyChoices(Exception):
    """The plainest search would take too long."""


class Reference:
    """One node and one pod."""

    def __init__(self, view: View, pod: Pod, snapshot: Snapshot) -> None:
        self._view, self._pod = view, pod
        self._mutex = pod.policies.card.mutex
        shared, mig = accepted(view, pod.selection, snapshot), view.nodes.layout > 0
        self._plain = ~mig if shared is None else shared & ~mig
        self._in_mig = mig_cards(view, Demand.of(pod), snapshot)
        self._layouts = [snapshot.layouts[number] for number in view.nodes.layout[:, 0].tolist()]
        self._free = [EVERY_SLICE & ~bits for bits in view.requested.slices[:, 0].tolist()]
        self._preference = Preference(pod.policies, numa_bind=pod.selection.numa_bind)
        self._phases = Phases.of(Demand.of(pod))
        self._picks: Picks = {}
        self._choices = 0

    def first(self, most: Most | None) -> Picks | None:
        """Return the first placement within the limits, or None. Raises `TooManyChoices`."""
        for _ in self._shared(0, [Assignment.of(self._view)]):
            if most is None or all(
                limit is None or own <= limit for own, limit in zip(self._total(), most, strict=True)
            ):
                return dict(self._picks)
        return None

    def _total(self) -> tuple[int, ...]:
        """Return the memory and the cores of the pod's total.peak."""
        kinds = [container.kind for container in self._pod.containers]
        uses = (
            (kinds[at], (("", (0, 0)), *(("", (pick.memory, pick.cores)) for pick in picks)))
            for at, picks in sorted(self._picks.items())
        )
        return peak_and_steady(uses)[0][""]

    def _shared(self, place: int, assignments: list[Assignment]) -> Iterator[None]:
        if place == len(self._phases.shared):
            yield from self._inits(0, assignments)
            return
        for assignment in self._placed(self._phases.shared[place], assignments[-1]):
            yield from self._shared(place + 1, [*assignments, assignment])

    def _inits(self, number: int, assignments: list[Assignment]) -> Iterator[None]:
        if number == len(self._phases.inits):
            yield
            return
        container, before = self._phases.inits[number]
        for _ in self._placed(container, assignments[before]):
            yield from self._inits(number + 1, assignments)

    def _placed(self, container: ContainerRequest, assignment: Assignment) -> Iterator[Assignment]:
        self._choices += 1
        if self._choices > _MOST_CHOICES:
            raise TooManyChoices
        plain = fitting_cards(self._view, assignment, container.request, self._plain, mutex=self._mutex)
        cards = (plain | open_cards(self._view, assignment, self._in_mig, mutex=self._mutex))[:, 0]
        order = ranking(cards, self._view, assignment, self._preference)
        groups = [order]
        if self._preference.numa_bind and container.request.count > 1:
            numa = self._view.nodes.numa[:, 0].tolist()
            groups = [
                [card for card in order if numa[card] == group] for group in dict.fromkeys(numa[at] for at in order)
            ]
        for group in groups:
            yield from self._cards(container, assignment.fork(), group, ())

    def _cards(
        self, container: ContainerRequest, assignment: Assignment, order: list[int], picks: tuple[Pick, ...]
    ) -> Iterator[Assignment]:
        if len(picks) == container.request.count:
            self._picks[container.position] = picks
            yield assignment
            return
        for at, card in enumerate(order):
            rest = order[at:] if self._layouts[card] else order[at + 1 :]
            for pick in self._offers(container, assignment, card, picks):
                bits = 0 if pick.instance is None else pick.instance.bits
                self._free[card] &= ~bits
                fork = assignment.fork()
                fork.book(np.array([card]), pick.memory, pick.cores)
                yield from self._cards(container, fork, rest, (*picks, pick))
                self._free[card] |= bits

    def _offers(
        self, container: ContainerRequest, assignment: Assignment, card: int, picks: tuple[Pick, ...]
    ) -> Iterator[Pick]:
        memory = int(np.max(memory_of(self._view, container.request, np.array([card]))))
        layout, cores = self._layouts[card], container.request.cores
        if not layout:
            yield Pick(card, memory, cores, None)
        elif open_cards(self._view, assignment, self._in_mig, mutex=False)[card, 0]:
            # Rows of one container are equal, so they are tried in one order only.
            every = [option.instance for option in options(layout, EVERY_SLICE, memory, cores)]
            last = picks[-1].instance if picks and picks[-1].device == card else None
            for option in options(layout, self._free[card], memory, cores):
                if last is None or every.index(option.instance) > every.index(last):
                    yield Pick(card, option.memory, option.cores, option.instance)


def open_cards(view: View, assignment: Assignment, accepted_cards: BoolArray, *, mutex: bool) -> BoolArray:
    """Return (device, column): the accepted cards in MIG mode that can take another row, if an instance has a place."""
    slots = 0 if assignment.slots is None else assignment.slots
    cards: BoolArray = view.requested.usable & accepted_cards & (view.free_slots > slots)
    return cards & (view.requested.slots + slots == 0) if mutex else cards


@lru_cache(maxsize=4_096)
def most_instances(layout: MigLayout, free: int, memory: int, cores: int) -> int:
    """Return how many instances with at least this memory and these cores have places on free slices together."""
    every = options(layout, free, memory, cores)
    # The lowest slice is used by one of them or by none, so that nothing is counted in two orders.
    found = 0
    for option in every:
        low = option.instance.bits & -option.instance.bits
        above = free & ~option.instance.bits & ~(low - 1)
        found = max(found, 1 + most_instances(layout, above, memory, cores))
    return found
