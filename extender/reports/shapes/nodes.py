"""The types of answers on cards, whole devices and problems.

It must not know how an answer is made. Invariant: as in the package.
"""

from typing import Any, NotRequired, TypedDict

from extender.reports.shapes.pods import Problem, Uses


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
