"""Holds: devices that are kept for a VM, whether or not its pod runs.

Why it exists: the devices of one VM are kept or lost together, and count even while no pod of the VM runs. It must not
know pods. Invariants: a hold has a node exactly while it is Bound; a Lost hold takes no room on a node, but still
counts in its namespace's budget.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from accounting.holders.virtual_machine import VirtualMachineInstance, VmiKey


class HoldState(StrEnum):
    """The state of a hold."""

    PENDING = "Pending"
    BOUND = "Bound"
    LOST = "Lost"


class Hold(NamedTuple):
    """Units of one raw key. Holds with the same `set_id` belong to one VM and stay together."""

    set_id: str
    vmi: VmiKey
    key: str
    units: int
    node: str | None = None
    state: HoldState = HoldState.PENDING
    name: str = ""
    """Of the object of its own that tells of it; "" if it follows from the VMI's spec."""

    def on(self, node: str) -> "Hold":
        """Return the hold, bound to a node."""
        return self._replace(node=node, state=HoldState.BOUND)

    def lost(self) -> "Hold":
        """Return the hold without a node."""
        return self._replace(node=None, state=HoldState.LOST)


def wanted_by(holds: Iterable[Hold]) -> dict[str, int]:
    """Return the units that a set needs on its node, by raw key."""
    wanted: dict[str, int] = {}
    for hold in holds:
        wanted[hold.key] = wanted.get(hold.key, 0) + hold.units
    return wanted


def holds_of(vmi: VirtualMachineInstance) -> tuple[Hold, ...]:
    """Return the holds that follow from a VMI's spec: one per raw key, Bound where the VMI runs."""
    if vmi.is_over:
        return ()
    state = HoldState.PENDING if vmi.node is None else HoldState.BOUND
    return tuple(Hold(vmi.uid, vmi.key, key, units, vmi.node, state) for key, units in vmi.units)


def still_held(
    vmi: VirtualMachineInstance, before: VirtualMachineInstance | None, kept: Iterable[Hold]
) -> tuple[Hold, ...]:
    """Return the holds of a VMI where a pass decides on which node they are.

    A node that the VMI newly names is where it runs, so its holds are there. Otherwise what was decided stays.
    """
    said = holds_of(vmi)
    if before is None or before.uid != vmi.uid or (vmi.node is not None and vmi.node != before.node):
        return said
    known = {hold.key: hold for hold in kept}
    return tuple(known[hold.key]._replace(units=hold.units) if hold.key in known else hold for hold in said)
