"""Whole devices under raw keys, as they stand now: who has them, where there is room, and what budgets say.

Why it exists: filter, bind, admission, the options and the usage records must agree on which pod is a launcher, and on
what is free, so all of them ask this one place. It must not know arrays, annotations, files or the wire. Invariants:
`launcher_of` alone decides which pod is a launcher; asking changes nothing; putting the same again changes nothing, not
even `version`; a node that does not say how many it has, has none.
"""

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from types import MappingProxyType

from accounting.holders.hold import Hold, holds_of, still_held
from accounting.holders.raw_units import RawPod, RawUnits, Units
from accounting.holders.raw_values import (
    ANY_NAMESPACE,
    NOTHING,
    Budgets,
    OverBudget,
    Promised,
    RawRequest,
    Shortage,
    order_key,
)
from accounting.holders.virtual_machine import Launchers, VirtualMachineInstance, VmiKey


class RawDevices:
    """Pods, VMIs, nodes and budgets, as far as raw keys are concerned."""

    def __init__(self, *, derives: bool = True, decides: bool = False) -> None:
        """`derives`: holds follow from VMIs' specs. `decides`: passes decide on their nodes, as `hold_sets` says."""
        self._derives = derives
        self._decides = decides
        self.version = 0
        """Changes with every answer that may change."""
        self.units = RawUnits()
        self._launchers = Launchers()
        self._pods: dict[str, RawRequest] = {}
        self._vmis: dict[VmiKey, VirtualMachineInstance] = {}
        self._holds: dict[VmiKey, tuple[Hold, ...]] = {}
        self._capacity: dict[str, dict[str, int]] = {}  # raw key -> node -> allocatable
        self._budgets: Budgets = MappingProxyType({})

    # -- asking ---------------------------------------------------------------------------------------------------

    def launcher_of(self, namespace: str, uid: str) -> VmiKey | None:
        """Return the VMI that a pod is a launcher of; None for every other pod, whatever it says of itself (REQ-C1)."""
        return self._launchers.vmi_of(namespace, uid)

    def listers_of(self, uid: str) -> frozenset[VmiKey]:
        """Return the VMIs that list a pod, whether or not it is a launcher of one of them."""
        return self._launchers.listers_of(uid)

    def allocatable(self, key: str) -> Mapping[str, int]:
        """Return the nodes that have devices of a key, and how many."""
        return self._capacity.get(key, MappingProxyType({}))

    def advertised(self) -> list[str]:
        """Return the keys that some node has, sorted."""
        return sorted(key for key, nodes in self._capacity.items() if nodes)

    def vmis(self) -> Iterable[VirtualMachineInstance]:
        """Return all VMIs, in no order."""
        return self._vmis.values()

    def vmi(self, key: VmiKey) -> VirtualMachineInstance | None:
        """Return a VMI."""
        return self._vmis.get(key)

    def pods(self) -> Iterable[RawRequest]:
        """Return all pods, in no order."""
        return self._pods.values()

    def pod(self, uid: str) -> RawRequest | None:
        """Return what is recorded of a pod."""
        return self._pods.get(uid)

    def holds(self) -> Mapping[VmiKey, tuple[Hold, ...]]:
        """Return what is held for each VMI."""
        return self._holds

    def has_pods(self, key: VmiKey) -> bool:
        """Whether a VMI lists pods that are known."""
        vmi = self._vmis.get(key)
        return vmi is not None and not vmi.active_pods.isdisjoint(self._pods.keys())

    def budgets(self) -> Budgets:
        """Return the budgets in force."""
        return self._budgets

    def hard(self, namespace: str, key: str) -> int | None:
        """Return what a namespace may have of a key; None: as much as there is."""
        own = self._budgets.get((namespace, key))
        return self._budgets.get((ANY_NAMESPACE, key)) if own is None else own

    def shortages(self, pod: RawRequest, node: str, promised: Promised = NOTHING) -> tuple[Shortage, ...]:
        """Return why a pod has no room on a node, one entry per key; empty if it has (REQ-C3, REQ-C5)."""
        candidate = self._candidate(pod, node)
        found = (self._shortage(candidate, key, node, promised.get((node, key), 0)) for key, _ in pod.units)
        return tuple(each for each in found if each.adds > max(0, each.free))

    def new_units(self, pod: RawRequest, node: str) -> dict[str, int]:
        """Return the units that a pod would add on a node, by key."""
        candidate = self._candidate(pod, node)
        return {key: self.units.new_units(candidate, key) for key, _ in pod.units}

    def new_charges(self, pod: RawRequest) -> dict[str, int]:
        """Return the units that a pod would add to its namespace's budgets, by key."""
        candidate = self._candidate(pod, pod.node or "")
        return {key: self.units.new_charge(candidate, key) for key, _ in pod.units}

    def judged(self, pod: RawRequest) -> dict[str, Shortage | None]:
        """Return the nodes that have devices of a pod's first key: None where it has room, else what is short there."""
        (key, units), *others = pod.units
        near, used = self._near(pod), self.units.of_key(key)
        found: dict[str, Shortage | None] = {}
        for node, have in self.allocatable(key).items():
            if others or node in near:
                found[node] = next(iter(self.shortages(pod, node)), None)
                continue
            taken = used.get(node, 0)
            found[node] = None if units <= have - taken else Shortage(key, units, have, taken)
        return found

    def preferred(self, pod: RawRequest, nodes: Iterable[str], most: int) -> list[str]:
        """Return the best of some nodes with room: those where nothing new is needed, then the fullest (REQ-P1)."""
        near = self._near(pod)
        if len(pod.units) > 1:
            return nsmallest(most, nodes, key=lambda node: self._order(pod, node, is_near=node in near))
        ((key, units),) = pod.units
        have, used = self.allocatable(key), self.units.of_key(key)
        ordered = nsmallest(
            most,
            (
                self._order(pod, node, is_near=True)
                if node in near
                else _order_of(units, have.get(node, 0), used.get(node, 0), node)
                for node in nodes
            ),
        )
        return [each[-1] for each in ordered]

    def _order(self, pod: RawRequest, node: str, *, is_near: bool) -> tuple[bool, int, int, str]:
        candidate = self._candidate(pod, node) if is_near else None
        adds = left = capacity = 0
        for key, units in pod.units:
            have = self.allocatable(key).get(node, 0)
            new = units if candidate is None else self.units.new_units(candidate, key)
            taken = self.units.used_on(node, key) if candidate is None else self.units.used_without(candidate, key)
            adds, left, capacity = adds + new, left + have - taken - new, capacity + have
        return order_key(adds, left, capacity, node)

    def _near(self, pod: RawRequest) -> set[str]:
        """Return the nodes where something is held for a pod's VM, or the VM's pods or the pod itself are."""
        known, key = self._pods.get(pod.uid), self.launcher_of(pod.namespace, pod.uid)
        found = {None if known is None else known.node}
        if key is not None:
            found |= {hold.node for hold in self._holds.get(key, ())}
            found |= {self._pods[uid].node for uid in self._vmis[key].active_pods if uid in self._pods}
        return {node for node in found if node is not None}

    def beyond_holds(self, pod: RawRequest) -> dict[str, int]:
        """Return the units that a pod on a node has by itself, by key: what its VM holds there is not its own.

        The credit is shared by the VM's pods there, in the order of their UIDs.
        """
        vmi = self.launcher_of(pod.namespace, pod.uid)
        if vmi is None or pod.node is None:
            return dict(pod.units)
        found = {}
        listed = (self._pods[uid] for uid in self._vmis[vmi].active_pods if uid in self._pods and uid < pod.uid)
        before = [each for each in listed if each.node == pod.node and self._is_of(each, vmi)]
        for key, units in pod.units:
            credit = sum(h.units for h in self._holds.get(vmi, ()) if (h.node, h.key) == (pod.node, key))
            credit -= sum(dict(each.units).get(key, 0) for each in before)
            found[key] = units - min(units, max(0, credit))
        return found

    def over_budget(self, pod: RawRequest, promised: Promised = NOTHING) -> tuple[OverBudget, ...]:
        """Return the budgets that a pod would pass wherever it goes (REQ-C6)."""
        candidate = self._candidate(pod, pod.node or "")
        found = []
        for key, _ in pod.units:
            hard = self.hard(pod.namespace, key)
            used, adds = self.units.charged_without(candidate, key), self.units.new_charge(candidate, key)
            used += promised.get((pod.namespace, key), 0)
            if hard is not None and adds and used + adds > hard:
                found.append(OverBudget(pod.namespace, key, hard, used, adds))
        return tuple(found)

    def vmi_over_budget(self, vmi: VirtualMachineInstance) -> tuple[OverBudget, ...]:
        """Return the budgets that a VM's devices would pass, beyond those that it has already."""
        known = dict(self._vmis[vmi.key].units) if vmi.key in self._vmis else {}
        found = []
        for key, units in vmi.units:
            hard, adds = self.hard(vmi.namespace, key), max(0, units - known.get(key, 0))
            used = self.units.used_in(vmi.namespace, key)
            if hard is not None and adds and used + adds > hard:
                found.append(OverBudget(vmi.namespace, key, hard, used, adds, "the VM"))
        return tuple(found)

    # -- changing -------------------------------------------------------------------------------------------------

    def put_node(self, name: str, allocatable: Mapping[str, int]) -> None:
        """Record how many devices of each raw key a node has; keys that are not named it has none of."""
        for key, nodes in self._capacity.items():
            if name in nodes and key not in allocatable:
                del nodes[name]
                self.version += 1
        for key, units in allocatable.items():
            nodes = self._capacity.setdefault(key, {})
            if nodes.get(name) != units:
                nodes[name] = units
                self.version += 1

    def remove_node(self, name: str) -> None:
        """Record that a node is gone."""
        self.put_node(name, MappingProxyType({}))

    def set_budgets(self, budgets: Budgets) -> None:
        """Let these budgets be in force."""
        if budgets != self._budgets:
            self._budgets = MappingProxyType(dict(budgets))
            self.version += 1

    def put_pod(self, pod: RawRequest) -> None:
        """Record a pod that is not terminal."""
        known = self._pods.get(pod.uid)
        if known == pod:
            return
        self._pods[pod.uid] = pod
        if pod.node is None and (known is None or known.node is None):
            # A pod that waits has nothing, so nobody's answer changes.
            return
        self._count_alone(pod)
        self._count_beside(pod)
        self.version += 1

    def remove_pod(self, uid: str) -> None:
        """Record that a pod is terminal or gone."""
        known = self._pods.pop(uid, None)
        if known is not None and known.node is not None:
            self.units.remove_pod(uid)
            self._count_beside(known)
            self.version += 1

    def put_vmi(self, vmi: VirtualMachineInstance) -> bool:
        """Record a VMI as it is now; returns whether anything follows from what is new."""
        key = vmi.key
        before = self._vmis.get(key)
        if before == vmi:
            return False
        self._vmis[key] = vmi
        self._launchers.put(vmi)
        if self._derives:
            kept = self._holds.get(key, ())
            self.put_holds(key, still_held(vmi, before, kept) if self._decides else holds_of(vmi))
        self._count_all(vmi.active_pods if before is None else vmi.active_pods | before.active_pods)
        return True

    def remove_vmi(self, key: VmiKey) -> bool:
        """Record that a VMI is gone, and with it what was held for it; returns whether it was known."""
        before = self._vmis.pop(key, None)
        if before is None:
            return False
        self._launchers.remove(key)
        if self._derives:
            self.put_holds(key, ())
        self._count_all(before.active_pods)
        return True

    def put_holds(self, key: VmiKey, holds: Iterable[Hold]) -> None:
        """Replace what is held for a VMI."""
        now = tuple(holds)
        if self._holds.get(key, ()) == now:
            return
        if now:
            self._holds[key] = now
        else:
            del self._holds[key]
        self.units.put_holds(key, now)
        self.version += 1

    # -- parts ----------------------------------------------------------------------------------------------------

    def _candidate(self, pod: RawRequest, node: str) -> RawPod:
        """Return a pod as it would count on a node."""
        vmi = self.launcher_of(pod.namespace, pod.uid)
        return RawPod(pod.uid, pod.namespace, node, pod.units, vmi, self._migrates_from(pod, vmi))

    def _migrates_from(self, pod: RawRequest, key: VmiKey | None) -> Units:
        """Return what the source pod requests, if this is the target of a migration that is running."""
        migration = None if key is None else self._vmis[key].migration
        if key is None or migration is None or not migration.is_running or pod.name != migration.target_pod:
            return ()
        for uid in sorted(self._vmis[key].active_pods):
            source = self._pods.get(uid)
            if source is not None and source.name == migration.source_pod and self._is_of(source, key):
                return source.units
        return ()

    def _is_of(self, pod: RawRequest, key: VmiKey) -> bool:
        return pod.node is not None and self.launcher_of(pod.namespace, pod.uid) == key

    def _shortage(self, candidate: RawPod, key: str, node: str, promised: int) -> Shortage:
        used = self.units.used_without(candidate, key) + promised
        return Shortage(key, self.units.new_units(candidate, key), self.allocatable(key).get(node, 0), used)

    def _count_beside(self, pod: RawRequest) -> None:
        """Count those again whose charge depends on a pod."""
        key = self.launcher_of(pod.namespace, pod.uid)
        if key is not None and self._vmis[key].migration is not None:
            self._count_all(self._vmis[key].active_pods - {pod.uid})

    def _count_all(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if uid in self._pods:
                # Also for one that is on no node yet: whom a VMI lists decides where it has room.
                self.version += 1
                self._count_alone(self._pods[uid])

    def _count_alone(self, pod: RawRequest) -> None:
        if pod.node is None:
            self.units.remove_pod(pod.uid)
        else:
            self.units.put_pod(self._candidate(pod, pod.node))


def _order_of(adds: int, have: int, taken: int, node: str) -> tuple[bool, int, int, str]:
    """Return the order of a node for a pod of one key."""
    return order_key(adds, have - taken - adds, have, node)
