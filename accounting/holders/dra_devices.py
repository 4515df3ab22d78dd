"""Devices of dynamic resource allocation (DRA), and the card of each.

Why it exists: drivers publish devices in ResourceSlices under their own names, while annotated pods hold cards by UUID;
both must count on the same card. It must not know claims or the wire. Invariants: a device is identified by (driver,
pool, device); only slices of a pool's highest generation are read; a device is remembered after its slice is gone until
the table's owner drops it, because a claim may still refer to it. Pools are usually named after nodes, so what concerns
one pool costs the same in a large cluster.

Source: resource.k8s.io/v1 (KEP-4381, KEP-4815); drivers gpu.nvidia.com and hami-core-gpu.project-hami.io. A device's
card is found, in this order, by: `parentUUID` of a MIG device; the PCI address of a VFIO device, whose `uuid` is
derived from that address; `uuid`; the name of the sibling device `gpu-<minor>`; what was known before.
"""

import re
from collections.abc import Mapping
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
    count: int = 1
    """How many slices of this generation the pool has."""


class Card(NamedTuple):
    """What is known of a DRA device: its card's UUID, its place, and its share of the card."""

    uuid: str
    node: str | None
    kind: DeviceKind
    memory_bytes: int = 0
    multiprocessors: int = 0
    """The number for a MIG device; 0 if the driver does not say."""


class DeviceTable:
    """Every device of the slices that are known, and those that claims still refer to.

    Slices of drivers that have no GPUs are not kept.
    """

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}  # pool name -> the pools of that name, of all drivers
        self._pool_of: dict[str, str] = {}  # slice name -> pool name
        self._on: dict[str | None, dict[str, int]] = {}  # node; None: any -> pool name -> how many slices name the node

    def put(self, new: Slice) -> set[str]:
        """Record a slice as it is now. Returns the names of the pools whose claims must be counted again."""
        concerned = self.remove(new.name)
        if new.driver not in GPU_DRIVERS:
            return concerned
        self._pool_of[new.name] = new.pool
        pool = self._pools.get(new.pool)
        if pool is None:
            pool = self._pools[new.pool] = _Pool()
        pool.put(new)
        pools = self._on.setdefault(new.node, {})
        pools[new.pool] = pools.get(new.pool, 0) + 1
        return concerned | {new.pool}

    def remove(self, name: str) -> set[str]:
        """Record that a slice is gone; what its devices were stays known. Returns the pools as `put` does."""
        known = self._pool_of.pop(name, None)
        if known is None:
            return set()
        node = self._pools[known].remove(name).node
        pools = self._on[node]
        pools[known] -= 1
        if not pools[known]:
            del pools[known]
        if not pools:
            del self._on[node]
        return {known}

    def names(self) -> set[str]:
        """Return the names of the slices."""
        return set(self._pool_of)

    def slice(self, name: str) -> Slice | None:
        """Return a slice."""
        pool = self._pool_of.get(name)
        return None if pool is None else self._pools[pool].slices.get(name)

    def card(self, device: DeviceId) -> Card | None:
        """Return the card that a device is; None if that was never known."""
        pool = self._pools.get(device.pool)
        return None if pool is None else pool.card(device)

    def node_of(self, driver: str, pool: str) -> str | None:
        """Return the node of a pool's slices; None if none was seen that names one."""
        known = self._pools.get(pool)
        return None if known is None else known.nodes.get(driver)

    def whole_multiprocessors(self, pool: str, uuid: str) -> int:
        """Return the multiprocessors of a card's largest MIG profile (7g); 0 where no slice has named it."""
        known = self._pools.get(pool)
        return 0 if known is None else known.whole_multiprocessors(uuid)

    def is_on(self, node: str) -> bool:
        """Whether slices name devices that may be on a node."""
        return node in self._on or None in self._on

    def pools_on(self, node: str) -> set[str]:
        """Return the pools whose slices name a node."""
        return set(self._on.get(node, ()))

    def pool_of(self, name: str) -> str:
        """Return the pool of a slice; "" if it is not known."""
        return self._pool_of.get(name, "")

    def nodes_of(self, pool: str) -> set[str]:
        """Return the nodes that a pool's slices name."""
        known = self._pools.get(pool)
        return set() if known is None else {each.node for each in known.slices.values() if each.node is not None}

    def devices_on(self, node: str, uuid: str) -> list[DeviceId]:
        """Return the devices of current slices on a node that are this card or a part of it, sorted."""
        return sorted(
            device
            for pool in (self._pools[name] for name in self._on.get(node, ()))
            for device in pool.current_ids()
            if (card := pool.cards.get(device)) is not None and card.uuid == uuid and card.node == node
        )

    def forget_gone(self, pool: str) -> None:
        """Drop what is known of a pool's devices that no slice has any more. No claim refers to any of them."""
        known = self._pools.get(pool)
        if known is None:
            return
        known.forget_gone()
        if not known.slices:
            del self._pools[pool]


