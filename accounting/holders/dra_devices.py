"""Devices of dynamic resource allocation (DRA), and the card of each.

Why it exists: drivers publish devices in ResourceSlices under their own names, while annotated pods hold cards by UUID;
both must count on the same card. It must not know claims or the wire. Invariants: a device is identified by (driver,
pool, device); only slices of a pool's highest generation are read; a device is remembered after its slice is gone until
the table's owner drops it, because a claim may still refer to it.

Source: resource.k8s.io/v1 (KEP-4381, KEP-4815); drivers gpu.nvidia.com and hami-core-gpu.project-hami.io. A device's
card is found, in this order, by: `parentUUID` of a MIG device; the PCI address of a VFIO device, whose `uuid` is
derived from that address; `uuid`; the name of the sibling device `gpu-<minor>`; what was known before.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

NVIDIA_DRIVER = "gpu.nvidia.com"
HAMI_DRIVER = "hami-core-gpu.project-hami.io"
#: Drivers whose devices are GPUs; devices of other drivers (NICs and so on) do not concern cards.
GPU_DRIVERS = frozenset({NVIDIA_DRIVER, HAMI_DRIVER})
_STANDARD_DOMAIN = "resource.kubernetes.io"
_SIBLING = re.compile(r"(?:hami-)?(?P<gpu>gpu-\d+)(?:-mig-.*)?", re.ASCII)
_MIG_NAME = re.compile(r"(?P<gpu>gpu-\d+)-mig-(?P<profile>.+)-\d+-\d+", re.ASCII)
_WHOLE_MIG = "7g"


class DeviceKind(StrEnum):
    """Which part of a card a DRA device is."""

    GPU = "gpu"
    MIG = "mig"
    VFIO = "vfio"
    SHARED = "hami-gpu"


_KINDS = {kind.value: kind for kind in DeviceKind}


class DeviceId(NamedTuple):
    """The identity of a DRA device."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One device of a slice. Names of attributes and capacities may have a domain or not."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    """Capacities in whole units; memory in bytes."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice. `node`: its nodeName, None for devices that do not belong to a single node."""

    name: str
    driver: str
    pool: str
    generation: int
    node: str | None = None
    devices: tuple[SliceDevice, ...] = ()


class Card(NamedTuple):
    """What is known of a DRA device: its card's UUID, its place, and its share of the card."""

    uuid: str
    node: str | None
    kind: DeviceKind
    memory_bytes: int = 0
    multiprocessors: int = 0
    """The number for a MIG device; 0 if the driver does not say."""


