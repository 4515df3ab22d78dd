"""Breaking ties for a container with several cards: cards that are close to each other come first.

Why it exists: if the policy prefers no card, cards of one NUMA node, and then of one group of links, serve a container
best. It must not know whether a card fits, nor the policy. Invariant: the set with the higher keys is always chosen;
closeness decides only between equal keys, and after it the highest position.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from accounting.cards.preferred import take_best
from accounting.state import BoolArray, Int32Array, Int64Array, Rows, Topology, View
from accounting.topology import link_groups

#: Larger than any number of a group of links.
_GROUPS = 1 << 8


def kept_together(
    chosen: list[Rows],
    cards: BoolArray,
    keys: list[Int64Array],
    view: View,
    topologies: Sequence[Topology],
    *,
    one_numa: bool,
) -> list[Rows]:
    """Return the chosen cards per column, or closer ones with equal keys.

    `cards`: (device, column), all cards that may be taken. `one_numa`: the chosen cards are and must be of one NUMA
    node.
    """
    result = chosen
    columns = np.arange(view.columns)
    open_columns = np.ones(view.columns, np.bool_)
    for groups in _closeness(view, topologies, one_numa=one_numa):
        first = groups[result[0], columns]
        apart = np.logical_or.reduce([groups[positions, columns] != first for positions in result[1:]])
        open_columns &= apart
        if not open_columns.any():
            break
        result, found = _closer(result, cards, keys, groups, np.flatnonzero(open_columns))
        open_columns[found] = False
    return result


def _closer(
    chosen: list[Rows], cards: BoolArray, keys: list[Int64Array], groups: Int32Array, columns: Rows
) -> tuple[list[Rows], Rows]:
    """Look in these columns for cards of one group with equal keys; returns the columns where there are some."""
    own_cards, own_groups, own_keys = cards[:, columns], groups[:, columns], [key[:, columns] for key in keys]
    at = np.arange(len(columns))
    best = [positions[columns] for positions in chosen]
    found = np.zeros(len(columns), np.bool_)
    for group in np.unique(own_groups[own_cards]).tolist():
        inside = own_cards & (own_groups == group)
        enough = np.add.reduce(inside, axis=0, dtype=np.int32) >= len(chosen)
        if not enough.any():
            continue
        others = take_best(inside, len(chosen), own_keys)
        same = enough
        for positions, other in zip(chosen, others, strict=True):
            for key in own_keys:
                same = same & (key[positions[columns], at] == key[other, at])
        better = same & (~found | _before(others, best))
        best = [np.where(better, *pair) for pair in zip(others, best, strict=True)]
        found |= same
    result = [positions.copy() for positions in chosen]
    for positions, better in zip(result, best, strict=True):
        positions[columns] = better
    return result, columns[found]


def _before(one: list[Rows], other: list[Rows]) -> BoolArray:
    """Return (column,): whether the first differing position is higher in `one`."""
    higher, equal = np.zeros(len(one[0]), np.bool_), np.ones(len(one[0]), np.bool_)
    for mine, theirs in zip(one, other, strict=True):
        higher |= equal & (mine > theirs)
        equal &= mine == theirs
    return higher


def _closeness(view: View, topologies: Sequence[Topology], *, one_numa: bool) -> Iterator[Int32Array]:
    """Yield (device, column) numbers of groups, the closest first: NUMA node with group of links, then each alone."""
    numa = view.nodes.numa
    numbers = view.nodes.topology
    links = None
    if len(topologies) > 1 and numbers.any():
        links = np.zeros(numa.shape, np.int32)
        for number in np.unique(numbers).tolist():
            groups = _groups_of(topologies[number])
            links[: len(groups), numbers == number] = np.array(groups, np.int32)[:, np.newaxis]
        yield numa * np.int32(_GROUPS) + links
    if not one_numa:
        yield numa
        if links is not None:
            yield links


@lru_cache(maxsize=1_024)
def _groups_of(topology: Topology) -> tuple[int, ...]:
    return link_groups(topology)
