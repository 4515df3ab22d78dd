"""Random pods with the allocation annotations that each version of HAMi writes, and what it really placed.

It exists because accounting reads rows that other schedulers wrote. It must not know how they are read. Invariant: the
texts are those of HAMi's own loops (pkg/scheduler/score.go of v2.7.1, v2.8.3, v2.9.0, v2.10.0 and #2723), whose order
over a Go map is drawn at random.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Any, Final, NamedTuple

from accounting.pod import Allocation, Container, ContainerKind, DeviceRow, Pod
from accounting.vendor import NVIDIA, Vendor
from accounting.vendors import HYGON

VENDORS: Final = (NVIDIA, HYGON)


class Version(StrEnum):
    """Who wrote the rows."""

    V2_7 = "2.7.1"
    V2_8 = "2.8.3"
    V2_9 = "2.9.0"
    V2_10 = "2.10.0"
    V2_10_PADDED = "2.10.0 where a card's model is the vendor's key"
    AFTER_2723 = "2.10.0 with #2723"


#: These versions know app containers only.
_APPS_ONLY: Final = (Version.V2_7, Version.V2_8)
#: These versions move rows of pods that ask for several vendors' cards, and repeat some.
_OLD_LOOP: Final = (*_APPS_ONLY, Version.V2_9)
_NAMES: Final = {ContainerKind.INIT: "init", ContainerKind.SIDECAR: "sidecar", ContainerKind.APP: "app"}

#: Vendor key -> rows.
_Devices = dict[str, list[DeviceRow]]


class WrittenPod(NamedTuple):
    """A pod as the API server has it, and what it really holds."""

    version: Version
    manifest: dict[str, Any]
    placed: Pod
    """The containers, with the rows that they really got."""
    exact: bool
    """Whether reading must give exactly `placed`.

    Not if the writer has made a fault, or if a request means something to HAMi only.
    """


class _Asked(NamedTuple):
    kind: ContainerKind
    limits: dict[str, str]
    devices: _Devices
    """The devices that HAMi places for it."""
    misread: bool
    """Whether its request means something to HAMi only."""


def written_pod(random: Random, version: Version) -> WrittenPod:
    """Return one pod that a version wrote."""
    vendors = VENDORS if random.random() < 0.15 else VENDORS[:1]
    containers = [_asked(random, kind, vendors) for kind in _kinds(random)]
    if version in _APPS_ONLY:
        containers = [each if each.kind is ContainerKind.APP else each._replace(devices={}) for each in containers]
    if not any(each.devices for each in containers):
        containers[-1] = _asked(random, ContainerKind.APP, VENDORS[:1], always=True)
    keys = {key for each in containers for key in each.devices}
    containers = [each._replace(limits=_of_vendors(each.limits, keys)) for each in containers]
    rows = _rows(random, version, containers)
    placed = _placed(containers)
    exact = (version not in _OLD_LOOP or len(keys) == 1) and not any(each.misread for each in containers)
    return WrittenPod(version, _manifest(containers, rows), placed, exact)


def _of_vendors(limits: dict[str, str], keys: set[str]) -> dict[str, str]:
    """Return what is asked of these vendors. A vendor that placed nothing has no annotation at all."""
    names = {name for vendor in VENDORS if vendor.key in keys for name in vendor.resources}
    return {name: value for name, value in limits.items() if name in names}


def _kinds(random: Random) -> list[ContainerKind]:
    before = random.choices((ContainerKind.INIT, ContainerKind.SIDECAR), k=random.choice((0, 0, 1, 1, 2, 3)))
    return [*before, *(ContainerKind.APP,) * random.choice((1, 1, 1, 2, 2, 3))]


def _asked(random: Random, kind: ContainerKind, vendors: tuple[Vendor, ...], *, always: bool = False) -> _Asked:
    limits: dict[str, str] = {}
    devices: _Devices = {}
    misread = False
    for vendor in vendors:
        if not always and random.random() < 0.4:
            continue
        count = random.choice((1, 1, 1, 2, 3))
        memory, cores = random.randint(1, 9000), random.choice((0, 10, 25, 50, 100))
        limits |= {
            vendor.count_resource: str(count),
            vendor.memory_resource: str(memory),
            vendor.cores_resource: str(cores),
        }
        odd = random.random() if not always else 1.0
        if odd < 0.03 and vendor is NVIDIA:
            del limits[vendor.memory_resource]
            limits[vendor.memory_percentage_resource] = "150"
            misread = True
        elif odd < 0.06:
            limits[vendor.memory_resource] = "16Gi"
            misread = True
            continue
        cards = random.sample([f"{vendor.key}-{at}" for at in range(6)], count)
        devices[vendor.key] = [DeviceRow(card, memory, cores) for card in cards]
    return _Asked(kind, limits, devices, misread)


def _rows(random: Random, version: Version, containers: list[_Asked]) -> dict[str, list[list[DeviceRow]]]:
    """Return vendor key -> rows, as the version makes them."""
    if version in _APPS_ONLY:
        return _old_loop(random, [each.devices for each in containers if each.kind is ContainerKind.APP])
    if version is Version.V2_9:
        return _old_loop(random, [each.devices for each in containers])
    keys = {key for each in containers for key in each.devices}
    if version is Version.V2_10:
        return {key: [each.devices[key] for each in containers if key in each.devices] for key in keys}
    return {key: [each.devices.get(key, []) for each in containers] for key in keys}


def _old_loop(random: Random, containers: list[_Devices]) -> dict[str, list[list[DeviceRow]]]:
    rows: dict[str, list[list[DeviceRow]]] = {}
    last = ""
    for at, devices in enumerate(containers):
        if not devices and last:
            rows[last].append([])
            continue
        so_far: list[DeviceRow] = []
        for key in random.sample(sorted(devices), len(devices)):
            so_far = so_far + devices[key]
            rows.setdefault(key, []).append(so_far)
        for key in random.sample(sorted(rows), len(rows)):
            last = key
            rows[key] = [[]] * (at + 1 - len(rows[key])) + rows[key]
    return rows


def _placed(containers: list[_Asked]) -> Pod:
    allocation: Allocation = tuple(tuple(row for rows in each.devices.values() for row in rows) for each in containers)
    kinds = tuple(Container(f"{_NAMES[each.kind]}-{at}", each.kind) for at, each in enumerate(containers))
    return Pod("uid", "team", "p", kinds, node="n", allocation=allocation)


def _manifest(containers: list[_Asked], rows: dict[str, list[list[DeviceRow]]]) -> dict[str, Any]:
    """Return the pod as JSON."""
    specs: dict[str, list[dict[str, Any]]] = {"initContainers": [], "containers": []}
    for at, each in enumerate(containers):
        spec: dict[str, Any] = {"name": f"{_NAMES[each.kind]}-{at}", "resources": {"limits": each.limits}}
        if each.kind is ContainerKind.SIDECAR:
            spec["restartPolicy"] = "Always"
        specs["containers" if each.kind is ContainerKind.APP else "initContainers"].append(spec)
    texts = {
        vendor.devices_allocated_annotation: encoded(rows[vendor.key], vendor.key)
        for vendor in VENDORS
        if vendor.key in rows
    }
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "uid", "annotations": texts},
        "spec": {"nodeName": "n", **specs},
        "status": {"phase": "Running"},
    }


def encoded(rows: list[list[DeviceRow]], vendor: str) -> str:
    """Return rows in HAMi's format (pkg/device/devices.go), which is the same in all versions."""
    return "".join("".join(f"{uuid},{vendor},{memory},{cores}:" for uuid, memory, cores in own) + ";" for own in rows)
