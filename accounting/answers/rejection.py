"""Why single cards refuse a container, and which reason becomes the node's code.

Why it exists: a node has one code on the wire, and the code of the card that came closest to fitting is the most useful
one. It must not know names or texts. Invariant: the checks are those of `card_fit.fitting_cards`, so a card has no
rejection exactly if it fits.
"""

import numpy as np

from accounting.answers.verdicts import CodeArray
from accounting.cards import (
    Assignment,
    Fit,
    accepted_modes,
    accepted_types,
    accepted_uuids,
    accepted_vendor,
    free_instances,
    of_one_size,
    wanted_memory,
)
from accounting.demand import Demand
from accounting.holdings import EXCLUSIVE_CORES
from accounting.pod import DeviceRequest
from accounting.state import BoolArray, Int32Array, Rows, Snapshot, View
from accounting.status import CODE_NUMBER, Code

#: The checks in order. A card's rejection is its first failed check; the later that is, the closer the card came.
CHECKS: tuple[Code, ...] = (
    Code.TYPE_MISMATCH,
    Code.MODE_MISMATCH,
    Code.UUID_MISMATCH,
    Code.DEVICE_UNHEALTHY,
    Code.DEVICE_CORDONED,
    Code.DEVICE_BLOCKED,
    Code.DEVICE_OVERCOMMITTED,
    Code.EXCLUSIVE_CONFLICT,
    Code.INSUFFICIENT_SLOTS,
    Code.MODE_MISMATCH,
    Code.EXCLUSIVE_CONFLICT,
    Code.INSUFFICIENT_MEMORY,
    Code.INSUFFICIENT_CORES,
    Code.EXCLUSIVE_CONFLICT,
)
#: Ranks of cards that fit, and of padding.
FITS, ABSENT = len(CHECKS), -1
_CODE_OF_RANK = np.array([CODE_NUMBER[code] for code in CHECKS], np.uint8)


def card_ranks(
    view: View, assignment: Assignment, request: DeviceRequest, demand: Demand, snapshot: Snapshot
) -> Int32Array:
    """Return (device, column): the position in CHECKS of each card's first failed check, FITS or ABSENT."""
    nodes, requested = view.nodes, view.requested
    own_slots = 0 if assignment.slots is None else assignment.slots
    free_cores = view.free_cores - (0 if assignment.cores is None else assignment.cores)
    unused = (requested.slots + own_slots) == 0
    held = requested.exclusive > 0
    if assignment.exclusive is not None:
        held = held | assignment.exclusive
    selection = demand.selection
    whole = request.cores >= EXCLUSIVE_CORES
    memory = view.free_memory - (0 if assignment.memory is None else assignment.memory) >= wanted_memory(view, request)
    cores = (free_cores >= request.cores) & ((request.cores > 0) | (free_cores > 0) | (nodes.cores == 0))
    modes = accepted_modes(view, selection, snapshot)
    if len(snapshot.layouts) > 1:
        # An instance has its memory and cores from its place, and shares them with no other pod.
        in_mig = nodes.layout > 0
        with_mig = accepted_modes(view, selection, snapshot, mig=True)
        modes = modes if modes is None else modes | (in_mig if with_mig is None else in_mig & with_mig)
        memory = np.where(in_mig, free_instances(view, request, snapshot.layouts), memory)
        cores, unused = cores | in_mig, unused | (in_mig & (not demand.policies.card.mutex))
    passes: list[BoolArray | None] = [
        accepted_types(view, selection, snapshot),
        modes,
        accepted_uuids(view, selection, snapshot),
        nodes.healthy,
        ~nodes.cordoned,
        ~view.blocked,
        ~view.overcommitted,
        ~held,
        view.free_slots > own_slots,
        of_one_size(view, assignment, request) if request.one_size else None,
        unused if demand.policies.card.mutex else None,
        memory,
        cores,
        unused if whole else None,
    ]
    # The rank is the number of checks passed before the first failure. Another vendor's cards count as absent.
    of_vendor = accepted_vendor(view, selection, snapshot)
    present = nodes.present if of_vendor is None else nodes.present & of_vendor
    alive = present.copy()
    ranks = np.zeros(present.shape, np.int32)
    for passed in passes:
        if passed is not None:
            alive &= passed
        ranks += alive
    return np.where(present, ranks, ABSENT)


def node_codes(part: View, fit: Fit, demand: Demand, snapshot: Snapshot, columns: Rows) -> CodeArray:
    """Return the number of one code for each infeasible column of a fit.

    `columns`: their numbers in the fit. `part`: the view of just these columns.
    """
    codes = np.zeros(len(columns), np.uint8)
    failed_at = fit.failed_at[columns]
    for position in sorted(set(failed_at.tolist()) - {-1}):
        request, assignment = demand.containers[position].request, fit.assignments.get(position)
        if request is None or assignment is None:
            continue
        # All columns are ranked, although other containers failed in some: with few columns the number of calls costs
        # most.
        assignment = assignment if len(columns) == assignment.shape[1] else assignment.take(columns)
        here = failed_at == position
        codes[here] = _codes(card_ranks(part, assignment, request, demand, snapshot), request.count)[here]
    codes[fit.limited[columns]] = CODE_NUMBER[Code.SEARCH_LIMIT]
    return codes


def _codes(ranks: Int32Array, count: int) -> CodeArray:
    """Return each column's code: too few cards at all, the closest rejection, or no NUMA node with enough."""
    closest = np.maximum.reduce(np.where(ranks == FITS, ABSENT, ranks), axis=0)
    codes = _CODE_OF_RANK[closest]
    codes[np.add.reduce(ranks == FITS, axis=0) >= count] = CODE_NUMBER[Code.NUMA_MISMATCH]
    codes[np.add.reduce(ranks != ABSENT, axis=0) < count] = CODE_NUMBER[Code.INSUFFICIENT_DEVICES]
    return codes
