"""Whether a card can take a row. Only this module decides that.

Why it exists: the greedy choice, the exact search and the reasons of a refusal must never differ about a card. It must
not choose cards, nor know which container asks. Invariant: a row that fits beside some rows also fits beside fewer of
them; the exact search relies on that.
"""

from collections.abc import Sequence

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.holdings import EXCLUSIVE_CORES
from accounting.mig_profiles import EVERY_SLICE, MigLayout, options
from accounting.pod import DeviceRequest
from accounting.state import BoolArray, Int64Array, Rows, View

#: The number of percentages for which a view remembers the MiB of each card: 640 KB each at 10,000 nodes.
_REMEMBERED = 8


def memory_of(view: View, request: DeviceRequest, cells: Rows) -> Int64Array | int:
    """Return the MiB that a request takes on each of these cells (flat numbers)."""
    if not request.memory_percentage:
        return request.memory
    return _share(view.nodes.memory.reshape(-1)[cells], request)


def wanted_memory(view: View, request: DeviceRequest) -> Int64Array | int:
    """Return the MiB that a request asks of each card: one number, or an array for a percentage, not to be changed."""
    if not request.memory_percentage:
        return request.memory
    key = request.memory_percentage, request.whole
    known = view.shares.get(key)
    if known is None:
        if len(view.shares) >= _REMEMBERED:
            view.shares.clear()
        known = view.shares[key] = _share(view.nodes.memory, request)
        known.flags.writeable = False
    return known


def _share(capacity: Int64Array, request: DeviceRequest) -> Int64Array:
    """Return a percentage of each capacity.

    A card that registers no memory (GB10 registers 0) can give no percentage, which would be at least 1 MiB. It can
    still be given as a whole card.
    """
    share: Int64Array = capacity * request.memory_percentage // 100
    return share if request.whole else share + (capacity == 0)


def fitting_cards(
    view: View, assignment: Assignment, request: DeviceRequest, accepted_cards: BoolArray | None, *, mutex: bool
) -> BoolArray:
    """Return (device, column): the cards that can take one row of the request on this copy.

    Source: HAMi v2.10's fit of one card. Cores 100 need a card that nobody uses; cores 0 need a card whose cores are
    not all requested; under the mutex policy only an unused card fits.
    """
    memory = wanted_memory(view, request)
    if assignment.slots is None or assignment.memory is None or assignment.cores is None:
        cards = view.requested.usable & (view.free_memory >= memory)
        cards &= view.free_cores >= request.cores
        used_slots, free_cores = view.requested.slots, view.free_cores
    else:
        used_slots, free_cores = view.requested.slots + assignment.slots, view.free_cores - assignment.cores
        cards = view.requested.usable & (view.free_slots > assignment.slots)
        cards &= view.free_memory - assignment.memory >= memory
        cards &= free_cores >= request.cores
    if accepted_cards is not None:
        cards &= accepted_cards
    if request.cores == 0:
        cards &= (free_cores > 0) | (view.nodes.cores == 0)
    if mutex or request.cores >= EXCLUSIVE_CORES:
        cards &= used_slots == 0
    if assignment.exclusive is not None:
        cards &= ~assignment.exclusive
    if request.one_size:
        cards &= of_one_size(view, assignment, request)
    return cards


def free_instances(view: View, request: DeviceRequest, layouts: Sequence[MigLayout]) -> BoolArray:
    """Return (device, column): the cards in MIG mode with a free place for an instance that is large enough."""
    layout = view.nodes.layout
    found = np.zeros(layout.shape, np.bool_)
    cells = np.nonzero(layout > 0)
    wanted = np.broadcast_to(wanted_memory(view, request), layout.shape)
    # Few cards of a cluster differ in all three.
    states = np.stack([layout[cells].astype(np.int64), view.requested.slices[cells], wanted[cells]])
    distinct, which = np.unique(states, axis=1, return_inverse=True)
    answers = [
        bool(options(layouts[number], EVERY_SLICE & ~slices, mib, request.cores))
        for number, slices, mib in distinct.T.tolist()
    ]
    found[cells] = np.array(answers, np.bool_)[which.reshape(-1)]
    return found


def of_one_size(view: View, assignment: Assignment, request: DeviceRequest) -> BoolArray:
    """Return the cards whose rows all have the memory of the request, unused ones included (Kunlun's slices)."""
    slots = view.requested.slots if assignment.slots is None else view.requested.slots + assignment.slots
    memory = view.requested.memory if assignment.memory is None else view.requested.memory + assignment.memory
    same: BoolArray = memory == slots * np.int64(request.memory)
    return same
