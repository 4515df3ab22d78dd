"""Placing the holds of VMs: each VM's holds are together on one node, or all Lost.

Why it exists: a VM needs all of its devices on one node, so a set that is spread over nodes or partly Lost is of no
use. It must not know pods, nor carry anything out: it returns the holds as they should be. Invariants: after gathering,
a set is on one node or Lost as a whole; Lost sets are tried before Pending ones; a set is bound only where it fits; the
same input gives the same result.

    1. gather sets that are spread or partly Lost   2. take sets off nodes that cannot keep them
    3. bind Lost sets   4. bind Pending sets

`passes` yields after each set, so that a bind never waits for more than one set's work.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from accounting.holders.hold import Hold, HoldState

HoldSet = tuple[Hold, ...]


@dataclass(slots=True)
class Room:
    """Free units by node and raw key, without the units of Bound holds. It changes as sets are placed."""

    capacity: Mapping[tuple[str, str], int]
    free: dict[tuple[str, str], int]
    nodes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """List the nodes in the order of the last tie-break."""
        self.nodes = tuple(sorted({node for node, _ in self.capacity}))

    def takes(self, node: str, wanted: Mapping[str, int]) -> bool:
        """Whether a node has room for these units."""
        return all(self.free.get((node, key), 0) >= units for key, units in wanted.items())

    def fullest(self, wanted: Mapping[str, int]) -> str | None:
        """Return the node with room that would keep the fewest free units; None if none has room.

        Ties: the larger used share of the capacity, then the name (REQ-P1).
        """
        fitting = [node for node in self.nodes if self.takes(node, wanted)]
        return min(fitting, key=lambda node: self._order(node, wanted), default=None)

    def count(self, holds: HoldSet, sign: int) -> None:
        """Add the units of Bound holds to the free ones (1), or subtract them (-1)."""
        for hold in holds:
            if hold.node is not None:
                place = hold.node, hold.key
                self.free[place] = self.free.get(place, 0) + sign * hold.units

    def _order(self, node: str, wanted: Mapping[str, int]) -> tuple[int, int, str]:
        left = sum(self.free.get((node, key), 0) - units for key, units in wanted.items())
        capacity = sum(self.capacity.get((node, key), 0) for key in wanted)
        used = capacity - left
        # used / capacity, larger first, as an integer.
        return left, -(used * 2**20 // capacity) if capacity else 0, node


_Step = Callable[[HoldSet, Room], HoldSet]


def wanted_by(holds: HoldSet) -> dict[str, int]:
    """Return the units that a set needs on its node, by raw key."""
    wanted: dict[str, int] = {}
    for hold in holds:
        wanted[hold.key] = wanted.get(hold.key, 0) + hold.units
    return wanted


def passes(sets: Mapping[str, HoldSet], room: Room) -> Iterator[tuple[str, HoldSet]]:
    """Yield (set, its holds) for every set that changes, in the order of the full pass. Updates `room`."""
    now = {set_id: sets[set_id] for set_id in sorted(sets)}
    for step in (_gathered, _kept, _bound_if(HoldState.LOST), _bound_if(HoldState.PENDING)):
        for set_id, holds in now.items():
            changed = step(holds, room)
            if changed != holds:
                now[set_id] = changed
                yield set_id, changed


def _is_whole(holds: HoldSet) -> bool:
    """Whether all holds of a set have the same state and node."""
    return len({(hold.state, hold.node) for hold in holds}) <= 1


def _gathered(holds: HoldSet, room: Room) -> HoldSet:
    """Move a set that is spread or partly Lost to one node, else make all of it Lost (REQ-S2)."""
    if _is_whole(holds):
        return holds
    room.count(holds, 1)
    wanted = wanted_by(holds)
    members = sorted({hold.node for hold in holds if hold.node is not None})
    most = max(members, key=lambda node: sum(hold.node == node for hold in holds), default=None)
    node = most if most is not None and room.takes(most, wanted) else room.fullest(wanted)
    return _placed(holds, node, room)


def _kept(holds: HoldSet, room: Room) -> HoldSet:
    """Remove a Bound set from a node that is gone or has too few units for its holds."""
    node = holds[0].node if holds else None
    if node is None or not any(room.free.get((node, key), -1) < 0 for key in wanted_by(holds)):
        return holds
    room.count(holds, 1)
    return _placed(holds, room.fullest(wanted_by(holds)), room)


def _bound_if(state: HoldState) -> _Step:
    def bound(holds: HoldSet, room: Room) -> HoldSet:
        if not holds or holds[0].state is not state:
            return holds
        node = room.fullest(wanted_by(holds))
        return holds if node is None else _placed(holds, node, room)

    return bound


def _placed(holds: HoldSet, node: str | None, room: Room) -> HoldSet:
    """Return a set bound to a node, and subtract its units from the room; without a node it is Lost."""
    placed = tuple(hold.lost() if node is None else hold.on(node) for hold in holds)
    room.count(placed, -1)
    return placed
