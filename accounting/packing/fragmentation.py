"""The policy `fragmentation`: each pod goes where it costs the expected workload the least.

Why it exists: filling the fullest node leaves useless remainders; this policy weighs what the remainder is worth. It
must not know pods or names. Invariant: a node's value depends only on that node, the shape and the workload, except for
the prices of large places, which depend on all nodes and are added last.

The value of placing a shape on a node, in 1/ONE card:

      waste before - waste after      V: free units less what the value table expects to be placed there
    + saturation before - after       S: what each kind could not fill of the free units, by its share of the demand
    - price of the card x units       P: keep popular models for the pods that need them
    - a little x free units after     B: prefer a fuller node
    - a little if the node was idle   I: avoid opening an idle node
    - price of a lost place           R: see `reserve`
"""

from dataclasses import dataclass

import numpy as np

from accounting.packing.shape import UNITS, Need
from accounting.packing.state import NodeState, state_after
from accounting.packing.table import CPU_STEPS, ONE
from accounting.packing.workload import Group, Workload
from accounting.state import Int64Array


@dataclass(slots=True)
class Measures:
    """Of some nodes of one group, before or after a placement."""

    cost: Int64Array
    """(node,) Waste and saturation together, in 1/ONE card."""
    places: Int64Array
    """(large shape, node)."""
    free: Int64Array
    """(node,) Free units."""


def measure(state: NodeState, group: Group, workload: Workload) -> Measures:
    """Return what the nodes' free part is worth."""
    free: Int64Array = np.add.reduce(state.units, axis=0)
    whole = np.count_nonzero(state.units == UNITS, axis=0)
    cost = _saturation(state, group, free)
    if workload.weights.waste:
        cost += _waste(state, group, workload, whole) * workload.weights.waste // 1000
    return Measures(cost, group.large.places(state.units, state.cpu_milli), free)


def _waste(state: NodeState, group: Group, workload: Workload, whole: Int64Array) -> Int64Array:
    """Return free units less the expected use of them."""
    table = group.table
    partial = np.where(state.units < UNITS, state.units, 0)
    freest: Int64Array = np.maximum.reduce(partial, axis=0)
    steps = np.minimum(state.cpu_milli // workload.cpu_step_milli, CPU_STEPS)
    cards = np.minimum(whole, table.node.shape[1] - 1)
    waste: Int64Array = (whole * UNITS + freest) * (ONE // UNITS) - table.node[steps, cards, freest]
    others: Int64Array = np.add.reduce(table.lone_waste[partial], axis=0) - table.lone_waste[freest]
    waste += others
    return waste


def _saturation(state: NodeState, group: Group, free: Int64Array) -> Int64Array:
    offers = group.offers
    filled = group.saturation_of_place @ offers.places(state.units, state.cpu_milli)
    unfilled: Int64Array = group.saturation_total * free - filled
    return unfilled


def value(
    state: NodeState, before: Measures, need: Need, cpu_milli: int, group: Group, workload: Workload
) -> tuple[Int64Array, Int64Array]:
    """Return (node,): the value of one more pod without the prices of places; (large shape, node): places lost."""
    after = measure(state_after(state, need, cpu_milli), group, workload)
    weights = workload.weights
    values = before.cost - after.cost - group.price * need.cards * need.units
    values -= weights.of_card("least_free") // UNITS * after.free
    if need.cards:
        values -= weights.of_card("idle") * state.idle
    return values, before.places - after.places
