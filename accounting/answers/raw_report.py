"""Who has whole devices under raw keys, node by node, for people and for checks.

Why it exists: a node that is full says nothing to whom it refuses; the VMs and pods that have its devices do. It must
not judge or know JSON. Invariant: the units of a node's holders of a key add up to what is used of it there.

A device that a VM holds is the VM's, and its launchers have only what they request beyond: `RawDevices.beyond_holds`.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from accounting.holders import Hold, RawDevices, RawRequest

_PER_STEP = 500
_ATTEMPTS = 3
_T = TypeVar("_T")


class UnitHolder(NamedTuple):
    """Who has some units: its kind (`pod`, `vmi`, or `hold` for one with an object of its own), and how many."""

    kind: str
    name: str
    """namespace/name."""
    units: int


class RawReport(NamedTuple):
    """One raw key on one node."""

    node: str
    key: str
    allocatable: int
    used: int
    holders: tuple[UnitHolder, ...]
    """By kind and name."""

    @property
    def free(self) -> int:
        """What is left; negative if more is used than there is."""
        return self.allocatable - self.used


Place = tuple[str, str]
"""Node and raw key."""
Reports = dict[str, tuple[RawReport, ...]]
"""By node; of each its keys in order."""


def raw_reports_in_steps(devices: RawDevices, node: str | None = None) -> Generator[None, None, Reports]:
    """Return what is used of raw keys, by node, in steps. `node`: only there.

    The state is that of the last step: if anything changes meanwhile it begins anew, and at last does it in one step.
    """
    for _ in range(_ATTEMPTS):
        version = devices.version
        found = yield from _reports(devices, node)
        if devices.version == version:
            return found
    return raw_reports(devices, node)


def raw_reports(devices: RawDevices, node: str | None = None) -> Reports:
    """Return what is used of raw keys, by node. `node`: only there."""
    steps = _reports(devices, node)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Reports = end.value
            return found


def _reports(devices: RawDevices, only: str | None) -> Generator[None, None, Reports]:
    holders: dict[tuple[str, str], list[UnitHolder]] = defaultdict(list)
    for pods in _parts(list(devices.pods())):
        for place, holder in _of_pods(devices, pods):
            if only in (None, place[0]):
                holders[place].append(holder)
        yield
    for sets in _parts(list(devices.holds().values())):
        for place, holder in _of_holds(sets):
            if only in (None, place[0]):
                holders[place].append(holder)
        yield
    offered = {(name, key) for key in devices.advertised() for name in devices.allocatable(key) if only in (None, name)}
    found: dict[str, list[RawReport]] = defaultdict(list)
    for part in _parts(sorted(offered | holders.keys())):
        for name, key in part:
            own = tuple(sorted(holders.get((name, key), ())))
            have = devices.allocatable(key).get(name, 0)
            found[name].append(RawReport(name, key, have, sum(each.units for each in own), own))
        yield
    return {name: tuple(reports) for name, reports in found.items()}


def _of_pods(devices: RawDevices, pods: Iterable[RawRequest]) -> Iterator[tuple[Place, UnitHolder]]:
    """Yield what pods have by themselves, and where."""
    for pod in pods:
        if pod.node is not None:
            for key, units in devices.beyond_holds(pod).items():
                if units:
                    yield (pod.node, key), UnitHolder("pod", f"{pod.namespace}/{pod.name}", units)


def _of_holds(sets: Iterable[Iterable[Hold]]) -> Iterator[tuple[Place, UnitHolder]]:
    """Yield who holds what where; what follows from a VMI's spec is the VMI's."""
    found: dict[tuple[Place, str, str], int] = defaultdict(int)
    for hold in chain.from_iterable(sets):
        if hold.node is not None:
            kind, name = ("hold", hold.name) if hold.name else ("vmi", hold.vmi.name)
            found[(hold.node, hold.key), kind, f"{hold.vmi.namespace}/{name}"] += hold.units
    for (place, kind, name), units in found.items():
        yield place, UnitHolder(kind, name, units)


def _parts(values: list[_T]) -> Iterator[list[_T]]:
    rest = iter(values)
    while part := list(islice(rest, _PER_STEP)):
        yield part
