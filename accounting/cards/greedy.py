"""Choosing cards among those that fit: the policy's order, NUMA groups, and the smallest growth for inits.

Why it exists: the order of preference must be the same wherever cards are chosen. It must not know whether a card fits.
Invariant: the order is full: after all keys the highest position wins, and positions are in the order of NUMA node,
index and UUID, so equal input gives equal cards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.cards.linked import choose_linked
from accounting.cards.preferred import take_best
from accounting.cards.together import kept_together
from accounting.policy import CardKey, Policies, Weights, card_keys
from accounting.state import BoolArray, Int32Array, Int64Array, Rows, Topology, View, weighted_load

#: Limit that keeps a sum over all cards of a node below 2^63.
_ABSENT = np.iinfo(np.int64).max >> 7


@dataclass(frozen=True, slots=True, init=False)
class Preference:
    """The keys by which cards are preferred, the weights of the load, and whether one NUMA node must give all cards."""

    keys: tuple[CardKey, ...]
    weights: Weights
    numa_bind: bool
    linked: bool
    policies: Policies

    def __init__(self, policies: Policies, *, numa_bind: bool) -> None:
        object.__setattr__(self, "policies", policies)
        object.__setattr__(self, "linked", policies.card.linked)
        object.__setattr__(self, "keys", card_keys(policies.card, numa_bind=numa_bind))
        object.__setattr__(self, "weights", policies.weights)
        object.__setattr__(self, "numa_bind", numa_bind)

    @property
    def high_numa_first(self) -> bool:
        """The NUMA node that is tried first under numa-bind."""
        return CardKey.LOW_NUMA not in self.keys

    def bound(self) -> "Preference":
        """Return the same with numa-bind, for nodes whose kubelet keeps a container's cards to one NUMA node."""
        return Preference(self.policies, numa_bind=True)

    def on(self, view: View) -> "Preference":
        """Return the policy that applies in a view's one column."""
        return self.bound() if view.any_single_numa else self


def bound_columns(view: View, preference: Preference) -> BoolArray | None:
    """Return (column,): where all cards of a container must be of one NUMA node; None if that is nowhere."""
    if preference.numa_bind:
        return np.ones(view.columns, np.bool_)
    return view.nodes.single_numa if view.any_single_numa else None


def enough(cards: BoolArray, count: int, view: View, preference: Preference) -> BoolArray:
    """Return (column,): whether `count` of the cards can be taken together."""
    if count == 1:
        some: BoolArray = np.logical_or.reduce(cards, axis=0)
        return some
    if count > view.devices:
        return np.zeros(view.columns, np.bool_)
    bound = bound_columns(view, preference)
    if bound is None:
        return _counts(cards) >= count
    found = np.zeros(view.columns, np.bool_)
    for group in _groups(cards, view.nodes.numa):
        found |= _counts(cards & (view.nodes.numa == group)) >= count
    return found if bound.all() else np.where(bound, found, _counts(cards) >= count)


def choose(
    cards: BoolArray,
    count: int,
    view: View,
    assignment: Assignment,
    preference: Preference,
    growth: Int64Array | None,
    topologies: Sequence[Topology] | None = None,
) -> list[Rows]:
    """Return `count` device positions per column, in order of preference; undefined in columns with fewer cards.

    `growth`: how much each card would add to the pod's footprint; it is compared before every other key. `topologies`:
    links between cards; with them NUMA nodes and links decide between equal keys (`together`), without them positions.
    """
    if view.any_single_numa and not preference.numa_bind:
        free = _choose(cards, count, view, assignment, preference, growth, topologies)
        bound = _choose(cards, count, view, assignment, preference.bound(), growth, topologies)
        return [np.where(view.nodes.single_numa, *pair) for pair in zip(bound, free, strict=True)]
    return _choose(cards, count, view, assignment, preference, growth, topologies)


def choose_by_links(
    cards: BoolArray,
    count: int,
    view: View,
    assignment: Assignment,
    preference: Preference,
    growth: Int64Array | None,
    topologies: Sequence[Topology],
) -> list[Rows]:
    """Return the same where links between cards count, for one column after another."""
    chosen = np.zeros((count, view.columns), np.intp)
    for column in np.flatnonzero(enough(cards, count, view, preference)).tolist():
        part = view if view.columns == 1 else view.take(np.array([column]))
        own = assignment if view.columns == 1 else assignment.column(column)
        held = preference.on(part)
        order = ranking(cards[:, column], part, own, held)
        links = np.zeros((view.devices, view.devices), np.int64)
        scores = topologies[int(view.nodes.topology[column])]
        links[: len(scores), : len(scores)] = scores or 0
        grows = np.zeros(view.devices, np.int64) if growth is None else growth[:, column]
        numa = view.nodes.numa[:, column].astype(np.intp)
        chosen[:, column] = choose_linked(order, count, links, numa, grows, one_numa=held.numa_bind)
    return list(chosen)


