"""What a place for a large pod costs: the term R of the policy `fragmentation`.

Why it exists: a small pod on the last idle node with many CPUs keeps out an 8-card pod that fits nowhere else, long
before the cluster is full. It must not know single nodes. Invariant: integers only, so the same state gives the same
prices.

For a large shape the expected demand is that of all shapes that ask for at least as much; it comes from the free units
of the cluster, which are expected to be filled with the mix. Its scarcity is that demand over the places that are left.
A lost place costs `place x scarcity^4` per card of the shape: little while there are twice as many places as expected
pods, and more than any other term when there are fewer.
"""

import numpy as np

from accounting.packing.shape import UNITS
from accounting.packing.workload import Workload
from accounting.state import Int64Array

_BITS = 10
_MOST = 2 << _BITS
_POWER = 4


def place_prices(workload: Workload, places: Int64Array, free_units: int) -> Int64Array:
    """Return (large shape,): the price of one place, in 1/ONE card. `places`: (large shape,) left in the cluster."""
    prices = []
    for demand, left, units in zip(workload.large_demand, places.tolist(), workload.large_units.tolist(), strict=True):
        scarcity = min((demand * free_units << _BITS) // (max(workload.demand, 1) * max(left, 1)), _MOST)
        prices.append((workload.weights.of_card("place") * units * scarcity**_POWER >> (_BITS * _POWER)) // UNITS)
    return np.array(prices, np.int64)
