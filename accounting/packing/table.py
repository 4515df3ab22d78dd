"""What the free part of a node is expected to be used for: the value table.

Why it exists: a policy that looks ahead needs, after every placement, what the node can still take of the expected
pods. A table answers in one look-up. It must not know nodes or pods. Invariant: a table is a pure function of the
offers.

A node's state is (free CPU in steps, wholly free cards F, free units x of its freest partial card); its other partial
cards count by themselves. A_m(state) is the number of cards that m offers, drawn from the expected workload, are
expected to place there. A node takes an offer that raises A by what the offer brings, and one that lowers it with
probability `ETA` only (someone must take it):

    A_0 = 0,   A_(m+1) = A_m + sum over offers i of p_i x (d_i if d_i > 0 else ETA x d_i)
    d_i = what offer i brings + A_m(state after it) - A_m(state)

L_m(x) is the same for a single partial card without CPU, to which only a share `CARD_SHARE` of the offers comes.
The arithmetic is float64, element by element in a fixed order, and is rounded to integers at the end.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accounting.packing.shape import UNITS
from accounting.state import Int64Array

#: The value of one card.
ONE = 10**9
#: Offers looked ahead.
OFFERS = 45
ETA = 0.3
CARD_SHARE = 0.1
#: States of CPU beyond 0; a node with more free CPU counts as one with this many steps.
CPU_STEPS = 128
#: A node with more free cards counts as one with this many.
MOST_CARDS = 16

Float64Array = npt.NDArray[np.float64]


class Arrival(NamedTuple):
    """One kind of offer: CPU in steps, cards, units of each card, and its share of all offers."""

    cpu_steps: int
    cards: int
    units: int
    share: float


@dataclass(frozen=True, slots=True)
class ValueTable:
    """In units of 1/ONE card."""

    node: Int64Array
    """(CPU steps, free cards, units of the freest partial card): what is expected to be placed."""
    lone_waste: Int64Array
    """(units,): of a partial card beside the freest one, what is expected to stay free."""


def build_table(arrivals: list[Arrival], cards: int) -> ValueTable:
    """Build the table for nodes of at most `cards` cards. Takes about a second for 50 arrivals and 8 cards."""
    cards = min(cards, MOST_CARDS)
    node = np.zeros((CPU_STEPS + 1, cards + 1, UNITS))
    card = np.zeros(UNITS + 1)
    arrivals = sorted(each for each in arrivals if each.cards <= cards and each.cpu_steps <= CPU_STEPS)
    for _ in range(OFFERS):
        node, card = _with_one_more_offer(node, card, arrivals), _card_with_one_more_offer(card, arrivals)
    free = np.arange(UNITS + 1) * (ONE // UNITS)
    return ValueTable(np.rint(node * ONE).astype(np.int64), free - np.rint(card * ONE).astype(np.int64))


def _with_one_more_offer(node: Float64Array, card: Float64Array, arrivals: list[Arrival]) -> Float64Array:
    more = node.copy()
    for arrival in arrivals:
        cpu, cards, units, share = arrival
        before, after = node[cpu:], node[: node.shape[0] - cpu]
        changed = more[cpu:]
        if not cards:
            _accept(changed, after - before, share)
        elif cards == 1 and units < UNITS:
            _accept(changed[:, :, units:], units / UNITS + after[:, :, : UNITS - units] - before[:, :, units:], share)
            # The partial card is too small: a free card is opened, and the smaller remainder counts separately.
            partial = np.arange(units)
            larger, smaller = np.maximum(partial, UNITS - units), np.minimum(partial, UNITS - units)
            opened = units / UNITS + after[:, :-1, larger] + card[smaller] - before[:, 1:, :units]
            _accept(changed[:, 1:, :units], opened, share)
        else:
            gain = cards * units / UNITS + after[:, : node.shape[1] - cards] - before[:, cards:]
            _accept(changed[:, cards:], gain, share)
    return more


def _card_with_one_more_offer(card: Float64Array, arrivals: list[Arrival]) -> Float64Array:
    more = card.copy()
    for _, cards, units, share in arrivals:
        if cards == 1 and units < UNITS:
            _accept(more[units:], units / UNITS + card[: len(card) - units] - card[units:], CARD_SHARE * share)
    return more


def _accept(values: Float64Array, gain: Float64Array, share: float) -> None:
    """Add what an offer is expected to bring, in place."""
    np.maximum(gain, ETA * gain, out=gain)
    gain *= share
    values += gain
