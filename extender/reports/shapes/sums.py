"""The types of answers on sums, quotas, usage and what is free.

It must not know how an answer is made. Invariant: as in the package.
"""

from typing import NotRequired, TypedDict

from extender.reports.shapes.pods import TotalUses, Uses


class Sums(TypedDict):
    """Cards and sums over them."""

    cards: int
    capacity: Uses
    requested: Uses


class ModelSums(Sums):
    """The sums of one card model."""

    model: str


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


class Deleted(TypedDict):
    """A pod that was deleted."""

    deleted: str
    uid: str


class Failure(TypedDict):
    """Why a request was refused: the field, the value and why."""

    error: str
