"""The policy `fgd`: Fragmentation Gradient Descent (Weng et al., USENIX ATC'23).

Why it exists: it is the best published policy, and others are measured against it. It must not know names. Invariant:
integers only.

A node's fragmentation is the expected number of units that an offer of the workload cannot use: all free units if the
offer does not fit the node or asks for no card, else those on cards that are too small for it. A pod goes where it
grows least. The published results come from a score that is rounded down to 0..100, `int(100 x sigmoid(shrink in
milli-GPU / 1000))`, with the lowest node name winning the many ties: without the rounding, or with ties at random, one
to five points of allocation are lost. So the rounding is part of the policy; the caller breaks ties by name.
"""

import math

import numpy as np

from accounting.packing.offers import Offers
from accounting.packing.shape import UNITS, Need
from accounting.packing.state import NodeState, state_after
from accounting.state import Int64Array

#: shrink / 1000 at which int(100 x sigmoid) becomes 1, 2, ..., 99.
_STEPS = np.array([math.log(score / (100 - score)) for score in range(1, 100)])
_MILLI_PER_UNIT = 10


def fragmentation(state: NodeState, offers: Offers) -> Int64Array:
    """Return (node,): unusable units, summed over all counted pods."""
    free: Int64Array = np.add.reduce(state.units, axis=0)
    fitting = np.add.reduce(state.units >= offers.units[:, np.newaxis, np.newaxis], axis=1)
    asks = offers.cards > 0
    fits = asks[:, np.newaxis] & (fitting >= offers.cards[:, np.newaxis])
    fits &= state.cpu_milli >= offers.cpu_milli[:, np.newaxis]
    small = _units_on_small_cards(state, offers)
    lost = offers.weights @ np.where(fits, small, free)
    unusable: Int64Array = lost + offers.foreign * free
    return unusable


def _units_on_small_cards(state: NodeState, offers: Offers) -> Int64Array:
    units = np.arange(UNITS + 1)
    small = np.where(units < offers.units[:, np.newaxis], units, 0)
    found: Int64Array = np.add.reduce(small[:, state.units], axis=1)
    return found


def fgd_scores(state: NodeState, before: Int64Array, need: Need, cpu_milli: int, offers: Offers) -> Int64Array:
    """Return (node,): 0..100, higher is better. `before`: the nodes' fragmentation."""
    after = fragmentation(state_after(state, need, cpu_milli), offers)
    shrink = (before - after) * _MILLI_PER_UNIT
    steps = _STEPS * (1000 * max(offers.total, 1))
    # The middle is exact: no change is a score of 50.
    scores: Int64Array = np.searchsorted(steps, shrink, side="right")
    return scores
