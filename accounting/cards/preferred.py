"""Choosing the cards with the highest keys in each column.

Why it exists: the policy's choice and the choice between equals work the same way. It must not know what a key means.
Invariant: after all keys the highest position wins, so equal input gives equal cards.
"""

import numpy as np

from accounting.state import BoolArray, Int64Array, Rows

#: A device position fits in this many bits of a packed key.
_POSITION_BITS = 7
_POSITION_MASK = (1 << _POSITION_BITS) - 1
_LOWEST = np.iinfo(np.int64).min


def take_best(cards: BoolArray, count: int, keys: list[Int64Array]) -> list[Rows]:
    """Return `count` device positions per column, the preferred one first; undefined in columns with fewer cards.

    `cards`, `keys`: (device, column); the most important key first.
    """
    columns = np.arange(cards.shape[1])
    chosen = []
    for number in range(count):
        positions = _best(cards, keys)
        chosen.append(positions)
        if number + 1 < count:
            cards = cards.copy() if number == 0 else cards
            cards[positions, columns] = False
    return chosen


def _best(cards: BoolArray, keys: list[Int64Array]) -> Rows:
    """Return (column,): the card with the highest keys; ties go to the highest position."""
    for key in keys[:-1]:
        ranked = np.where(cards, key, _LOWEST)
        cards = cards & (ranked == np.maximum.reduce(ranked, axis=0))
    positions = np.arange(cards.shape[0], dtype=np.int64)[:, np.newaxis]
    packed = (keys[-1] << _POSITION_BITS) + positions
    best: Int64Array = np.maximum.reduce(np.where(cards, packed, _LOWEST), axis=0)
    return best & _POSITION_MASK
