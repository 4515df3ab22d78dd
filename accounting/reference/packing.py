"""The slow reference of the packing policies, in plain Python, one node and one card at a time.

Why it exists: tests compare the fast code with it. It must not use arrays or anything that the fast code computes.
Invariant: it follows the formulas in the docstrings of `table`, `fragmentation`, `reserve` and `fgd`.
"""

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

#: CPU (steps in tables, thousandths elsewhere), cards, units of each card, weight.
Offer = tuple[int, int, int, float]


class Node(NamedTuple):
    """Free units of each card, each card's load, free thousandths of a CPU."""

    units: list[int]
    load: list[int]
    cpu_milli: int


def value_table(
    offers: Sequence[Offer], steps: int, cards: int, ahead: int, eta: float, lone_share: float
) -> dict[tuple[int, int, int], float]:
    """Return what is expected to be placed, by (CPU steps, free cards, units of the freest partial card).

    The value of a lone card of u units stands at (-1, 0, u).
    """
    states = [(c, f, x) for c in range(steps + 1) for f in range(cards + 1) for x in range(100)]
    value = dict.fromkeys(states, 0.0) | {(-1, 0, u): 0.0 for u in range(101)}
    for _ in range(ahead):
        value = {state: _one_more(state, value, offers, eta, lone_share) for state in value}
    return value


def _one_more(
    state: tuple[int, int, int],
    value: dict[tuple[int, int, int], float],
    offers: Sequence[Offer],
    eta: float,
    lone_share: float,
) -> float:
    steps, free, partial = state
    total = value[state]
    for cpu, cards, units, share in offers:
        if steps < 0:
            if cards != 1 or units >= 100 or partial < units:  # noqa: PLR2004 - a card
                continue
            gain = units / 100 + value[-1, 0, partial - units] - value[state]
            total += lone_share * share * max(gain, eta * gain)
            continue
        if steps < cpu:
            continue
        after = steps - cpu
        if not cards:
            gain = value[after, free, partial] - value[state]
        elif cards == 1 and units <= partial:
            gain = units / 100 + value[after, free, partial - units] - value[state]
        elif cards == 1 and units < 100 and free:  # noqa: PLR2004 - a card
            rest = sorted((partial, 100 - units))
            gain = units / 100 + value[after, free - 1, rest[1]] + value[-1, 0, rest[0]] - value[state]
        elif cards <= free:
            gain = cards * units / 100 + value[after, free - cards, partial] - value[state]
        else:
            continue
        total += share * max(gain, eta * gain)
    return total


def places(node: Node, cpu_milli: int, cards: int, units: int) -> int:
    """Return how many pods of one kind a node could hold."""
    if not cards:
        return node.cpu_milli // cpu_milli if cpu_milli else 0
    if cards == 1:
        found = sum(free // units for free in node.units)
    else:
        found = sum(free >= units for free in node.units) // cards
    return min(found, node.cpu_milli // cpu_milli) if cpu_milli else found


def after(node: Node, cpu_milli: int, cards: int, units: int) -> Node:
    """Return the node with one more pod: the fullest cards that have enough, else the emptiest."""
    left, taken = list(node.units), set[int]()
    for _ in range(min(cards, len(left))):
        rest = [card for card in range(len(left)) if card not in taken]
        enough = [card for card in rest if left[card] >= units]
        if enough:
            card = max(enough, key=lambda card: (node.load[card], card))
        else:
            card = max(rest, key=lambda card: (left[card], -card))
        left[card] = max(left[card] - units, 0)
        taken.add(card)
    return Node(left, node.load, max(node.cpu_milli - cpu_milli, 0))


def unusable(node: Node, offers: Sequence[tuple[int, int, int, int]], foreign: int) -> int:
    """Return FGD's fragmentation: units that offers cannot use, summed over the pods counted."""
    free = sum(node.units)
    total = foreign * free
    for cpu_milli, cards, units, weight in offers:
        fitting = [each for each in node.units if each >= units]
        if not cards or len(fitting) < cards or node.cpu_milli < cpu_milli:
            total += weight * free
        else:
            total += weight * (free - sum(fitting))
    return total


def fgd_score(shrink_milli: float) -> int:
    """Return FGD's score of a placement that shrinks the fragmentation by that many thousandths of a GPU."""
    return int(100 / (1 + exp(-shrink_milli / 1000)))