def _choose(
    cards: BoolArray,
    count: int,
    view: View,
    assignment: Assignment,
    preference: Preference,
    growth: Int64Array | None,
    topologies: Sequence[Topology] | None,
) -> list[Rows]:
    keys = [_key(key, view, assignment, preference.weights) for key in preference.keys]
    if growth is not None:
        keys.insert(0, -growth)
    if count == 1:
        return take_best(cards, count, keys)
    bound = cards
    if preference.numa_bind:
        bound = _in_one_group(cards, count, view.nodes.numa, growth, high_first=preference.high_numa_first)
    chosen = take_best(bound, count, keys)
    if topologies is None:
        return chosen
    return kept_together(chosen, cards, keys, view, topologies, one_numa=preference.numa_bind)


def ranking(cards: BoolArray, view: View, assignment: Assignment, preference: Preference) -> list[int]:
    """Return the cards of a view's one column, in order of preference. `cards`: (device,)."""
    keys = [_key(key, view, assignment, preference.weights)[:, 0] for key in preference.keys]
    order = np.lexsort([np.arange(len(cards)), *reversed(keys)])[::-1]
    return [int(card) for card in order if cards[card]]


def _key(key: CardKey, view: View, assignment: Assignment, weights: Weights) -> Int64Array:
    if key in (CardKey.HIGH_LOAD, CardKey.LOW_LOAD):
        load = _load(view, assignment, weights)
        return load if key is CardKey.HIGH_LOAD else -load
    if key is CardKey.FEW_SLOTS:
        slots = view.requested.slots if assignment.slots is None else view.requested.slots + assignment.slots
        return -slots.astype(np.int64)
    array: Int32Array = view.nodes.index if key is CardKey.HIGH_INDEX else view.nodes.numa
    return -array.astype(np.int64) if key is CardKey.LOW_NUMA else array.astype(np.int64)


def _load(view: View, assignment: Assignment, weights: Weights) -> Int64Array:
    """Return every card's load on this copy: the snapshot's, recomputed where the pod itself has booked.

    Each cell is recomputed once for every booking, however many containers come after it.
    """
    if assignment.slots is None or assignment.memory is None or assignment.cores is None:
        return view.load(weights)
    load = view.load(weights).copy() if assignment.load is None else assignment.load
    assignment.load, new = load, assignment.cells
    assignment.cells = []
    held, size = view.requested, view.nodes
    for cells in new:
        load.reshape(-1)[cells] = weighted_load(
            weights,
            (
                held.slots.reshape(-1)[cells] + assignment.slots.reshape(-1)[cells],
                held.memory.reshape(-1)[cells] + assignment.memory.reshape(-1)[cells],
                held.cores.reshape(-1)[cells] + assignment.cores.reshape(-1)[cells],
            ),
            (size.slots.reshape(-1)[cells], size.memory.reshape(-1)[cells], size.cores.reshape(-1)[cells]),
        )
    return load


def _in_one_group(
    cards: BoolArray, count: int, numa: Int32Array, growth: Int64Array | None, *, high_first: bool
) -> BoolArray:
    """Keep in each column only the cards of one NUMA node that has enough of them.

    That is the NUMA node that grows the footprint least; without a footprint, or on a tie, the first in the policy's
    order.
    """
    group_of = np.full(cards.shape[1], -1, np.int32)
    least = np.full(cards.shape[1], np.iinfo(np.int64).max)
    groups = _groups(cards, numa)
    for group in reversed(groups) if high_first else groups:
        inside = cards & (numa == group)
        cost = np.zeros(cards.shape[1], np.int64) if growth is None else _smallest_sum(inside, growth, count)
        better = (_counts(inside) >= count) & (cost < least)
        group_of[better] = group
        least[better] = cost[better]
    inside_one: BoolArray = cards & (numa == group_of)
    return inside_one


def _smallest_sum(cards: BoolArray, growth: Int64Array, count: int) -> Int64Array:
    """Return (column,): the sum of the `count` smallest growths among the cards."""
    ordered = np.sort(np.where(cards, growth, _ABSENT), axis=0)
    sums: Int64Array = np.add.reduce(ordered[:count], axis=0)
    return sums


def _groups(cards: BoolArray, numa: Int32Array) -> list[int]:
    return [int(group) for group in np.unique(numa[cards])]


def _counts(cards: BoolArray) -> Int32Array:
    counts: Int32Array = np.add.reduce(cards, axis=0, dtype=np.int32)
    return counts
