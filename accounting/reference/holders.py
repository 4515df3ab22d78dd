"""The slow reference of raw units and claims, in plain Python, from the objects as they are now.

Why it exists: tests and benchmarks compare the sums that are kept event by event with it. It must not know those sums,
nor indexes. Invariant: everything is computed anew from the lists of objects, so no history can matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accounting.holders import VirtualMachineInstance, VmiKey


@dataclass(frozen=True, slots=True)
class Launched:
    """A pod on a node that is not terminal, with what it requests of one raw key."""

    uid: str
    namespace: str
    name: str
    node: str
    units: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Units of the same raw key that are held for a VMI; `node` is None unless they are Bound."""

    vmi: VmiKey
    units: int
    node: str | None = None


@dataclass(frozen=True, slots=True)
class World:
    """All objects that concern one raw key."""

    vmis: Sequence[VirtualMachineInstance] = ()
    pods: Sequence[Launched] = ()
    kept: Sequence[Kept] = ()


def launched_by(world: World, pod: Launched) -> VmiKey | None:
    """Return the VMI that alone lists a pod's UID, if it is of the pod's namespace."""
    listing = [vmi for vmi in world.vmis if pod.uid in vmi.active_pods]
    if len(listing) != 1 or listing[0].namespace != pod.namespace:
        return None
    return listing[0].key


def used_on(world: World, node: str) -> int:
    """Return the units that are used on a node: per VMI the larger of hold and request, and all other pods."""
    here = [pod for pod in world.pods if pod.node == node]
    kept = [each for each in world.kept if each.node == node]
    return _used(world, here, kept, lambda pod: pod.units)


def used_in(world: World, namespace: str) -> int:
    """Return the units that a namespace's budget is charged for."""
    here = [pod for pod in world.pods if pod.namespace == namespace]
    kept = [each for each in world.kept if each.vmi.namespace == namespace]
    return _used(world, here, kept, lambda pod: _charge(world, pod))


def _used(world: World, pods: Sequence[Launched], kept: Sequence[Kept], amount: Callable[[Launched], int]) -> int:
    total = sum(amount(pod) for pod in pods if launched_by(world, pod) is None)
    for key in {each.vmi for each in kept} | {launched_by(world, pod) for pod in pods} - {None}:
        held = sum(each.units for each in kept if each.vmi == key)
        total += max(held, sum(amount(pod) for pod in pods if launched_by(world, pod) == key))
    return total


def _charge(world: World, pod: Launched) -> int:
    """Return what a pod charges: of a running migration's target only what it requests beyond the source."""
    key = launched_by(world, pod)
    vmi = next((each for each in world.vmis if each.key == key), None)
    migration = None if vmi is None else vmi.migration
    if migration is None or not migration.is_running or pod.name != migration.target_pod:
        return pod.units
    sources = [each for each in world.pods if each.name == migration.source_pod and launched_by(world, each) == key]
    return max(0, pod.units - sum(each.units for each in sources))
