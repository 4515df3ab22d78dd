"""The slow reference of the pass over hold sets of one raw key, in plain Python, from the objects as they are now.

Why it exists: tests and benchmarks compare the pass over the ledger with it. It must not know the ledger, nor the code
of the pass. Invariant: how much is used is computed anew from the objects for every question.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from accounting.holders import VmiKey
from accounting.reference import holders
from accounting.reference.holders import Kept, World

PENDING, BOUND, LOST = "Pending", "Bound", "Lost"


@dataclass(frozen=True, slots=True)
class Member:
    """One hold of a set; on a node exactly while it is Bound."""

    units: int
    node: str | None = None
    state: str = PENDING


Sets = dict[VmiKey, list[Member]]


@dataclass(slots=True)
class HoldWorld:
    """All objects that concern one raw key, and where the sets are."""

    objects: World
    capacity: Mapping[str, int]
    budgets: Mapping[str, int] = field(default_factory=dict)
    sets: Sets = field(default_factory=dict)

    def used_on(self, node: str, sets: Sets | None = None) -> int:
        """Return the units used on a node."""
        return holders.used_on(self._with(self.sets if sets is None else sets), node)

    def used_in(self, namespace: str) -> int:
        """Return the units charged to a namespace."""
        return holders.used_in(self._with(self.sets), namespace)

    def _with(self, sets: Sets) -> World:
        kept = [Kept(key, each.units, each.node) for key, members in sets.items() for each in members]
        return replace(self.objects, kept=kept)


def full_pass(world: HoldWorld) -> None:
    """Do everything that is to be done, in `world.sets`."""
    for key in sorted(world.sets):
        _gather(world, key)
    for key in sorted(world.sets):
        node = world.sets[key][0].node
        if node is not None and _must_leave(world, key, node):
            _go(world, key, _best(world, key))
    for state in (LOST, PENDING):
        for key in sorted(world.sets):
            if world.sets[key][0].state != state or (state == PENDING and _is_over_budget(world, key)):
                continue
            node = _best(world, key)
            if node is not None:
                _go(world, key, node)


def _gather(world: HoldWorld, key: VmiKey) -> None:
    members = world.sets[key]
    nodes = [each.node for each in members if each.node is not None]
    if len({(each.node, each.state) for each in members}) == 1:
        home = _home(world, key)
        if home is not None and nodes != [home] * len(members) and _fits(world, key, home):
            _go(world, key, home)
        return
    by_count = sorted(set(nodes), key=lambda node: (-nodes.count(node), node))
    most = by_count[0] if by_count else None
    _go(world, key, most if most is not None and _fits(world, key, most) else _best(world, key))


def _home(world: HoldWorld, key: VmiKey) -> str | None:
    """Return the node where a set's VM runs."""
    vmi = next((each for each in world.objects.vmis if each.key == key), None)
    return None if vmi is None or vmi.is_over else vmi.node


def _must_leave(world: HoldWorld, key: VmiKey, node: str) -> bool:
    have = world.capacity.get(node, 0)
    used = world.used_on(node)
    wanted = sum(each.units for each in world.sets[key])
    without = world.used_on(node, _nowhere(world, key))
    return have < wanted or (used > have and without < used)


def _is_over_budget(world: HoldWorld, key: VmiKey) -> bool:
    hard = world.budgets.get(key.namespace)
    return hard is not None and world.used_in(key.namespace) > hard


def _best(world: HoldWorld, key: VmiKey) -> str | None:
    found = []
    for node, have in world.capacity.items():
        if not _fits(world, key, node):
            continue
        before, after = world.used_on(node, _nowhere(world, key)), world.used_on(node, _there(world, key, node))
        found.append((after > before, have - after, -(after * 2**20 // have) if have else 0, node))
    return min(found)[-1] if found else None


def _fits(world: HoldWorld, key: VmiKey, node: str) -> bool:
    return world.used_on(node, _there(world, key, node)) <= world.capacity.get(node, 0)


def _nowhere(world: HoldWorld, key: VmiKey) -> Sets:
    return world.sets | {key: [Member(each.units, None, LOST) for each in world.sets[key]]}


def _there(world: HoldWorld, key: VmiKey, node: str) -> Sets:
    return world.sets | {key: [Member(each.units, node, BOUND) for each in world.sets[key]]}


def _go(world: HoldWorld, key: VmiKey, node: str | None) -> None:
    world.sets = _nowhere(world, key) if node is None else _there(world, key, node)