class _Pool:
    """The pools of one name, of all drivers: a card's devices may be of several, and name one another."""

    __slots__ = ("by_pci", "cards", "nodes", "slices")

    def __init__(self) -> None:
        self.slices: dict[str, Slice] = {}  # by name
        self.cards: dict[DeviceId, Card] = {}  # also of devices that are gone
        self.by_pci: dict[str, str] = {}  # PCI address -> card UUID, also of devices that are gone
        self.nodes: dict[str, str] = {}  # driver -> node

    def put(self, new: Slice) -> None:
        self.slices[new.name] = new
        if new.node is not None:
            self.nodes[new.driver] = new.node
        self._read()

    def remove(self, name: str) -> Slice:
        return self.slices.pop(name)

    def card(self, device: DeviceId) -> Card | None:
        return self.cards.get(device) or self._by_sibling(device)

    def whole_multiprocessors(self, uuid: str) -> int:
        return max(
            (
                card.multiprocessors
                for device, card in self.cards.items()
                if card.uuid == uuid and card.kind is DeviceKind.MIG and _is_whole(device.device)
            ),
            default=0,
        )

    def current_ids(self) -> set[DeviceId]:
        return {DeviceId(each.driver, each.pool, device.name) for each in self._newest() for device in each.devices}

    def forget_gone(self) -> None:
        current = {
            DeviceId(each.driver, each.pool, device.name) for each in self.slices.values() for device in each.devices
        }
        incomplete = self._incomplete()
        for device in self.cards.keys() - current:
            if device.driver not in incomplete:
                del self.cards[device]

    def _incomplete(self) -> set[str]:
        """Return the drivers of which slices of the highest generation are missing: what these name is not gone."""
        seen: dict[str, list[Slice]] = {}
        for each in self._newest():
            seen.setdefault(each.driver, []).append(each)
        return {driver for driver, own in seen.items() if len(own) < max(each.count for each in own)}

    def _newest(self) -> list[Slice]:
        """Return the slices of each driver's highest generation. An older generation says nothing any more."""
        highest: dict[str, int] = {}
        for each in self.slices.values():
            highest[each.driver] = max(each.generation, highest.get(each.driver, 0))
        return [each for each in self.slices.values() if each.generation == highest[each.driver]]

    def _read(self) -> None:
        """Learn what the devices are: whole cards first, since others are found by them."""
        devices = [(each, device, _kind(device)) for each in self._newest() for device in each.devices]
        devices.sort(key=lambda found: (found[2] is not DeviceKind.GPU, found[1].name))
        for each, device, kind in devices:
            self._learn(each, device, kind)

    def _learn(self, owner: Slice, device: SliceDevice, kind: DeviceKind) -> None:
        identity = DeviceId(owner.driver, owner.pool, device.name)
        uuid, pci = self._uuid(identity, device, kind), _attribute(device.attributes, owner.driver, "pciBusID")
        if uuid and pci and kind is not DeviceKind.VFIO:
            self.by_pci[pci] = uuid
        if not uuid:
            return
        memory = _capacity(device, owner.driver, "addressableMemory" if kind is DeviceKind.VFIO else "memory")
        self.cards[identity] = Card(uuid, owner.node, kind, memory, _capacity(device, owner.driver, "multiprocessors"))

    def _uuid(self, identity: DeviceId, device: SliceDevice, kind: DeviceKind) -> str:
        """Return the UUID of the card that a device of a slice is; "" if nothing says it."""
        driver = identity.driver
        if kind is DeviceKind.MIG:
            return _attribute(device.attributes, driver, "parentUUID") or self._sibling_uuid(identity)
        if kind is DeviceKind.VFIO:
            return self.by_pci.get(_attribute(device.attributes, driver, "pciBusID"), "")
        return _attribute(device.attributes, driver, "uuid")

    def _by_sibling(self, device: DeviceId) -> Card | None:
        """Return a device that no slice has named, by the card that its name refers to."""
        uuid = self._sibling_uuid(device)
        if not uuid:
            return None
        kind = DeviceKind.MIG if _MIG_NAME.fullmatch(device.device) else DeviceKind.SHARED
        node = self.nodes.get(device.driver) or next(iter(sorted(self.nodes.values())), None)
        return Card(uuid, node, kind)

    def _sibling_uuid(self, device: DeviceId) -> str:
        matched = _SIBLING.fullmatch(device.device)
        if matched is None:
            return ""
        for driver in (device.driver, NVIDIA_DRIVER):
            card = self.cards.get(DeviceId(driver, device.pool, matched["gpu"]))
            if card is not None:
                return card.uuid
        return ""


def _is_whole(device: str) -> bool:
    named = _MIG_NAME.fullmatch(device)
    return named is not None and named["profile"].startswith(_WHOLE_MIG)


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
