"""A second greedy choice: the largest container first, on the cards with the least memory left or with the most.

Why it exists: it finds most placements that the order of the spec misses, on thousands of nodes at once, while the
exact search decides them one by one. It must not know policies. Invariant: what it finds is a placement. Containers
without cores come last, so that all cores that the pod takes of a card are known by then.
"""

from dataclasses import dataclass

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards, memory_of, wanted_memory
from accounting.cards.greedy import Preference, choose, enough
from accounting.phases import Phases
from accounting.state import BoolArray, Int64Array, Rows, View


@dataclass(frozen=True, slots=True)
class Found:
    """The placements on a view's columns."""

    feasible: BoolArray
    chosen: dict[int, list[Rows]]
    """Place in `Phases.shared` -> card positions, one (column,) array per card; undefined in columns without."""


def place_largest_first(
    view: View,
    phases: Phases,
    accepted: BoolArray | None,
    preference: Preference,
    *,
    fullest: bool,
    mutex: bool,
) -> Found:
    """Look for a placement of all containers on every column. `fullest`: prefer less memory left, else more."""
    sign = 1 if fullest else -1
    found = np.ones(view.columns, np.bool_)
    chosen: dict[int, list[Rows]] = {}
    copies = [Assignment.of(view), *(Assignment.of(view) for _ in phases.inits)]
    for place in _order(view, phases):
        container = phases.shared[place]
        cards = fitting_cards(view, copies[0], container.request, accepted, mutex=mutex)
        found &= enough(cards, container.request.count, view, preference)
        columns = np.flatnonzero(found)
        if not len(columns):
            break
        chosen[place] = choose(
            cards, container.request.count, view, copies[0], preference, sign * _left(view, copies[0])
        )
        seen_by = [
            copies[0],
            *(copy for copy, (_, before) in zip(copies[1:], phases.inits, strict=True) if place < before),
        ]
        for positions in chosen[place]:
            cells = positions[columns] * view.columns + columns
            for copy in seen_by:
                copy.book(cells, memory_of(view, container.request, cells), container.request.cores)
    for fork, (container, _) in zip(copies[1:], phases.inits, strict=True):
        cards = fitting_cards(view, fork, container.request, accepted, mutex=mutex)
        found &= enough(cards, container.request.count, view, preference)
    return Found(found, chosen)


def _order(view: View, phases: Phases) -> list[int]:
    def key(place: int) -> tuple[bool, int, int, int]:
        request = phases.shared[place].request
        memory = wanted_memory(view, request)
        largest = int(np.max(memory, initial=0)) if isinstance(memory, np.ndarray) else memory
        return not request.cores, -largest, -request.cores, -request.count

    return sorted(range(len(phases.shared)), key=key)


def _left(view: View, assignment: Assignment) -> Int64Array:
    return view.free_memory if assignment.memory is None else view.free_memory - assignment.memory
