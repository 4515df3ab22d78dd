"""What is asked and answered about whole devices under raw keys.

Why it exists: filter, bind, admission, the lists and the tests speak of the same shortages and budgets. It must not
know who has what. Invariant: plain values; a text gives every number that its answer follows from.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from accounting.holders.raw_units import Units

ANY_NAMESPACE = "*"
"""Stands in budgets for every namespace that has none of its own for a key."""
Budgets = Mapping[tuple[str, str], int]
"""(namespace, raw key) -> units that the namespace may have."""
Promised = Mapping[tuple[str, str], int]
"""(node or namespace, raw key) -> units that count as used beside those that are."""
NOTHING: Promised = MappingProxyType({})


class RawRequest(NamedTuple):
    """A pod that is not terminal, by what it requests of raw keys; `node` is None before its Binding."""

    uid: str
    namespace: str
    name: str
    units: Units
    node: str | None = None


class Shortage(NamedTuple):
    """Why a node has no room: of this key the pod would add more than is free. Free may be negative."""

    key: str
    adds: int
    allocatable: int
    used: int

    @property
    def free(self) -> int:
        """What is left."""
        return self.allocatable - self.used

    def __str__(self) -> str:
        return f"{self.key}: the pod adds {self.adds}; the node has {self.allocatable}, {self.used} are used"


class Overcommitted(NamedTuple):
    """More units of a key are used on a node than it has."""

    node: str
    key: str
    allocatable: int
    used: int
    users: tuple[str, ...]
    """Kind, name and units of each, sorted; a launcher has what it requests beyond its VM's devices."""
    pods: tuple[RawRequest, ...] = ()
    """All pods there that request some, launchers included, by UID."""


class OverBudget(NamedTuple):
    """Why a budget forbids a pod or a VM: of this key its namespace would have more than it may."""

    namespace: str
    key: str
    hard: int
    used: int
    adds: int
    who: str = "the pod"

    def __str__(self) -> str:
        numbers = f"hard {self.hard}, used {self.used}, {self.who} adds {self.adds}"
        return f"exceeded budget {self.namespace}: {self.key}: {numbers}"


def order_key(adds: int, left: int, capacity: int, node: str) -> tuple[bool, int, int, str]:
    """Return a node's place in the order, smallest first. The share is used / capacity, larger first, as an integer."""
    share = (capacity - left) * 2**20 // capacity if capacity else 0
    return adds > 0, left, -share, node
