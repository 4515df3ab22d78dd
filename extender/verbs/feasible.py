"""The nodes that passed filter for a pod, kept until kube-scheduler asks for the scores of exactly these nodes.

Why it exists: for prioritize kube-scheduler sends filter's pod and names again, and reading them costs as much as
judging them. In between the previous pod is bound, so the state has changed, but only on one or two nodes. It must not
answer requests. Invariant: it returns exactly the names that filter would pass now, or nothing.
"""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from accounting.answers import Verdicts
from accounting.pod import Pod
from accounting.state import Rows
from extender.cluster import Cluster


class Encoded(NamedTuple):
    """The passing names of filter's answer, for one pod."""

    body: bytes
    raw_names: bytes
    names: list[str]


class Feasible(NamedTuple):
    """The names, as they were encoded and as a list, and their rows in snapshots with the same nodes."""

    pod: Pod
    raw_names: bytes
    names: list[str]
    rows: Rows
    node_generation: int
    version: object
    """The cluster's version when they passed."""

    @classmethod
    def of(cls, cluster: Cluster, pod: Pod, encoded: Encoded, rows: Rows) -> "Feasible":
        """Keep filter's result. `rows`: the rows of `encoded.names`; -1 stands for an unknown node."""
        generation = cluster.cache.snapshot().node_generation
        return cls(pod, encoded.raw_names, encoded.names, rows, generation, cluster.version)

    def now(self, cluster: Cluster, verdicts: Verdicts) -> tuple[Sequence[str], Rows] | None:
        """Return the names that pass now, and their rows; None if nodes have changed, so that rows may differ."""
        if cluster.version == self.version:
            return self.names, self.rows
        if cluster.cache.snapshot().node_generation != self.node_generation:
            return None
        feasible = cluster.filter(self.pod, self.rows, verdicts).feasible
        if feasible.all():
            return self.names, self.rows
        return list(compress(self.names, feasible.tolist())), self.rows[feasible]
