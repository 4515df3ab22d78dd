"""The types of answers on decisions, and why a pod waits.

It must not know how an answer is made. Invariant: as in the package.
"""

from typing import TypedDict

from extender.reports.shapes.nodes import CardHolder, UnitHolder
from extender.reports.shapes.pods import Asks, Phase, PodEntry


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


class PodDetail(PodEntry):
    """A pod, what it asks for, its phases in order, and the last decisions on it."""

    asks: list[Asks]
    phases: list[Phase]
    decisions: list[DecisionEntry]


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
