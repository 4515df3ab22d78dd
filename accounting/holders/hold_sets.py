"""Placing the holds of VMs: each VM's holds are together on one node, or all Lost.

Why it exists: a VM needs all of its devices on one node, so a set that is spread over nodes or partly Lost is of no
use. It must not know pods, nor write anything: it changes the holds that it is given. Invariants: after gathering, a
set is on one node or Lost as a whole; Lost sets are tried before Pending ones; a set is bound only where it fits; the
same input gives the same result; between two steps a set may have changed or be gone, and is read again.

    1. gather sets that are spread, partly Lost or off the node of their VM   2. take sets off nodes that cannot keep
    them   3. bind Lost sets   4. bind Pending sets

`full_pass` yields after each set that it looks at, so that a bind never waits for more than a few sets' work.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from accounting.holders.hold import Hold, HoldState, wanted_by

HoldSet = tuple[Hold, ...]
Key = TypeVar("Key", bound=str | tuple[str, ...])
"""Of a set; sets are looked at in its order."""


class Places(Protocol):
    """Where there is room for sets."""

    def takes(self, node: str, holds: HoldSet) -> bool:
        """Whether a node has room for a set that is nowhere."""

    def fullest(self, holds: HoldSet) -> str | None:
        """Return the node with room that would keep the fewest free units; None if none has room (REQ-P1)."""

    def can_keep(self, holds: HoldSet) -> bool:
        """Whether the node of a Bound set has what was promised there."""

    def may_bind(self, holds: HoldSet) -> bool:
        """Whether nothing but room is in the way of a set that was never placed."""

    def home(self, holds: HoldSet) -> str | None:
        """Return the node where the set's VM runs; None if it does not, or that is not known."""

    def free(self, holds: HoldSet) -> None:
        """Take a set off its nodes."""

    def count(self, holds: HoldSet) -> None:
        """Let a set that is nowhere count where it says."""


@dataclass(slots=True)
class Room:
    """Places by free units by node and raw key, in which the units of Bound holds are not free."""

    capacity: Mapping[tuple[str, str], int]
    units: dict[tuple[str, str], int]
    nodes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """List the nodes in the order of the last tie-break."""
        self.nodes = tuple(sorted({node for node, _ in self.capacity}))

    def takes(self, node: str, holds: HoldSet) -> bool:
        """Whether a node has enough free units."""
        return all(self.units.get((node, key), 0) >= units for key, units in wanted_by(holds).items())

    def fullest(self, holds: HoldSet) -> str | None:
        """Ties: the larger used share of the capacity, then the name."""
        fitting = [node for node in self.nodes if self.takes(node, holds)]
        return min(fitting, key=lambda node: self._order(node, wanted_by(holds)), default=None)

    def can_keep(self, holds: HoldSet) -> bool:
        """Whether no key of the set is promised more often than there are units."""
        return all(self.units.get((str(hold.node), hold.key), -1) >= 0 for hold in holds)

    def may_bind(self, holds: HoldSet) -> bool:  # noqa: ARG002 - the protocol's argument
        """Always."""
        return True

    def home(self, holds: HoldSet) -> str | None:  # noqa: ARG002 - the protocol's argument
        """Nothing is known of VMs."""
        return None

    def free(self, holds: HoldSet) -> None:
        """Add its units to the free ones."""
        self._add(holds, 1)

    def count(self, holds: HoldSet) -> None:
        """Subtract its units from the free ones."""
        self._add(holds, -1)

    def _add(self, holds: HoldSet, sign: int) -> None:
        for hold in holds:
            if hold.node is not None:
                place = hold.node, hold.key
                self.units[place] = self.units.get(place, 0) + sign * hold.units

    def _order(self, node: str, wanted: Mapping[str, int]) -> tuple[int, int, str]:
        left = sum(self.units.get((node, key), 0) - units for key, units in wanted.items())
        capacity = sum(self.capacity.get((node, key), 0) for key in wanted)
        used = capacity - left
        # used / capacity, larger first, as an integer.
        return left, -(used * 2**20 // capacity) if capacity else 0, node


_Step = Callable[[HoldSet, Places], HoldSet]


def full_pass(
    sets: Mapping[Key, HoldSet], places: Places, keep: Callable[[Key, HoldSet], object]
) -> Iterator[Key | None]:
    """Do everything that is to be done, and yield after each set: its key if it has changed, else None.

    `keep`: is told of a set as it is now; `sets` must show it from then on.
    """
    for step in (_gathered, _kept, _bound_if(HoldState.LOST), _bound_if(HoldState.PENDING)):
        for key in sorted(sets):
            holds = sets.get(key, ())
            changed = step(holds, places) if holds else holds
            if changed != holds:
                keep(key, changed)
                yield key
            else:
                yield None


def bind_set(holds: HoldSet, node: str, places: Places) -> HoldSet:
    """Return a set bound to a node if that has room for all of it; else the set as it is."""
    there = [hold.node == node for hold in holds]
    if all(there) or not (any(there) or places.takes(node, _nowhere(holds))):
        return holds
    places.free(holds)
    fits = places.takes(node, _nowhere(holds))
    now = tuple(hold.on(node) for hold in holds) if fits else holds
    places.count(now)
    return now


def is_whole(holds: HoldSet) -> bool:
    """Whether all holds of a set have the same state and node."""
    return len({(hold.state, hold.node) for hold in holds}) <= 1


def _gathered(holds: HoldSet, places: Places) -> HoldSet:
    """Move a set that is spread or partly Lost to one node, else make all of it Lost (REQ-S2).

    A whole set goes to the node where its VM runs, once there is room.
    """
    if is_whole(holds):
        home = places.home(holds)
        return holds if home is None else bind_set(holds, home, places)
    places.free(holds)
    members = sorted({hold.node for hold in holds if hold.node is not None})
    most = max(members, key=lambda node: sum(hold.node == node for hold in holds), default=None)
    free = _nowhere(holds)
    return _placed(free, most if most is not None and places.takes(most, free) else places.fullest(free), places)


def _kept(holds: HoldSet, places: Places) -> HoldSet:
    """Remove a Bound set from a node that cannot keep it."""
    if holds[0].node is None or places.can_keep(holds):
        return holds
    places.free(holds)
    return _placed(holds, places.fullest(_nowhere(holds)), places)


def _bound_if(state: HoldState) -> _Step:
    def bound(holds: HoldSet, places: Places) -> HoldSet:
        if holds[0].state is not state or (state is HoldState.PENDING and not places.may_bind(holds)):
            return holds
        node = places.fullest(holds)
        return holds if node is None else _placed(holds, node, places)

    return bound


def _nowhere(holds: HoldSet) -> HoldSet:
    return tuple(hold.lost() for hold in holds)


def _placed(holds: HoldSet, node: str | None, places: Places) -> HoldSet:
    """Return a set bound to a node, and let it count there; without a node it is Lost."""
    placed = _nowhere(holds) if node is None else tuple(hold.on(node) for hold in holds)
    places.count(placed)
    return placed
