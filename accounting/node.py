"""A node's cards as accounting sees them.

Why it exists: the register annotation, the cordon and the allocatable count become one value here. It must not know
annotations' text or JSON. Invariant: devices are in the order in which ties between them are decided (NUMA node, index,
UUID), so a device's position is the last tie-break.
"""

from dataclasses import dataclass, field

from accounting.mig_profiles import MigLayout
from accounting.status import Problem
from accounting.topology import Link
from accounting.vendor import DEFAULT_VENDOR_KEY


@dataclass(frozen=True, slots=True)
class Device:
    """One card. Memory in MiB, cores in percent of a card (over 100 where the node scales them)."""

    uuid: str
    index: int
    slots: int
    memory: int
    cores: int
    type: str = ""
    numa: int = 0
    mode: str = ""
    healthy: bool = True
    vendor: str = DEFAULT_VENDOR_KEY
    """Key of its vendor."""
    layout: MigLayout = ()
    """Its profiles, if it is in MIG mode."""
    gone: bool = False
    """Its vendor's plugin does not answer any more; it takes nothing new, like an unhealthy card."""
    reserved_memory: int = 0
    """MiB that it has beyond `memory` and that nobody gets."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its cards and what limits them."""

    name: str
    devices: tuple[Device, ...] = ()
    cordoned: frozenset[str] = frozenset()
    """UUIDs that take no new rows."""
    duplicated: frozenset[str] = frozenset()
    """UUIDs that the register names twice; such a card takes nothing until the register is mended."""
    count_allocatable: int | None = None
    """The kubelet's allocatable of the count resource. None: the key is absent, trust the register. 0: plugin gone."""
    cpu_milli: int | None = None
    """Allocatable CPU in thousandths; None: the node does not say."""
    single_numa: bool = False
    """All cards of a container must be of one NUMA node: the node says that its kubelet refuses others."""
    links: tuple[Link, ...] = ()
    """Scores of pairs of cards; see `topology`."""
    problems: tuple[Problem, ...] = field(default=(), compare=True)
    resource_names: frozenset[str] = frozenset()
    """Every resource that it advertises, ours and those of others."""
    further_allocatable: tuple[tuple[str, int | None], ...] = ()
    """(vendor key, allocatable of its count resource) of every vendor but the first."""
    allocatable: tuple[tuple[str, int], ...] = ()
    """What kube-scheduler has to give of every resource, by name; CPU in thousandths. Empty: the node does not say."""


def tie_order(device: Device) -> tuple[int, int, str]:
    """Sort key of a node's devices; see the module docstring."""
    return device.numa, device.index, device.uuid
