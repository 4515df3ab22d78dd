"""The free part of nodes as the packing policies see it, and what a placement leaves of it.

Why it exists: memory, cores and slots become one number per card, so that a card's remainder can be looked up. It must
not judge whether a pod fits. Invariants: an unused card has 100 units, a used one at most 99, a closed one 0; the cards
taken are those that the binpack card policy takes.
"""

from dataclasses import dataclass

import numpy as np

from accounting.packing.shape import UNITS, Need
from accounting.state import BoolArray, Int64Array, Rows, Snapshot

#: More free CPU than any node has: for nodes that do not say.
PLENTY_MILLI = 2**40


@dataclass(slots=True)
class NodeState:
    """Some nodes."""

    units: Int64Array
    """(card, node) Free hundredths."""
    load: Int64Array
    """(card, node) See `device_table`."""
    cpu_milli: Int64Array
    """(node,) Free."""
    idle: BoolArray
    """(node,) Nobody holds any card."""

    @classmethod
    def empty(cls, devices: int, nodes: int) -> "NodeState":
        """Return the state of nodes without cards."""
        return cls(
            np.zeros((devices, nodes), np.int64),
            np.zeros((devices, nodes), np.int64),
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.bool_),
        )

    def take(self, rows: Rows) -> "NodeState":
        """Return the state of these nodes."""
        return NodeState(
            self.units.take(rows, axis=1), self.load.take(rows, axis=1), self.cpu_milli[rows], self.idle[rows]
        )

    def put(self, rows: Rows, state: "NodeState") -> None:
        """Replace the state of these nodes."""
        self.units[:, rows], self.load[:, rows] = state.units, state.load
        self.cpu_milli[rows], self.idle[rows] = state.cpu_milli, state.idle


def read_state(snapshot: Snapshot, rows: Rows) -> NodeState:
    """Return the state of these rows: per card the smallest of its free shares, rounded down."""
    nodes, requested = snapshot.nodes, snapshot.requested
    held_slots = requested.slots.take(rows, axis=1)
    units = np.full(held_slots.shape, UNITS, np.int64)
    for whole, held in (
        (nodes.memory, requested.memory.take(rows, axis=1)),
        (nodes.cores, requested.cores.take(rows, axis=1)),
        (nodes.slots, held_slots),
    ):
        size = whole.take(rows, axis=1)
        np.minimum(units, (size - held) * UNITS // np.maximum(size, 1), out=units, where=size > 0)
    np.minimum(units, UNITS - 1, out=units, where=held_slots > 0)
    # An over-committed card has a negative remainder, and is not usable.
    units *= requested.usable.take(rows, axis=1)
    allocatable = nodes.cpu_milli[rows]
    free_cpu = np.where(allocatable < 0, PLENTY_MILLI, np.maximum(allocatable - requested.cpu_milli[rows], 0))
    idle: BoolArray = np.logical_and.reduce(held_slots == 0, axis=0)
    return NodeState(units, requested.load.take(rows, axis=1), free_cpu, idle)


def state_after(state: NodeState, need: Need, cpu_milli: int) -> NodeState:
    """Return the state with one more pod on every node.

    Cards are taken as the binpack policy does: the fullest that has enough, ties to the highest position. Where the
    real fit found a card that has too few units here, by rounding, the emptiest card is taken whole.
    """
    units = state.units.copy()
    nodes = np.arange(units.shape[1])
    taken = np.zeros(units.shape, np.bool_)
    positions = np.arange(units.shape[0])[:, np.newaxis]
    # An idle card has load 0, so every card that holds something goes before it.
    order = state.load * units.shape[0] + positions
    for _ in range(min(need.cards, units.shape[0])):
        enough = (units >= need.units) & ~taken
        best = np.where(enough, order, -1).argmax(axis=0)
        short = ~enough[best, nodes]
        if short.any():
            best[short] = np.where(taken, -1, units)[:, short].argmax(axis=0)
        units[best, nodes] = np.maximum(units[best, nodes] - need.units, 0)
        taken[best, nodes] = True
    return NodeState(units, state.load, np.maximum(state.cpu_milli - cpu_milli, 0), state.idle)
