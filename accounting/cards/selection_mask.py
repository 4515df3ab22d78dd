"""A pod's selection, applied to the cards of a view.

Why it exists: `Selection` answers for one card; here its answers for each distinct model, mode and UUID are spread over
the arrays. It must not decide anything itself. Invariant: a mask is None if it would accept every card, so that the
common pod costs nothing.
"""

import numpy as np

from accounting.selection import Selection
from accounting.state import BoolArray, Int32Array, Int64Array, Snapshot, View


def accepted(view: View, selection: Selection, snapshot: Snapshot, *, mig: bool = False) -> BoolArray | None:
    """Return (device, column): the cards that the pod may use, None if it may use every card.

    `mig`: include cards in MIG mode.
    """
    masks = [
        mask
        for mask in (
            accepted_vendor(view, selection, snapshot),
            accepted_types(view, selection, snapshot),
            accepted_modes(view, selection, snapshot, mig=mig),
            accepted_uuids(view, selection, snapshot),
        )
        if mask is not None
    ]
    if not masks:
        return None
    together: BoolArray = np.logical_and.reduce(masks)
    return together


def accepted_vendor(view: View, selection: Selection, snapshot: Snapshot) -> BoolArray | None:
    """Return the cards of the vendor that the pod asks for."""
    number = snapshot.vendors.get(selection.vendor, -1)
    if len(snapshot.vendors) == 1 and number == 0:
        return None
    cards: BoolArray = view.nodes.vendor == number
    return cards


def accepted_types(view: View, selection: Selection, snapshot: Snapshot) -> BoolArray | None:
    """Return the cards whose model the pod accepts."""
    if not selection.limits_types:
        return None
    wanted = [number for text, number in snapshot.type_ids if selection.accepts_type(text)]
    return _one_of(view.nodes.type_id, wanted)


def accepted_modes(view: View, selection: Selection, snapshot: Snapshot, *, mig: bool = False) -> BoolArray | None:
    """Return the cards whose mode the pod accepts and this release supports."""
    modes = snapshot.mode_ids
    wanted = [number for text, number in modes if selection.accepts_mode(text, mig=mig)]
    return None if len(wanted) == len(modes) else _one_of(view.nodes.mode_id, wanted)


def accepted_uuids(view: View, selection: Selection, snapshot: Snapshot) -> BoolArray | None:
    """Return the cards whose UUID the pod accepts."""
    if not selection.limits_uuids:
        return None
    ids = snapshot.ids
    refused = _one_of(view.nodes.uuid_id, [ids[uuid] for uuid in selection.nouse_uuids if uuid in ids])
    if not selection.use_uuids:
        return ~refused
    wanted = _one_of(view.nodes.uuid_id, [ids[uuid] for uuid in selection.use_uuids if uuid in ids])
    return wanted & ~refused


def _one_of(array: Int32Array | Int64Array, numbers: list[int]) -> BoolArray:
    mask = np.zeros(array.shape, np.bool_)
    for number in numbers:
        mask |= array == number
    return mask
