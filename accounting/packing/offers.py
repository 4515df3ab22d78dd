"""The expected workload as it concerns nodes with one class of cards.

Why it exists: how much of a card a shape takes, and whether it may use the card at all, depends on the card. It must
not know single nodes. Invariant: shapes that are alike on these cards are one entry, so classes on which all shapes
are alike share one table.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accounting.packing.mix import Mix
from accounting.packing.shape import UNITS, CardClass, Need, Shape, need_of
from accounting.packing.table import Arrival
from accounting.state import Int64Array


class Kind(NamedTuple):
    """What shapes that are alike on some cards ask for."""

    cards: int
    units: int
    cpu_milli: int


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Kinds in a full order, one entry of each array per kind."""

    kinds: tuple[Kind, ...]
    weights: Int64Array
    """(kind,) Pods counted."""
    foreign: int
    """Pods counted that may not use these cards."""
    cards: Int64Array
    units: Int64Array
    cpu_milli: Int64Array
    holds: Int64Array
    """(kind, units 0..100): how many pods of the kind a card with that much free takes; of a kind that needs several
    cards, whether it can be one of them."""

    @property
    def total(self) -> int:
        """All pods counted."""
        return int(self.weights.sum()) + self.foreign

    def arrivals(self, cpu_step_milli: int) -> list[Arrival]:
        """Return the offers for a value table."""
        merged: dict[tuple[int, int, int], int] = {}
        for kind, weight in zip(self.kinds, self.weights.tolist(), strict=True):
            key = -(-kind.cpu_milli // cpu_step_milli), kind.cards, kind.units
            merged[key] = merged.get(key, 0) + weight
        return [Arrival(*key, weight / self.total) for key, weight in sorted(merged.items())]

    def places(self, units: Int64Array, cpu_milli: Int64Array) -> Int64Array:
        """Return (kind, node): how many pods of each kind a node could still hold. `units`: (card, node)."""
        found: Int64Array = np.add.reduce(self.holds[:, units], axis=1)
        several = np.maximum(self.cards, 1)[:, np.newaxis]
        found //= several
        enough = cpu_milli // np.maximum(self.cpu_milli, 1)[:, np.newaxis]
        np.minimum(found, enough, out=found, where=(self.cpu_milli > 0)[:, np.newaxis])
        return found


def offers_for(mix: Mix, card: CardClass) -> Offers:
    """Return the mix as it concerns nodes with these cards."""
    merged: dict[Kind, int] = {}
    foreign = 0
    for shape, weight, _ in mix:
        need = need_of(shape, card)
        if need is None:
            foreign += weight
            continue
        kind = Kind(need.cards, need.units, shape.cpu_milli)
        merged[kind] = merged.get(kind, 0) + weight
    kinds = tuple(sorted(merged))
    return _offers(kinds, [merged[kind] for kind in kinds], foreign)


def unmerged_offers(shapes: list[Shape], card: CardClass) -> Offers:
    """Return one entry per shape, in this order; a shape that may not use these cards has no place on any."""
    needs = [need_of(shape, card) or Need(0, 0) for shape in shapes]
    kinds = tuple(Kind(*need, shape.cpu_milli) for need, shape in zip(needs, shapes, strict=True))
    return _offers(kinds, [1] * len(kinds), 0)


def _offers(kinds: tuple[Kind, ...], weights: list[int], foreign: int) -> Offers:
    free = np.arange(UNITS + 1)
    holds = np.zeros((len(kinds), UNITS + 1), np.int64)
    for position, kind in enumerate(kinds):
        if kind.cards:
            holds[position] = free // kind.units if kind.cards == 1 else free >= kind.units
    return Offers(
        kinds,
        np.array(weights, np.int64),
        foreign,
        np.array([kind.cards for kind in kinds], np.int64),
        np.array([kind.units for kind in kinds], np.int64),
        np.array([kind.cpu_milli for kind in kinds], np.int64),
        holds,
    )
