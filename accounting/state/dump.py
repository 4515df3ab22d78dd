"""A copy of the cache for reports that are made bit by bit while the cache goes on.

Why it exists: a report over thousands of nodes takes seconds, far too long to hold the cache still. It must not compute
anything. Invariant: what it shows is the state of one moment. The records and nodes in it are values, so copying their
tables is enough: milliseconds at 10,000 nodes and 100,000 pods. The name is kube-scheduler's: `Dump` in
pkg/scheduler/backend/cache/interface.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from accounting.node import Node
from accounting.pod_record import PodRecord
from accounting.state.claimed import ClaimedCopy
from accounting.status import Problem

name_order = attrgetter("namespace", "name", "uid")
"""The order in which pods are shown."""


class Dump(NamedTuple):
    """The nodes, the records of pods, and what is wrong with them."""

    names: Sequence[str]
    nodes: Mapping[str, Node]
    pods: Mapping[str, PodRecord]
    """By UID."""
    records_on: Mapping[str, Sequence[PodRecord]]
    """By node, in no order."""
    overlaps: Mapping[str, frozenset[str]]
    """By node, the cards whose instances overlap; nodes without such a card are left out."""
    pod_problems: Sequence[Problem]
    claimed: ClaimedCopy = ClaimedCopy()
    """What DRA claims hold."""

    def node_names(self) -> Sequence[str]:
        """Return every node that has cards or pods, sorted; also nodes whose object is gone."""
        return self.names

    def pods_on(self, node: str) -> Iterator[PodRecord]:
        """Yield the records on a node, sorted by namespace, name and UID."""
        return iter(sorted(self.records_on.get(node, ()), key=name_order))

    def overlapping(self, node: str) -> frozenset[str]:
        """Return a node's cards in MIG mode on which instances of several pods lie on the same slices, by UUID."""
        return self.overlaps.get(node, frozenset())
