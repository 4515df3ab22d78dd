"""The expected workload: which shapes of pods come, and how often.

Why it exists: the best guess at future pods is the pods that came before, or a list that the operator gives. It must
not know when pods came or their names. Invariant: the same pods give the same mix, in any order.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from accounting.packing.shape import UNITS, Shape

#: Shares that the kept shapes cover, in percent. FGD's published runs keep 95 % of pods; large pods are rare by number
#: and much by demand, so they are kept until nearly all demand is covered.
_PODS_PERCENT, _DEMAND_PERCENT = 95, 99
#: A mix of more shapes costs more than it tells.
_MOST_SHAPES = 192


class Offer(NamedTuple):
    """A shape and how many pods of it were counted."""

    shape: Shape
    weight: int
    typical: bool
    """It is among those that cover 95 % of the pods; FGD knows no others."""


Mix = tuple[Offer, ...]


def expected(shapes: Iterable[Shape], card_memory: int) -> Mix:
    """Return the most frequent shapes that together cover 95 % of the pods, then the largest, to 99 % of the demand.

    `card_memory`: MiB of a usual card, by which requests in MiB are compared with others.
    """
    counts = Counter(shapes)
    by_number = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    demand = {shape: rough_demand(shape, card_memory) for shape in counts}
    by_demand = sorted(counts.items(), key=lambda item: (-item[1] * demand[item[0]], item[0]))
    kept: dict[Shape, int] = {}
    _cover(kept, by_number, dict.fromkeys(counts, 1), _PODS_PERCENT)
    typical = set(kept)
    _cover(kept, by_demand, demand, _DEMAND_PERCENT)
    return tuple(Offer(shape, kept[shape], shape in typical) for shape in sorted(kept))


def _cover(kept: dict[Shape, int], ordered: list[tuple[Shape, int]], value: dict[Shape, int], percent: int) -> None:
    """Keep shapes in this order until they cover their share of the sum of weight x value."""
    total = sum(weight * value[shape] for shape, weight in ordered)
    covered = sum(weight * value[shape] for shape, weight in kept.items())
    for shape, weight in ordered:
        if covered * UNITS >= total * percent or len(kept) >= _MOST_SHAPES:
            return
        if shape not in kept:
            kept[shape] = weight
            covered += weight * value[shape]


def rough_demand(shape: Shape, card_memory: int) -> int:
    """Return a shape's demand in hundredths of a card of that many MiB."""
    memory = shape.percentage + shape.memory * UNITS // max(card_memory, 1)
    return shape.cards * max(1, min(max(memory, shape.cores), UNITS))
