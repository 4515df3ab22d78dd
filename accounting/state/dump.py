"""The cache as it was at one moment, for reports that are made bit by bit while the cache goes on.

Why it exists: a report over thousands of nodes takes seconds, far too long to hold the cache still. It must not compute
anything. Invariant: what it shows is the state of one moment. The name is kube-scheduler's: `Dump` in
pkg/scheduler/backend/cache/interface.go.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from accounting.holders import CardClaims, Unmapped
from accounting.node import Node
from accounting.pod_record import PodRecord
from accounting.state.moments import Moment
from accounting.status import Problem

name_order = attrgetter("namespace", "name", "uid")
"""The order in which pods are shown."""


class NodeState(NamedTuple):
    """Everything that is known of one node."""

    node: Node | None
    """None for a node whose object is gone."""
    records: Sequence[PodRecord]
    """In no order."""
    overlapping: frozenset[str]
    """Cards in MIG mode on which instances of several pods lie on the same slices, by UUID."""
    claims: Mapping[str, CardClaims]
    """What DRA claims hold, by card UUID."""
    unmapped: tuple[Unmapped, ...]
    """Devices that block the node, because nobody can tell which they are."""


class Dump(NamedTuple):
    """The nodes, what is on them, and what is wrong with pods."""

    names: Sequence[str]
    pod_problems: Sequence[Problem]
    nodes: Moment[NodeState]

    def node_names(self) -> Sequence[str]:
        """Return every node that has cards or pods, sorted; also nodes whose object is gone."""
        return self.names

    def node_state(self, node: str) -> NodeState:
        """Return everything that was known of a node."""
        return self.nodes.look(node)
