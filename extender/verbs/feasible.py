"""The nodes that were feasible for a pod in filter, until kube-scheduler asks for the scores of just these nodes.

Why it exists: kube-scheduler sends filter's pod and names again, and reading them costs as much as judging them.
Between the two the last pod is bound, so the state has changed, though only on one or two nodes. It must not answer.
Invariant: what it returns is what filtering the same names anew would pass; where it cannot, it returns nothing.
"""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from accounting.answers import Verdicts
from accounting.pod import Pod
from accounting.state import Rows
from extender.cluster import Cluster


class Encoded(NamedTuple):
    """Filter's answer, and the passing names in it."""

    body: bytes
    raw_names: bytes
    names: list[str]


class Feasible(NamedTuple):
    """The pod; the names, as they were encoded and as a list; their rows in snapshots with the same nodes."""

    pod: Pod
    raw_names: bytes
    names: list[str]
    rows: Rows
    node_generation: int
    version: object
    """The cluster's, when they were feasible."""

    @classmethod
    def of(cls, cluster: Cluster, pod: Pod, encoded: Encoded, rows: Rows) -> "Feasible":
        """Keep what filter found just now. `rows`: of `encoded.names`; -1 stands for a node that is not known."""
        generation = cluster.cache.snapshot().node_generation
        return cls(pod, encoded.raw_names, encoded.names, rows, generation, cluster.version)

    def now(self, cluster: Cluster, verdicts: Verdicts) -> tuple[Sequence[str], Rows] | None:
        """Return the names that pass now, and their rows; None if nodes have changed, so that rows may be others'."""
        if cluster.version == self.version:
            return self.names, self.rows
        if cluster.cache.snapshot().node_generation != self.node_generation:
            return None
        feasible = cluster.filter(self.pod, self.rows, verdicts).feasible
        if feasible.all():
            return self.names, self.rows
        return list(compress(self.names, feasible.tolist())), self.rows[feasible]
