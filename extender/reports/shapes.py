"""The types of the API's answers, from which its OpenAPI document is made.

Why it exists: clients are generated from types, not from examples. It must not know how an answer is made. Invariant:
every key that an answer can have is here; memory is in MiB, cores in percent of one card.
"""

from typing import Any, NotRequired, TypedDict


class Uses(TypedDict):
    """Slots, MiB and percent."""

    slots: int
    memory: int
    cores: int


class TotalUses(TypedDict):
    """A sum over containers: cards, MiB and percent."""

    count: int
    memory: int
    cores: int


class Row(TypedDict):
    """One container's use of one card."""

    uuid: str
    memory: int
    cores: int
    instance: NotRequired[dict[str, Any]]


class ContainerRows(TypedDict):
    """A container and its rows."""

    name: str
    kind: str
    devices: list[Row]


class VendorTotal(TypedDict):
    """The totals over one vendor's cards."""

    peak: TotalUses
    steady: TotalUses


class Totals(TypedDict):
    """The totals of a pod."""

    peak: TotalUses
    steady: TotalUses
    uncertain: list[str]
    vendors: NotRequired[dict[str, VendorTotal]]


class Problem(TypedDict):
    """One finding."""

    code: str
    object: str
    message: str


class PodEntry(TypedDict):
    """A pod: what it holds in each phase, and where."""

    pod: str
    uid: str
    state: str
    containers: list[ContainerRows]
    peak: dict[str, Uses]
    steady: dict[str, Uses]
    held: dict[str, Uses]
    total: Totals
    node: str | None
    api_charge: dict[str, int]
    problem: NotRequired[Problem]
    invalid: NotRequired[list[str]]
    ignored: NotRequired[list[str]]


class AskedCards(TypedDict):
    """What a container asks of each of `count` cards."""

    vendor: str
    count: int
    memory: int
    memory_percentage: int
    whole: bool
    cores: int


class Asks(TypedDict):
    """A container and what it asks for."""

    name: str
    kind: str
    requests: list[AskedCards]


class Phase(TypedDict):
    """One phase of a pod's life: an init with the sidecars before it, or the steady phase, and what it uses."""

    phase: str
    containers: list[str]
    cards: dict[str, Uses]


class PodDetail(PodEntry):
    """A pod, what it asks for, its phases in order, and the last decisions on it."""

    asks: list[Asks]
    phases: list[Phase]
    decisions: "list[DecisionEntry]"


class CardHolder(TypedDict):
    """Who holds a part of a card, and how much: a pod, or a claim of dynamic resource allocation."""

    kind: str
    name: str
    slots: int
    memory: int
    cores: int


class Device(TypedDict):
    """One card of one node."""

    node: str
    uuid: str
    capacity: Uses
    requested: Uses
    free: Uses
    overcommitted: bool
    blocked: list[str]
    pods: list[str]
    holders: list[CardHolder]
    registered: bool
    healthy: bool
    cordoned: bool
    exclusive: bool
    index: int | None
    numa: int | None
    type: str | None
    mode: str | None
    vendor: str | None
    reserved_memory: int


class UnitHolder(TypedDict):
    """Who has whole devices, and how many: a pod, a VMI, or a hold with an object of its own."""

    kind: str
    name: str
    units: int


class RawUse(TypedDict):
    """Whole devices under one raw key on one node."""

    key: str
    allocatable: int
    used: int
    free: int
    overcommitted: bool
    holders: list[UnitHolder]


class RawEntry(RawUse):
    """The same with the name of the node."""

    node: str


class NodeEntry(TypedDict):
    """A node, its cards, and its whole devices if raw keys are counted."""

    node: str
    devices: list[Device]
    raw: NotRequired[list[RawUse]]


class ClaimedCard(TypedDict):
    """What a claim holds on one card; `closed`: no pod with annotations may join."""

    node: str
    uuid: str
    slots: int
    memory: int
    cores: int
    closed: bool


class UnmappedDevice(TypedDict):
    """A device that is no known card, and the node that it is on."""

    node: str
    driver: str
    pool: str
    device: str


class ClaimEntry(TypedDict):
    """A claim of dynamic resource allocation that has been given devices of a GPU driver."""

    claim: str
    uid: str
    cards: list[ClaimedCard]
    unmapped: list[UnmappedDevice]


class HeldDevices(TypedDict):
    """Devices that are held for a VM. `name`: of the object that tells of them, if it is not the VM's spec."""

    name: str | None
    raw_key: str
    units: int
    node: str | None
    state: str


class HoldEntry(TypedDict):
    """All that is held for one VM. `kind`: hold if objects of their own tell of it, vmi if the VM's spec does."""

    vmi: str
    kind: str
    state: str | None
    nodes: list[str]
    holds: list[HeldDevices]


class Verified(TypedDict):
    """All cards and problems, and whole devices if raw keys are counted; on a live cluster also what differs there."""

    devices: list[Device]
    raw: NotRequired[list[RawEntry]]
    problems: list[Problem]
    differences: NotRequired[list[dict[str, Any]]]
    comparison: NotRequired[dict[str, Any]]


