"""The sets of a pod's containers that a card can take together.

Why it exists: the exact search looks at a few kinds of cards instead of thousands of cells. A card's kind tells, for
every set of sidecars and apps, whether they fit on it together, and for every init, whether it fits beside a set of the
sidecars before it; cards of one kind are interchangeable. It must not decide about a pod. Invariant: every answer comes
from `card_fit.fitting_cards`, with the same rows put on every card at once.

A set is an integer whose bit j stands for the j-th container of `Phases.shared`.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards, of_one_size, wanted_memory
from accounting.holdings import EXCLUSIVE_CORES
from accounting.phases import Phases
from accounting.pod import DeviceRequest
from accounting.state import BoolArray, Int64Array, Rows, View

#: Up to this many sets, every card is asked about each; with more, cards are sorted by their numbers first.
_FEW_SETS = 16
#: With more sets than this, cards with different numbers are different kinds; asking about every set would cost more.
_MOST_SETS = 256
#: The number of answers that are combined before kinds are numbered again.
_WORD_BITS = 16


class ContainerSets:
    """Answers about sets of containers on every card of a view; remembered, since sets build on smaller ones."""

    def __init__(self, view: View, phases: Phases, accepted: BoolArray | None, *, mutex: bool) -> None:
        self.view = view
        self.phases = phases
        self._accepted = accepted
        self._mutex = mutex
        self._together: dict[int, BoolArray] = {}
        self._beside: dict[tuple[int, int], BoolArray] = {}

    @property
    def usable(self) -> BoolArray:
        """(device, column): the cards that can take any container of this pod."""
        usable = self.view.requested.usable
        return usable if self._accepted is None else usable & self._accepted

    def together(self, rows: int) -> BoolArray:
        """Return (device, column): the cards that can take this set of sidecars and apps."""
        known = self._together.get(rows)
        if known is None:
            last = rows.bit_length() - 1
            rest = rows ^ 1 << last
            known = self._fits(rest, self.phases.shared[last].request)
            if rest:
                known = known & self.together(rest)
            self._together[rows] = known
        return known

    def beside(self, init: int, rows: int) -> BoolArray:
        """Return (device, column): the cards that can take an init beside this set."""
        container, before = self.phases.inits[init]
        rows &= (1 << before) - 1
        known = self._beside.get((init, rows))
        if known is None:
            known = self._beside[init, rows] = self._fits(rows, container.request)
        return known

    def of_cells(self, cells: Rows) -> "ContainerSets":
        """Return the same for some cards (flat numbers), as one row of columns."""
        accepted = None if self._accepted is None else self._accepted.reshape(-1)[cells][np.newaxis]
        return ContainerSets(self.view.cells(cells), self.phases, accepted, mutex=self._mutex)

    def _fits(self, rows: int, request: DeviceRequest) -> BoolArray:
        return fitting_cards(self.view, self._holding(rows), request, self._accepted, mutex=self._mutex)

    def _holding(self, rows: int) -> Assignment:
        """Return what every card would hold of the pod with this set on it."""
        assignment = Assignment.of(self.view)
        asked = [each.request for place, each in enumerate(self.phases.shared) if rows >> place & 1]
        if not asked:
            return assignment
        one = (1, 1)
        assignment.slots = np.full(one, len(asked), np.int32)
        assignment.memory = np.full(one, 0, np.int64) + sum(wanted_memory(self.view, request) for request in asked)
        assignment.cores = np.full(one, sum(request.cores for request in asked), np.int64)
        if any(request.cores >= EXCLUSIVE_CORES for request in asked):
            assignment.exclusive = np.ones(one, np.bool_)
        return assignment


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of cards in a view."""

    of: Int64Array
    """(device, column): the number of each card's kind."""
    cells: Rows
    """(kind,): the flat number of one card of each kind."""


def kinds_of(container_sets: ContainerSets) -> Kinds:
    """Number the cards' kinds. The numbers depend only on the cards' properties."""
    sets = (1 << len(container_sets.phases.shared)) + sum(1 << before for _, before in container_sets.phases.inits)
    if sets <= _FEW_SETS:
        return _by_sets(container_sets)
    rough = _numbered(_numbers(container_sets))
    if sets > _MOST_SETS:
        return rough
    kinds = _by_sets(container_sets.of_cells(rough.cells))
    return Kinds(kinds.of[0][rough.of], rough.cells[kinds.cells])


def _by_sets(container_sets: ContainerSets) -> Kinds:
    """Cards are of one kind if every set has the same answer on them."""
    shared, inits = container_sets.phases.shared, container_sets.phases.inits
    answers = chain(
        (container_sets.together(rows) for rows in range(1, 1 << len(shared))),
        (container_sets.beside(init, rows) for init, (_, before) in enumerate(inits) for rows in range(1 << before)),
    )
    words: list[Int64Array] = []
    for place, answer in enumerate(answers):
        bit = place % _WORD_BITS
        if not bit:
            words.append(np.zeros(answer.shape, np.int64))
        words[-1] += answer.astype(np.int64) << bit
    return _numbered(words)


def _numbers(container_sets: ContainerSets) -> list[Int64Array]:
    """Return the numbers of each card that decide every answer."""
    view, phases = container_sets.view, container_sets.phases
    asked = [each.request for each in phases.shared] + [each.request for each, _ in phases.inits]
    keys = [
        container_sets.usable.astype(np.int64),
        np.clip(view.free_slots, 0, len(asked)).astype(np.int64),
        view.free_memory,
        view.free_cores,
        (view.nodes.cores == 0) * np.int64(2) + (view.requested.slots == 0),
    ]
    if any(request.memory_percentage for request in asked):
        keys.append(view.nodes.memory)
    of_one = [request for request in dict.fromkeys(asked) if request.one_size]
    keys += [of_one_size(view, Assignment.of(view), request).astype(np.int64) for request in of_one]
    # Cards that cannot be used at all are one kind.
    return [np.where(container_sets.usable, key, 0) for key in keys]


def _numbered(keys: list[Int64Array]) -> Kinds:
    """Number the combinations of keys: equal ones get equal small numbers, in the order of the keys' values."""
    numbers = np.zeros(keys[0].shape, np.int64)
    for key in keys:
        dense, count = _dense(key)
        numbers = _dense(numbers * count + dense)[0]
    flat = numbers.reshape(-1)
    cells = np.zeros(int(flat.max(initial=-1)) + 1, np.intp)
    # Written in reverse, so that the first card of each kind represents it.
    cells[flat[::-1]] = np.arange(len(flat) - 1, -1, -1)
    return Kinds(numbers, cells)


def _dense(values: Int64Array) -> tuple[Int64Array, int]:
    """Return each value's rank among the distinct ones, and how many there are."""
    flat = values.reshape(-1)
    if not len(flat):
        return values, 1
    low, high = int(flat.min()), int(flat.max())
    if high - low < 1 << 20:
        there = np.zeros(high - low + 1, np.int64)
        there[flat - low] = 1
        ranks = np.cumsum(there) - 1
        return ranks[values - low], int(ranks[-1]) + 1
    distinct, inverse = np.unique(flat, return_inverse=True)
    return inverse.reshape(values.shape).astype(np.int64), len(distinct)
