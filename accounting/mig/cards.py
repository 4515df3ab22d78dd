"""The cards of single nodes as plain numbers, for the search on nodes that have cards in MIG mode.

Why it exists: the search looks at a few cards very often, and one access to an array costs more than a whole step. It
must not place anything. Invariant: a card that is left out can take no row of the pod, whatever else is placed.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accounting.cards import accepted
from accounting.demand import Demand
from accounting.mig_profiles import EVERY_SLICE
from accounting.state import BoolArray, Snapshot, View


class What(NamedTuple):
    """The state of a card that decides which rows it may take: memory in MiB, cores in percent."""

    layout: int
    """The number of its layout; 0: it is not in MIG mode."""
    slices: int
    """Its free slices."""
    slots_left: int
    memory_left: int
    cores_left: int
    slots_used: int
    memory_used: int
    cores_used: int
    slots: int
    memory: int
    cores: int
    numa: int


class Card(NamedTuple):
    """One card."""

    position: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    load: int
    what: What


def mig_cards(view: View, demand: Demand, snapshot: Snapshot) -> BoolArray:
    """Return (device, column): the cards in MIG mode that the pod accepts."""
    cards: BoolArray = view.nodes.layout > 0
    mask = accepted(view, demand.selection, snapshot, mig=True)
    return cards if mask is None else cards & mask


def cards_of(view: View, demand: Demand, snapshot: Snapshot) -> list[tuple[Card, ...]]:
    """Return for each column the cards that may take a row, by position."""
    nodes, requested = view.nodes, view.requested
    shared = accepted(view, demand.selection, snapshot)
    # A card in MIG mode without profiles can take no row.
    usable = nodes.layout == 0 if shared is None else shared & (nodes.layout == 0)
    usable = (usable | mig_cards(view, demand, snapshot)) & requested.usable
    if demand.policies.card.mutex:
        usable &= requested.slots == 0
    columns, positions = np.nonzero(usable.T)
    arrays: list[npt.NDArray[np.generic]] = [nodes.index, view.load(demand.policies.weights)]
    arrays += [nodes.layout, EVERY_SLICE & ~requested.slices, view.free_slots, view.free_memory, view.free_cores]
    arrays += [requested.slots, requested.memory, requested.cores, nodes.slots, nodes.memory, nodes.cores, nodes.numa]
    numbers = (array[positions, columns].tolist() for array in arrays)
    found: list[list[Card]] = [[] for _ in range(view.columns)]
    for column, position, index, load, *what in zip(columns.tolist(), positions.tolist(), *numbers, strict=True):
        found[column].append(Card(position, index, load, What(*what)))
    return [tuple(cards) for cards in found]
