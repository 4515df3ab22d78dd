"""Which cards a pod gets on one node.

Why it exists: bind and explain need the cards themselves, from the same fit as filter's yes or no. It must not book
anything. Invariant: the returned placement is what the pod would hold if it were bound now.
"""

from dataclasses import dataclass

import numpy as np

from accounting.answers.filter import node_open
from accounting.cards import fit_pod, memory_of
from accounting.demand import Demand
from accounting.holdings import DeviceUse, device_uses
from accounting.mig import place_on_one
from accounting.pod import Allocation, DeviceRow, FurtherRow, Pod
from accounting.quota import Budget, Chosen, choose_within
from accounting.state import Rows, Snapshot, View
from accounting.vendor_part import merged


@dataclass(frozen=True, slots=True)
class Placement:
    """The rows of every container, and their peak per card."""

    allocation: Allocation
    peak: tuple[DeviceUse, ...]


def allocate(
    snapshot: Snapshot, pod: Pod, row: int, uuids: dict[int, str], budget: Budget | None = None
) -> Placement | None:
    """Choose a pod's cards on one node; None if it does not fit there.

    `row`: the node's row in the snapshot. `uuids`: device position -> UUID on that node. `budget`: what quotas leave,
    if the chosen cards decide what the pod adds.
    """
    return allocate_in(snapshot.take(np.array([row])), pod, snapshot, uuids, budget)


def allocate_in(
    view: View, pod: Pod, snapshot: Snapshot, uuids: dict[int, str], budget: Budget | None = None
) -> Placement | None:
    """Choose a pod's cards in a view of one node, whose state may differ from the snapshot's."""
    if pod.invalid:
        return None
    if not pod.asks:
        return Placement(((),) * len(pod.containers), ())
    return allocate_demand(view, Demand.of(pod), snapshot, uuids, budget)


def allocate_demand(
    view: View, demand: Demand, snapshot: Snapshot, uuids: dict[int, str], budget: Budget | None = None
) -> Placement | None:
    """Choose cards for a pod's demand; see `allocate_in`."""
    if not demand.is_valid or not node_open(view, demand, snapshot)[0]:
        return None
    allocations = []
    for part in demand.parts:
        rows = _part_rows(view, part, snapshot, uuids, budget)
        if rows is None:
            return None
        allocations.append(rows)
    allocation = allocations[0] if len(allocations) == 1 else merged(allocations)
    return Placement(allocation, device_uses(demand.containers, allocation)[0])


def _part_rows(
    view: View, demand: Demand, snapshot: Snapshot, uuids: dict[int, str], budget: Budget | None
) -> Allocation | None:
    """Return the rows of a pod that asks for one vendor's cards: on cards not in MIG mode if possible."""
    own = None if budget is None else budget.of_vendor(demand.selection.vendor)
    fit = fit_pod(view, demand, snapshot, choose_cards=True)
    chosen: Chosen | None = fit.chosen if fit.feasible[0] else None
    if chosen is not None and own is not None and own.mib_of_shared_cards is not None:
        chosen = choose_within(view, demand, snapshot, chosen, own.mib_of_shared_cards)
    if chosen is not None:
        return tuple(_rows(view, chosen, demand, position, uuids) for position in range(len(demand.containers)))
    picks = place_on_one(view, demand, snapshot, own and own.most)
    if picks is None:
        return None
    vendor = demand.selection.vendor
    return tuple(
        tuple(
            FurtherRow.of(uuids[pick.device], pick.memory, pick.cores, vendor, pick.instance)
            for pick in picks.get(position, ())
        )
        for position in range(len(demand.containers))
    )


def _rows(view: View, chosen: Chosen, demand: Demand, position: int, uuids: dict[int, str]) -> tuple[DeviceRow, ...]:
    request = demand.containers[position].request
    if request is None:
        return ()
    devices: list[Rows] = chosen[position]
    rows = []
    for cards in devices:
        memory = memory_of(view, request, cards[:1])
        rows.append(FurtherRow.of(uuids[int(cards[0])], int(np.max(memory)), request.cores, request.vendor))
    return tuple(rows)