class Problems(TypedDict):
    """All problems."""

    problems: list[Problem]


class QuotaEntry(TypedDict):
    """One limit of a namespace."""

    namespace: str
    resource: str
    hard: int
    used: int
    api_charge: int
    quota: str
    scopes: list[str]
    enforced_by_api: bool
    exceeded: bool
    differs: NotRequired[list[str]]


class UsageRecord(TypedDict):
    """What one pod, VM or claim has had of one card model or raw key in one phase: amounts times seconds."""

    kind: str
    namespace: str
    name: str
    uid: str
    model: str
    raw_key: str
    phase: str
    first: str
    last: str
    open: bool
    slot_seconds: int
    memory_mib_seconds: int
    core_percent_seconds: int
    unit_seconds: int


class ShareChoice(TypedDict):
    """How many more shares of so many MiB there is room for."""

    memory: int
    free: int


class CardChoice(TypedDict):
    """One card model: cards that take pods, those that nobody uses, and the shares that are left."""

    model: str
    cards: int
    unused: int
    free_memory: int
    shares: list[ShareChoice]


class BudgetLeft(TypedDict):
    """What a namespace's budget leaves of a raw key."""

    hard: int
    used: int
    left: int


class RawChoice(TypedDict):
    """One raw key: free units, the nodes that have some, and the most on one node."""

    key: str
    nodes: int
    free: int
    largest: int
    budget: NotRequired[BudgetLeft]


class Options(TypedDict):
    """What could still be placed."""

    cards: list[CardChoice]
    raw: list[RawChoice]


class Refusal(TypedDict):
    """The nodes that one reason kept out, and the first of their names."""

    code: str
    count: int
    nodes: list[str]


class Scored(TypedDict):
    """A node and its score."""

    node: str
    score: int


class Bound(TypedDict):
    """A bind; `error` is empty if it succeeded."""

    node: str
    error: str
    microseconds: int | None


class DecisionEntry(TypedDict):
    """One question of kube-scheduler about a pod, and what followed."""

    pod: str
    uid: str
    time: str
    asks: list[Asks]
    nodes: int
    fits: int
    refused: list[Refusal]
    filter_microseconds: int
    repeats: int
    scores: list[Scored]
    choice: str | None
    prioritize_microseconds: int | None
    bind: Bound | None


class Lack(TypedDict):
    """What one card lacks for one container, and who holds the card; 0 is enough."""

    uuid: str
    memory: int
    cores: int
    slots: int
    occupied: bool
    holders: list[CardHolder]


class RawLack(TypedDict):
    """How many whole devices of a key a node lacks, and who has them there."""

    key: str
    missing: int
    holders: list[UnitHolder]


class Holder(TypedDict):
    """A pod and what it holds on a node, over its cards and its whole devices."""

    pod: str
    uid: str
    slots: int
    memory: int
    cores: int
    units: int


class NearNode(TypedDict):
    """A node that lacks little, and the pods whose end would make room; null if no end would."""

    node: str
    code: str
    message: str
    container: str
    cards: list[Lack]
    raw: list[RawLack]
    in_the_way: list[Holder] | None
    text: str


class Why(TypedDict):
    """Which nodes take a pod now, why the others do not, and what would have to change."""

    pod: str
    uid: str
    node: str | None
    asks: list[Asks]
    invalid: list[str]
    nodes: int
    fits: int
    refused: list[Refusal]
    best: list[Scored]
    quota: list[str]
    nearest: list[NearNode]
    text: str


class Sums(TypedDict):
    """Cards and sums over them."""

    cards: int
    capacity: Uses
    requested: Uses


class ModelSums(Sums):
    """The sums of one card model."""

    model: str


class ClaimsUse(TypedDict):
    """What a namespace's DRA claims hold now."""

    claims: int
    cards: int
    held: Uses


class RawBudgetUse(TypedDict):
    """What a namespace has of a raw key, and what its budget allows; null: as much as there is."""

    key: str
    used: int
    hard: int | None


class NamespaceUse(TypedDict):
    """What a namespace's pods hold and are charged now, and what its claims and VMs have."""

    namespace: str
    pods: int
    cards: int
    held: Uses
    charged: TotalUses
    quotas: list[QuotaEntry]
    claims: ClaimsUse
    raw: list[RawBudgetUse]


class HolderCounts(TypedDict):
    """How many hold cards or whole devices, by kind."""

    pod: int
    claim: int
    vmi: int
    hold: int


class Summary(TypedDict):
    """The cluster in one screen."""

    version: str
    nodes: int
    pods: int
    holders: HolderCounts
    waiting: int
    totals: Sums
    models: list[ModelSums]
    problems: dict[str, int]


class Deleted(TypedDict):
    """A pod that was deleted."""

    deleted: str
    uid: str


class Failure(TypedDict):
    """Why a request was refused: the field, the value and why."""

    error: str
