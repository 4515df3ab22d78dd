"""Nodes as they would be without some of their pods, as columns of one view.

Why it exists: sets of victims are judged by the same fit as every other question, hundreds at once, so each set is a
column. It must not know what a set costs. Invariants: a column is the node as the cache would have it without the pods;
the snapshot is not changed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accounting.mig_profiles import EVERY_SLICE, OVERLAPPING, MigLayout, held_slices
from accounting.pod_record import PodRecord
from accounting.state import Int64Array, Snapshot, View

#: The numbers of a card that a pod adds to: slots, memory, cores, exclusive, holders, blocks.
_PER_CARD = 6

Masks = npt.NDArray[np.bool_]


class Removal(NamedTuple):
    """What removing each of some pods from a node would change."""

    row: int
    amounts: Int64Array
    """(pod, number): what each pod adds: card by card, then counts by vendor, then whether it blocks the node."""
    slices: "SliceHolders | None"
    """The same for cards in MIG mode, if the node has any."""


class SliceHolders(NamedTuple):
    """Which slices of a node's cards in MIG mode the pods hold."""

    cards: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
    """Device position; slices of pods that always stay; (place among the pods, slices) of the others."""


def removal_of(
    snapshot: Snapshot, row: int, positions: Mapping[str, int], pods: Sequence[PodRecord], staying: Sequence[PodRecord]
) -> Removal:
    """Return what removing each of the pods changes on a node. `staying`: the others that are or will be on it."""
    amounts = amounts_of(snapshot, positions, pods)
    return Removal(row, amounts, _slice_holders(snapshot, row, positions, pods, staying))


def amounts_of(snapshot: Snapshot, positions: Mapping[str, int], pods: Sequence[PodRecord]) -> Int64Array:
    """Return (pod, number): what each pod adds to a node; see `Removal.amounts`."""
    counts = snapshot.devices * _PER_CARD
    size = counts + len(snapshot.vendors) + 1
    numbers = [0] * (len(pods) * size)
    for start, record in zip(range(0, len(numbers), size), pods, strict=True):
        for uuid, slots, memory, cores, exclusive, crowded in record.held:
            position = positions.get(uuid)
            if position is not None:
                at = start + position * _PER_CARD
                numbers[at] += slots
                numbers[at + 1] += memory
                numbers[at + 2] += cores
                numbers[at + 3] += exclusive
                numbers[at + 4] += 1 + crowded
        for vendor, peak, _ in record.vendor_totals:
            numbers[start + counts + snapshot.vendors[vendor]] += peak.count
        if record.blocks is not None:
            named = [positions[uuid] for uuid in record.blocks if uuid in positions]
            for position in named:
                numbers[start + position * _PER_CARD + 5] += 1
            numbers[start + size - 1] += not named
    return np.array(numbers, np.int64).reshape(len(pods), size)


def sum_of(snapshot: Snapshot, positions: Mapping[str, int], pods: Sequence[PodRecord]) -> Int64Array:
    """Return (number,): what these pods add to a node together."""
    total: Int64Array = amounts_of(snapshot, positions, pods).sum(axis=0)
    return total


def without(snapshot: Snapshot, removals: Sequence[tuple[Removal, Masks, Int64Array]]) -> View:
    """Return one column per set.

    `removals`: a node's pods; (set, pod) which of them are gone in each set; and what else is gone in every set, as a
    sum in the form of `Removal.amounts`.
    """
    rows = np.concatenate([np.full(len(masks), removal.row, np.intp) for removal, masks, _ in removals])
    gone = np.concatenate([masks.astype(np.int64) @ removal.amounts + also for removal, masks, also in removals])
    view = snapshot.take(rows)
    requested, devices = view.requested, snapshot.devices
    cards = gone[:, : devices * _PER_CARD].reshape(len(rows), devices, _PER_CARD).transpose(2, 1, 0)
    for name, taken in zip(("slots", "memory", "cores", "exclusive", "holders", "blocks"), cards, strict=True):
        array = getattr(requested, name)
        array -= taken.astype(array.dtype)
    requested.count[:] -= gone[:, devices * _PER_CARD]
    requested.further_count[:] -= gone[:, devices * _PER_CARD + 1 : -1].T
    requested.node_blocks[:] -= gone[:, -1].astype(np.int32)
    _put_slices(view, removals)
    return view.refreshed()


def _slice_holders(
    snapshot: Snapshot, row: int, positions: Mapping[str, int], pods: Sequence[PodRecord], staying: Sequence[PodRecord]
) -> SliceHolders | None:
    if len(snapshot.layouts) == 1:
        return None
    cards = []
    for uuid, position in positions.items():
        layout = snapshot.layouts[int(snapshot.nodes.layout[position, row])]
        if not layout:
            continue
        held = [bits for record in staying if (bits := _slices(layout, uuid, record))]
        removable = tuple((place, bits) for place, record in enumerate(pods) if (bits := _slices(layout, uuid, record)))
        cards.append((position, _together(held), removable))
    return SliceHolders(tuple(cards)) if cards else None


def slices_of_cards(
    snapshot: Snapshot, row: int, positions: Mapping[str, int], pods: Sequence[PodRecord]
) -> dict[int, int]:
    """Return the slices of a node's cards in MIG mode that these pods hold together, by device position."""
    holders = _slice_holders(snapshot, row, positions, [], pods)
    return {} if holders is None else {position: bits for position, bits, _ in holders.cards}


def _slices(layout: MigLayout, uuid: str, record: PodRecord) -> int:
    """Return the slices of a card that a pod holds; all its instances stay until it ends, those of inits too."""
    if all(use.uuid != uuid for use in record.peak):
        return 0
    instances = dict(record.instances).get(uuid)
    bits = None if instances is None else held_slices(layout, instances)
    return EVERY_SLICE if bits is None else bits


def _together(holders: Sequence[int]) -> int:
    """Return the slices that all of these hold, or OVERLAPPING."""
    held = 0
    for bits in holders:
        if bits == OVERLAPPING or held & bits:
            return OVERLAPPING
        held |= bits
    return held


def _put_slices(view: View, removals: Sequence[tuple[Removal, Masks, Int64Array]]) -> None:
    column = 0
    for removal, masks, _ in removals:
        for position, staying, removable in () if removal.slices is None else removal.slices.cards:
            for number, mask in enumerate(masks):
                held = [staying, *(bits for place, bits in removable if not mask[place])]
                view.requested.slices[position, column + number] = _together(held)
        column += len(masks)
