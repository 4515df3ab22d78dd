"""What a pod would hold on every card: the maximum over the shared copy and the forks fitted so far.

Why it exists: an init should take the cards by which this grows least, so that an init and a later app use the same
card one after the other. It must not choose. Invariant: it only grows. Amounts are per card: MiB, percent and slots.

Growth is counted per card and dimension and summed over cards; memory is compared first, then cores, then slots. For
one init, choosing its cards one by one gives the least growth, because what it adds to one card does not depend on the
others.
"""

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import wanted_memory
from accounting.pod import DeviceRequest
from accounting.state import BoolArray, Int64Array, View

#: Bits in a packed growth: cores and slots of all chosen cards together stay below these, so sums order like tuples.
_CORES_SHIFT, _MEMORY_SHIFT = 8, 22


class Footprint:
    """What the pod would hold per card: the maximum over the shared copy and the forks fitted so far."""

    def __init__(self, shared: Assignment) -> None:
        zeros = np.zeros(shared.shape, np.int64)
        self.slots = zeros if shared.slots is None else shared.slots.astype(np.int64)
        self.memory = zeros if shared.memory is None else shared.memory
        self.cores = zeros if shared.cores is None else shared.cores

    def growth(self, fork: Assignment, view: View, request: DeviceRequest) -> Int64Array:
        """Return how much one more row on each card would raise the footprint: memory, cores and slots, packed."""
        zero = np.int64(0)
        memory = (0 if fork.memory is None else fork.memory) + wanted_memory(view, request)
        cores = (0 if fork.cores is None else fork.cores) + request.cores
        slots = (0 if fork.slots is None else fork.slots.astype(np.int64)) + 1
        packed: Int64Array = np.maximum(memory - self.memory, zero) << _MEMORY_SHIFT
        packed += np.maximum(cores - self.cores, zero) << _CORES_SHIFT
        packed += np.maximum(slots - self.slots, zero)
        return packed

    def raise_to(self, fork: Assignment) -> None:
        """Merge a fork into the footprint, by the maximum."""
        if fork.slots is not None and fork.memory is not None and fork.cores is not None:
            self.slots = np.maximum(self.slots, fork.slots)
            self.memory = np.maximum(self.memory, fork.memory)
            self.cores = np.maximum(self.cores, fork.cores)

    def is_less_than(self, other: "Footprint") -> BoolArray:
        """Return (column,): where less is held than in another footprint, summed over cards: memory, cores, slots."""
        less = np.zeros(self.memory.shape[1], np.bool_)
        equal = np.ones(self.memory.shape[1], np.bool_)
        for own, others in zip(
            (self.memory, self.cores, self.slots), (other.memory, other.cores, other.slots), strict=True
        ):
            difference = own.sum(axis=0) - others.sum(axis=0)
            less |= equal & (difference < 0)
            equal &= difference == 0
        return less
