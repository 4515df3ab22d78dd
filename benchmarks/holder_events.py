"""Random events of everything that holds a card, compared with the reference again and again.

It exists because pods, claims and slices, VMIs that list and unlist, whole devices and hold sets change in any order.
It must not know how any of them is counted. Invariant: as in `claim_events`, of which it is a larger world.

    python -m benchmarks.holder_events [--events 1000000] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import fields
from random import Random

from accounting.holders import (
    Hold,
    HoldState,
    KeptSet,
    Migration,
    RawDevices,
    RawRequest,
    VirtualMachineInstance,
    VmiKey,
)
from accounting.reference import hold_sets as reference_sets
from accounting.reference import holders as reference
from accounting.reference.hold_sets import HoldWorld, Member
from accounting.reference.holders import Launched
from benchmarks.claim_events import ClaimDriver
from benchmarks.random_run import Summary, drive, same
from extender.cluster import Events, HoldSets

K = "example.com/whole"
NODES = ("w0", "w1", "w2")
NAMESPACES = ("x", "y")
MACHINES = tuple(VmiKey(namespace, name) for namespace in NAMESPACES for name in "abc")
PODS = tuple(f"p{number}" for number in range(10))


class MachineWorld:
    """A ledger of whole devices in which passes decide, and beside it the objects that it was told of."""

    def __init__(self) -> None:
        self.devices = RawDevices(decides=True)
        self.sets = HoldSets(self.devices, Events(), decides=True)
        self.vmis: dict[VmiKey, VirtualMachineInstance] = {}
        self.pods: dict[str, RawRequest] = {}
        self.capacity: dict[str, int] = {}
        self.budgets: dict[str, int] = {}
        self.kept: reference_sets.Sets = {}

    # -- events -------------------------------------------------------------------------------------------------------

    def put_node(self, name: str, units: int) -> None:
        self.devices.put_node(name, {K: units})
        self.capacity[name] = units

    def remove_node(self, name: str) -> None:
        self.devices.remove_node(name)
        self.capacity.pop(name, None)

    def put_vmi(self, vmi: VirtualMachineInstance) -> None:
        self.devices.put_vmi(vmi)
        before = self.vmis.get(vmi.key)
        self.vmis[vmi.key] = vmi
        units = 0 if vmi.is_over else dict(vmi.units).get(K, 0)
        if before == vmi:
            return
        if not units:
            self.kept.pop(vmi.key, None)
            return
        is_new = before is None or before.uid != vmi.uid or (vmi.node is not None and vmi.node != before.node)
        if is_new or vmi.key not in self.kept:
            state = reference_sets.PENDING if vmi.node is None else reference_sets.BOUND
            self.kept[vmi.key] = [Member(units, vmi.node, state)]
        else:
            last = self.kept[vmi.key][-1]
            self.kept[vmi.key] = [Member(units, last.node, last.state)]

    def remove_vmi(self, key: VmiKey) -> None:
        self.devices.remove_vmi(key)
        if self.vmis.pop(key, None) is not None:
            self.kept.pop(key, None)

    def put_pod(self, pod: RawRequest) -> None:
        self.devices.put_pod(pod)
        self.pods[pod.uid] = pod

    def remove_pod(self, uid: str) -> None:
        self.devices.remove_pod(uid)
        self.pods.pop(uid, None)

    def set_budgets(self, hard: dict[str, int]) -> None:
        self.devices.set_budgets({(namespace, K): units for namespace, units in hard.items()})
        self.budgets = hard

    def spread(self, key: VmiKey, members: list[Member]) -> None:
        """A half-finished write: some of a set are elsewhere, or lost."""
        made = [Hold("s", key, K, each.units, each.node, HoldState(each.state)) for each in members]
        self.devices.put_holds(key, made)
        self.kept[key] = members

    def full_pass(self) -> None:
        for _ in self.sets.full_pass():
            pass
        world = self._world()
        reference_sets.full_pass(world)
        self.kept = world.sets

    # -- comparing ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        world = self._world()
        for node in NODES:
            same(f"used on {node}", self.devices.units.used_on(node, K), world.used_on(node))
        for namespace in NAMESPACES:
            same(f"used in {namespace}", self.devices.units.used_in(namespace, K), world.used_in(namespace))
        for pod in self.pods.values():
            if pod.node is not None:
                launcher = self.devices.launcher_of(pod.namespace, pod.uid)
                same(f"launcher {pod.uid}", launcher, reference.launched_by(world.objects, _launched(pod)))
        have = {each.vmi: _members(each) for each in self.sets.held()}
        same("sets", have, {key: sorted(map(_order, members)) for key, members in self.kept.items()})

    def _world(self) -> HoldWorld:
        pods = [_launched(pod) for pod in self.pods.values() if pod.node is not None]
        objects = reference.World(list(self.vmis.values()), pods)
        return HoldWorld(objects, self.capacity, self.budgets, dict(self.kept))


def _launched(pod: RawRequest) -> Launched:
    return Launched(pod.uid, pod.namespace, pod.name, str(pod.node), dict(pod.units).get(K, 0))


def _members(kept: KeptSet) -> list[tuple[int, str, str]]:
    return sorted((hold.units, hold.node or "", hold.state.value) for hold in kept.holds)


def _order(member: Member) -> tuple[int, str, str]:
    return member.units, member.node or "", member.state


class HolderDriver(ClaimDriver):
    """Draws events of VMIs, whole devices and hold sets beside those of pods, nodes and claims."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.machines = MachineWorld()
        # A source of its own: what is drawn here moves nothing there.
        self.dice = Random(seed)
        self.kinds |= {
            self.change_machine: 25,
            self.end_machine: 8,
            self.change_whole_pod: 30,
            self.end_whole_pod: 12,
            self.change_capacity: 6,
            self.spread_set: 5,
            self.pass_over_sets: 14,
        }
        for name in NODES:
            self.machines.put_node(name, 4)

    def check(self) -> None:
        super().check()
        self.machines.check()

    def change_machine(self) -> set[str]:
        """A VMI appears, starts, moves on, lists or unlists pods, or migrates."""
        dice, key = self.dice, self.dice.choice(MACHINES)
        before = self.machines.vmis.get(key)
        listed = frozenset(dice.sample(PODS, dice.choice((0, 1, 1, 2))))
        migration = None
        if dice.random() < 0.2:
            migration = Migration(dice.choice(PODS), dice.choice(PODS), is_running=dice.random() < 0.7)
        made = VirtualMachineInstance(
            key.namespace,
            key.name,
            f"{key.name}{dice.randrange(20) == 0}",
            dice.choice((None, before.node if before is not None else None, *NODES)),
            listed,
            tuple((K, units) for units in (dice.choice((0, 1, 1, 2, 3)),) if units),
            migration,
            is_over=dice.random() < 0.05,
        )
        self.tell(self.machines.put_vmi, made)
        return self._after()

    def end_machine(self) -> set[str]:
        """A VMI is deleted, perhaps one that is not there."""
        self.tell(self.machines.remove_vmi, self.dice.choice(MACHINES))
        return self._after()

    def change_whole_pod(self) -> set[str]:
        """A pod that wants whole devices waits, is bound, or turns up elsewhere under the same UID."""
        dice, uid = self.dice, self.dice.choice(PODS)
        known = self.machines.pods.get(uid)
        namespace = dice.choice(NAMESPACES) if known is None else known.namespace
        units = dice.choice((1, 1, 2, 4))
        made = RawRequest(uid, namespace, uid, ((K, units),), dice.choice((None, *NODES, "gone")))
        self.tell(self.machines.put_pod, made)
        return self._after()

    def end_whole_pod(self) -> set[str]:
        """Such a pod ends."""
        self.tell(self.machines.remove_pod, self.dice.choice(PODS))
        return self._after()

    def change_capacity(self) -> set[str]:
        """A node has more or fewer devices, comes or goes; or budgets change."""
        dice = self.dice
        what = dice.randrange(4)
        if what == 0:
            self.machines.remove_node(dice.choice(NODES))
        elif what == 1:
            self.machines.set_budgets({name: dice.randint(1, 8) for name in NAMESPACES if dice.random() < 0.6})
        else:
            self.machines.put_node(dice.choice(NODES), dice.choice((0, 2, 4, 4, 8)))
        return self._after()

    def spread_set(self) -> set[str]:
        """A set is found spread over nodes, or partly lost."""
        dice, held = self.dice, sorted(self.machines.kept)
        if held:
            places = dice.choices((None, *NODES, "gone"), k=dice.randint(1, 3))
            # Of each key a VMI's spec makes one hold, so the units of the last one count when it changes.
            states = [reference_sets.LOST if node is None else reference_sets.BOUND for node in places]
            members = [Member(dice.randint(1, 2), *each) for each in zip(places, states, strict=True)]
            self.machines.spread(dice.choice(held), members)
        return self._after()

    def pass_over_sets(self) -> set[str]:
        """A full pass."""
        self.machines.full_pass()
        return self._after()

    def _after(self) -> set[str]:
        if self.is_looked_at():
            self.machines.check()
        return set()


def run(events: int, seed: int, check_every: int, progress: Callable[[int], object] | None = None) -> Summary:
    """Send that many events; what each concerns is compared after it, everything after each `check_every`."""
    return drive(HolderDriver(seed), seed, events, check_every, progress)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description="Random events of everything that holds a card, against the reference."
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    summary = run(arguments.events, arguments.seed, check_every=10_000)
    found = {each.name: getattr(summary, each.name) for each in fields(summary)}
    sys.stdout.write(f"{json.dumps(found, indent=2)}\n")
    return 0 if summary.difference is None else 1


if __name__ == "__main__":
    raise SystemExit(main())