class DeviceTable:
    """All devices of known slices, and those that claims still refer to."""

    def __init__(self) -> None:
        self._slices: dict[str, Slice] = {}
        self._by_pool: dict[tuple[str, str], dict[str, Slice]] = {}
        self._cards: dict[DeviceId, Card] = {}  # including devices that are gone
        self._by_pci: dict[tuple[str, str], str] = {}  # pool, PCI address -> card UUID, including devices that are gone
        self._nodes: dict[tuple[str, str], str] = {}  # driver, pool -> node

    def put(self, new: Slice) -> tuple[str, str]:
        """Record a slice as it is now. Returns its (driver, pool); the claims on it must be counted again."""
        self._drop(new.name)
        self._slices[new.name] = new
        pool = new.driver, new.pool
        self._by_pool.setdefault(pool, {})[new.name] = new
        if new.node is not None:
            self._nodes[pool] = new.node
        self._read(pool)
        return pool

    def remove(self, name: str) -> tuple[str, str] | None:
        """Record that a slice is gone; its devices stay known. Returns its (driver, pool)."""
        return self._drop(name)

    def card(self, device: DeviceId) -> Card | None:
        """Return the card of a device; None if it was never known."""
        return self._cards.get(device) or self._by_sibling(device)

    def node_of(self, driver: str, pool: str) -> str | None:
        """Return the node of a pool's slices; None if no slice has named one."""
        return self._nodes.get((driver, pool))

    def whole_multiprocessors(self, uuid: str) -> int:
        """Return the multiprocessors of a card's largest MIG profile (7g); 0 if no slice has named it."""
        return max((card.multiprocessors for card in self._whole_profiles(uuid)), default=0)

    def devices_on(self, uuid: str) -> list[DeviceId]:
        """Return the devices of current slices that are this card or parts of it, sorted."""
        current = {DeviceId(each.driver, each.pool, device.name) for each in self._current() for device in each.devices}
        return sorted(device for device in current if (card := self._cards.get(device)) and card.uuid == uuid)

    def forget_unused(self, referred: Collection[DeviceId]) -> None:
        """Drop devices that no current slice has and no claim refers to."""
        current = {
            DeviceId(each.driver, each.pool, device.name) for each in self._slices.values() for device in each.devices
        }
        for device in [known for known in self._cards if known not in current and known not in referred]:
            del self._cards[device]

    def _drop(self, name: str) -> tuple[str, str] | None:
        known = self._slices.pop(name, None)
        if known is None:
            return None
        pool = known.driver, known.pool
        del self._by_pool[pool][name]
        if not self._by_pool[pool]:
            del self._by_pool[pool]
        return pool

    def _current(self) -> list[Slice]:
        return [each for pool in self._by_pool for each in self._newest(pool)]

    def _newest(self, pool: tuple[str, str]) -> list[Slice]:
        """Return a pool's slices of its highest generation; older generations no longer apply."""
        slices = self._by_pool.get(pool, {}).values()
        highest = max((each.generation for each in slices), default=0)
        return [each for each in slices if each.generation == highest]

    def _read(self, pool: tuple[str, str]) -> None:
        """Find the cards of a pool's devices: whole cards first, since others are found by them."""
        devices = [(each, device) for each in self._newest(pool) for device in each.devices]
        devices.sort(key=lambda pair: (_kind(pair[1]) is not DeviceKind.GPU, pair[1].name))
        for each, device in devices:
            self._learn(each, device)

    def _learn(self, owner: Slice, device: SliceDevice) -> None:
        kind, uuid = _kind(device), self._uuid(owner, device)
        pci = _attribute(device.attributes, owner.driver, "pciBusID")
        if uuid and pci and kind is not DeviceKind.VFIO:
            self._by_pci[owner.pool, pci] = uuid
        if not uuid:
            return
        memory = _capacity(device, owner.driver, "addressableMemory" if kind is DeviceKind.VFIO else "memory")
        card = Card(uuid, owner.node, kind, memory, _capacity(device, owner.driver, "multiprocessors"))
        self._cards[DeviceId(owner.driver, owner.pool, device.name)] = card

    def _uuid(self, owner: Slice, device: SliceDevice) -> str:
        """Return the UUID of the card of a slice's device; "" if it cannot be found."""
        kind = _kind(device)
        if kind is DeviceKind.MIG:
            parent = _attribute(device.attributes, owner.driver, "parentUUID")
            return parent or self._sibling_uuid(DeviceId(owner.driver, owner.pool, device.name))
        if kind is DeviceKind.VFIO:
            return self._by_pci.get((owner.pool, _attribute(device.attributes, owner.driver, "pciBusID")), "")
        return _attribute(device.attributes, owner.driver, "uuid")

    def _by_sibling(self, device: DeviceId) -> Card | None:
        """Return a device that no slice has named, by the card that its name refers to."""
        uuid = self._sibling_uuid(device)
        if not uuid:
            return None
        kind = DeviceKind.MIG if _MIG_NAME.fullmatch(device.device) else DeviceKind.SHARED
        return Card(uuid, self.node_of(device.driver, device.pool) or self._node_of_pool(device.pool), kind)

    def _sibling_uuid(self, device: DeviceId) -> str:
        matched = _SIBLING.fullmatch(device.device)
        if matched is None:
            return ""
        for driver in (device.driver, NVIDIA_DRIVER):
            card = self._cards.get(DeviceId(driver, device.pool, matched["gpu"]))
            if card is not None:
                return card.uuid
        return ""

    def _node_of_pool(self, pool: str) -> str | None:
        return next(
            (self._nodes[driver, pool] for driver in sorted(GPU_DRIVERS) if (driver, pool) in self._nodes), None
        )

    def _whole_profiles(self, uuid: str) -> list[Card]:
        return [
            card
            for device, card in self._cards.items()
            if card.uuid == uuid
            and (named := _MIG_NAME.fullmatch(device.device))
            and named["profile"].startswith(_WHOLE_MIG)
        ]


def _kind(device: SliceDevice) -> DeviceKind:
    """Return which part of a card a device is: by its attribute `type`, else by its name."""
    text = _attribute(device.attributes, NVIDIA_DRIVER, "type") or _attribute(device.attributes, HAMI_DRIVER, "type")
    if text in _KINDS:
        return _KINDS[text]
    if device.name.startswith("gpu-vfio-"):
        return DeviceKind.VFIO
    return DeviceKind.MIG if _MIG_NAME.fullmatch(device.name) else DeviceKind.GPU


def _attribute(attributes: Mapping[str, str], driver: str, name: str) -> str:
    """Return an attribute by its short name, in the driver's domain or the standard one; "" if it is absent."""
    for spelled in (name, f"{driver}/{name}", f"{_STANDARD_DOMAIN}/{name}"):
        if spelled in attributes:
            return attributes[spelled]
    return ""


def _capacity(device: SliceDevice, driver: str, name: str) -> int:
    for spelled in (name, f"{driver}/{name}"):
        if spelled in device.capacity:
            return device.capacity[spelled]
    return 0
