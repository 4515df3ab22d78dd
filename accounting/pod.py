"""A pod as accounting sees it: containers with their kinds and requests, the allocation, and where its inits stand.

Why it exists: one small value between the wire and the rules. It must not know JSON, statuses or annotations' text.
Invariant: `containers` lists init containers first, then apps, both in spec order; row i of an allocation belongs to
container i.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from accounting.mig_profiles import MigInstance
from accounting.pod_info import NOT_STARTED, UNKNOWN, PodInfo
from accounting.policy import Policies
from accounting.quota_scope import PodScope
from accounting.selection import Selection
from accounting.status import Invalid
from accounting.vendor import DEFAULT_VENDOR_KEY


class ContainerKind(StrEnum):
    """How long a container lives. A sidecar is an init container whose restartPolicy is exactly "Always" (KEP-753)."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class DeviceRequest(NamedTuple):
    """What one container asks of each of `count` different cards."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    memory: int
    """MiB per card; used when `memory_percentage` is 0."""
    memory_percentage: int
    """Percent of each card's registered memory, floored; 0 when `memory` says it."""
    cores: int
    """Percent of a card, 0..100. 100 takes the card for itself, 0 asks for no share of compute."""
    whole: bool = False
    """True when neither memory nor a percentage was asked, so that the whole card is meant."""
    vendor: str = DEFAULT_VENDOR_KEY
    """Key of the vendor whose cards are asked for."""
    one_size: bool = False
    """The card must hold nothing but rows of the same memory."""


class DeviceRow(NamedTuple):
    """One container's use of one card: 1 slot, memory in MiB, cores in percent."""

    uuid: str
    memory: int
    cores: int

    @property
    def vendor(self) -> str:
        """Key of the card's vendor."""
        return DEFAULT_VENDOR_KEY

    @property
    def instance(self) -> MigInstance | None:
        """The part of the card that the row has, if the card is in MIG mode."""
        return None


class FurtherRow(DeviceRow):
    """A row on a card of another vendor than the default one, or in MIG mode. Apart from that it is like any other."""

    _vendor: str
    _instance: MigInstance | None

    @classmethod
    def of(cls, uuid: str, memory: int, cores: int, vendor: str, instance: MigInstance | None = None) -> DeviceRow:
        """Return a row; a plain one where that says all."""
        if vendor == DEFAULT_VENDOR_KEY and instance is None:
            return DeviceRow(uuid, memory, cores)
        row = cls(uuid, memory, cores)
        row._vendor, row._instance = vendor, instance
        return row

    @property
    def instance(self) -> MigInstance | None:
        """The part of the card that the row has, if the card is in MIG mode."""
        return self._instance

    @property
    def vendor(self) -> str:
        """Key of the card's vendor."""
        return self._vendor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FurtherRow) and self._values() == other._values()

    def _values(self) -> tuple[object, ...]:
        return (*self, self._vendor, self._instance)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._values())


#: One entry per container, in the order of `Pod.containers`. One more has rows of which nobody can tell whose they are
#: (`accounting.row_order`): the pod holds them from start to end.
Allocation = tuple[tuple[DeviceRow, ...], ...]


def further_rows(allocation: Allocation) -> list[DeviceRow]:
    """Return the rows of other vendors than the default one, and those that have a part of a card in MIG mode."""
    return [row for own in allocation for row in own if type(row) is not DeviceRow]


@dataclass(frozen=True, slots=True)
class UnreadableAllocation:
    """An allocation that cannot be trusted: the UUIDs that can still be read in it, and why it is unreadable."""

    readable_uuids: tuple[str, ...]
    why: Invalid


@dataclass(frozen=True, slots=True)
class Container:
    """A container's name, kind and request (None: it asks for no card)."""

    name: str
    kind: ContainerKind
    request: DeviceRequest | None = None
    further_requests: tuple[DeviceRequest, ...] = ()
    """What it asks of the cards of other vendors, one request per vendor."""
    misread: bool = False
    """Some of what it asks for cannot be used, so what another scheduler gave it is not known."""

    @property
    def requests(self) -> tuple[DeviceRequest, ...]:
        """Everything that it asks for."""
        return () if self.request is None else (self.request, *self.further_requests)


def is_ambiguous(allocation: Allocation, containers: tuple[Container, ...]) -> bool:
    """Whether an allocation has rows of which nobody can tell whose they are."""
    return len(allocation) > len(containers) and bool(allocation[-1])


class Preempting(NamedTuple):
    """A pod waits on a node for others that the extender evicts for it: what comes free there is kept for it."""

    node: str
    until: int
    """Seconds since 1970; the extender gives up then."""
    victims: tuple[str, ...] = ()
    """UIDs of those who are to go. What they hold counts as free as soon as this is told."""


class Pod(NamedTuple):
    """One pod as it is now. A tuple, since every event makes one and a dataclass takes four times as long to make."""

    uid: str
    namespace: str
    name: str
    containers: tuple[Container, ...] = ()
    node: str | None = None
    terminal: bool = False
    """Phase Succeeded or Failed."""
    deleting: bool = False
    """It has a deletionTimestamp: it holds what it holds, and cannot be bound any more."""
    inits_over: bool = False
    """The pod is past its ordinary inits, now; see `accounting.lifecycle` for how that is read from a status."""
    allocation: Allocation | UnreadableAllocation | None = None
    invalid: tuple[Invalid, ...] = ()
    """Requests and annotations that cannot be used; such a pod fits nowhere."""
    selection: Selection = Selection()
    policies: Policies = Policies()
    api_charge: tuple[tuple[str, int], ...] = ()
    """What the API server's ResourceQuota charges for the pod, per managed resource name."""
    scope: PodScope = PodScope()
    """By what a ResourceQuota with scopes selects it."""
    cpu_milli: int = 0
    """Thousandths of a CPU that kube-scheduler counts for the pod on its node, from its Binding to its end."""
    further_selections: tuple[Selection, ...] = ()
    """For a pod that asks for cards of several vendors: the selections of those after `selection`'s."""
    ignored: tuple[Invalid, ...] = ()
    """Words in annotations that mean nothing and change nothing."""
    allocation_text: str = ""
    """In stores, in the place of the rows: what these are read from. It means nothing here."""
    info: PodInfo = UNKNOWN
    """What preemption must know of it."""
    started: int = NOT_STARTED
    """status.startTime in seconds since 1970."""
    nominated: str = ""
    """status.nominatedNodeName of a pod without a node: what comes free there is kept for it."""
    raw: tuple[tuple[str, int], ...] = ()
    """(raw key, units) that it requests of whole devices, sorted by key; from its Binding to its end, whatever its
    inits do, because kube-scheduler counts it like that."""
    preempting: Preempting | None = None
    """What the extender's own annotation says of a pod without a node, where the extender may evict."""

    def with_allocation(self, allocation: Allocation | UnreadableAllocation | None) -> "Pod":
        """Return the pod with other rows."""
        return self._replace(allocation=allocation, allocation_text="")

    @property
    def waits_on(self) -> str:
        """The node where what comes free is kept for it; "" if there is none."""
        return self.nominated if self.preempting is None else self.preempting.node

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def concerned(self) -> bool:
        """Whether it asks for a card, or for whole devices by raw keys."""
        return bool(self.raw) or self.asks

    @property
    def asks(self) -> bool:
        """Whether any container asks for a card, legally or not."""
        if self.invalid:
            return True
        for container in self.containers:  # noqa: SIM110 - `any` takes twice the time, and every event asks
            if container.request is not None:
                return True
        return False
