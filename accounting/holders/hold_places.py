"""Where the ledger of whole devices has room for sets of holds.

Why it exists: what a set would add on a node depends on the pods of its VM there, since a device of the VM and the
request of its launcher are the same one. It must not decide which set goes where; `hold_sets` does. Invariant: a node
takes a set only if afterwards no more of its keys is used than there is.
"""

from typing import NamedTuple

from accounting.holders.hold import Hold, HoldState, wanted_by
from accounting.holders.hold_sets import HoldSet
from accounting.holders.raw_devices import RawDevices
from accounting.holders.raw_values import order_key
from accounting.holders.virtual_machine import VmiKey

_Wanted = tuple[tuple[str, int], ...]


class LedgerPlaces:
    """Places of one ledger. Sets that are freed or counted change it."""

    def __init__(self, devices: RawDevices) -> None:
        self._devices = devices
        self._full: dict[_Wanted, int] = {}  # what no node has room for -> as of which version of the ledger

    def takes(self, node: str, holds: HoldSet) -> bool:
        """Whether all of it fits; what the VM's pods there have already is not asked for twice."""
        units, vmi = self._devices.units, holds[0].vmi
        return all(
            units.used_on(node, key) + units.adds_held(vmi, node, key, wanted) <= self._have(node, key)
            for key, wanted in wanted_by(holds).items()
        )

    def fullest(self, holds: HoldSet) -> str | None:
        """First a node where nothing new is needed, then as REQ-P1 says."""
        wanted = tuple(sorted(wanted_by(holds).items()))
        if self._full.get(wanted) == self._devices.version and not self._devices.has_pods(holds[0].vmi):
            # Many VMs wait for the same: one look at all nodes tells it for all of them.
            return None
        nodes = [node for node in self._devices.allocatable(wanted[0][0]) if self.takes(node, holds)]
        best = min((self._order(node, holds[0].vmi, wanted) for node in nodes), default=None)
        if best is None:
            self._full[wanted] = self._devices.version
            return None
        return best[-1]

    def can_keep(self, holds: HoldSet) -> bool:
        """Whether the node has as much as the set wants, and does not owe what taking the set off would free."""
        node, units, vmi = str(holds[0].node), self._devices.units, holds[0].vmi
        for key, wanted in wanted_by(holds).items():
            have = self._have(node, key)
            owes = units.used_on(node, key) > have
            if have < wanted or (owes and units.adds_held(vmi, node, key, -wanted)):
                return False
        return True

    def may_bind(self, holds: HoldSet) -> bool:
        """Whether its namespace is within its budgets, in which a set counts from the moment that it exists."""
        namespace = holds[0].vmi.namespace
        for key in wanted_by(holds):
            hard = self._devices.hard(namespace, key)
            if hard is not None and self._devices.units.used_in(namespace, key) > hard:
                return False
        return True

    def home(self, holds: HoldSet) -> str | None:
        """Return the node that the VMI names."""
        vmi = self._devices.vmi(holds[0].vmi)
        return None if vmi is None or vmi.is_over else vmi.node

    def free(self, holds: HoldSet) -> None:
        """Let it count nowhere; in its namespace it counts on."""
        self._devices.put_holds(holds[0].vmi, [hold.lost() for hold in holds])

    def count(self, holds: HoldSet) -> None:
        """Let it count where it says."""
        self._devices.put_holds(holds[0].vmi, holds)

    def _have(self, node: str, key: str) -> int:
        return self._devices.allocatable(key).get(node, 0)

    def _order(self, node: str, vmi: VmiKey, wanted: _Wanted) -> tuple[bool, int, int, str]:
        units, adds, left, capacity = self._devices.units, 0, 0, 0
        for key, number in wanted:
            have, new = self._have(node, key), units.adds_held(vmi, node, key, number)
            adds, left, capacity = adds + new, left + have - units.used_on(node, key) - new, capacity + have
        return order_key(adds, left, capacity, node)


class KeptSet(NamedTuple):
    """One set as reports show it."""

    vmi: VmiKey
    holds: tuple[Hold, ...]

    @property
    def state(self) -> HoldState | None:
        """The state of all of them; None while they differ."""
        states = {hold.state for hold in self.holds}
        return states.pop() if len(states) == 1 else None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its holds, sorted: at most one, unless it is not gathered yet."""
        return tuple(sorted({hold.node for hold in self.holds if hold.node is not None}))
