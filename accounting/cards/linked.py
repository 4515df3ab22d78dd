"""Choosing the cards with the best links: the policy "topology-aware".

Why it exists: the cards of one container communicate, so the set must be the best one, not each card alone; and a
container with one card should leave the best links to others. It must not know whether a card fits. Invariants: the
order is full; all sets are compared if there are at most MOST_SETS.

For several cards: the set with the smallest growth of the footprint, then the highest sum of scores over its pairs,
then the fewest NUMA nodes, then the first in the policy's order of cards. For one card: the smallest growth, then the
lowest sum of scores to the other cards that fit. Source: HAMi v2.10's topology-aware filter. If cards must be of one
NUMA node, HAMi considers only the last one; here all are considered.
"""

from itertools import combinations, islice

import numpy as np

from accounting.state import BoolArray, Int64Array, Rows

#: The most sets of one container's cards on one node that are compared; 9 of 18 cards give 48,620.
MOST_SETS = 50_000


def choose_linked(
    order: list[int], count: int, links: Int64Array, numa: Rows, growth: Int64Array, *, one_numa: bool
) -> list[int]:
    """Return `count` of the cards of one node, in the order given.

    `order`: positions of the cards that fit, the preferred one first. `links`: (device, device) scores. `numa`,
    `growth`: (device,). `one_numa`: all cards must be of one NUMA node, and there is one with enough.
    """
    cards = np.array(order, np.intp)
    if count == 1:
        others = links[np.ix_(cards, cards)].sum(axis=1)
        return [int(cards[np.lexsort([np.arange(len(cards)), others, growth[cards]])[0]])]
    groups = [cards[numa[cards] == group] for group in dict.fromkeys(numa[cards].tolist())] if one_numa else [cards]
    best = [_best_set(group, count, links, numa, growth) for group in groups if len(group) >= count]
    # In the order of each group's first card, so that the policy decides between equals.
    return min(best, key=lambda found: found[0])[1]


def _best_set(
    cards: Rows, count: int, links: Int64Array, numa: Rows, growth: Int64Array
) -> tuple[tuple[int, int, int], list[int]]:
    """Return the best set of these cards, with its growth, its links (negative) and its number of NUMA nodes."""
    sets = np.array(list(islice(combinations(range(len(cards)), count), MOST_SETS + 1)), np.intp)
    if len(sets) > MOST_SETS:
        sets = _grown(links[np.ix_(cards, cards)], count)
    _, ranks = np.unique(numa[cards], return_inverse=True)
    grows, linked, nodes = _sums(growth[cards], sets), _links_in(links[np.ix_(cards, cards)], sets), _nodes(ranks, sets)
    best = int(np.lexsort([np.arange(len(sets)), nodes, -linked, grows])[0])
    return (int(grows[best]), -int(linked[best]), int(nodes[best])), [int(card) for card in cards[sets[best]]]


def _sums(values: Int64Array, sets: Rows) -> Int64Array:
    sums: Int64Array = values[sets].sum(axis=1)
    return sums


def _links_in(links: Int64Array, sets: Rows) -> Int64Array:
    total = np.zeros(len(sets), np.int64)
    for a, b in combinations(range(sets.shape[1]), 2):
        total += links[sets[:, a], sets[:, b]]
    return total


def _nodes(ranks: Rows, sets: Rows) -> Rows:
    ordered = np.sort(ranks[sets], axis=1)
    nodes: Rows = np.add.reduce(np.diff(ordered, axis=1) != 0, axis=1, dtype=np.intp) + 1
    return nodes


def _grown(links: Int64Array, count: int) -> Rows:
    """Return one set per first card, extended by the card that adds the most links; used if there are too many sets."""
    sets = []
    for first in range(len(links)):
        taken = [first]
        free: BoolArray = np.ones(len(links), np.bool_)
        while len(taken) < count:
            free[taken] = False
            gain = np.where(free, links[taken].sum(axis=0), -1)
            taken.append(int(np.argmax(gain)))
        sets.append(sorted(taken))
    return np.array(sets, np.intp)
