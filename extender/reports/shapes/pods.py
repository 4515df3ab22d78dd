"""The types of answers on what pods ask for and hold.

It must not know how an answer is made. Invariant: as in the package.
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
