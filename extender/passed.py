"""What filter passed for a pod, until kube-scheduler asks for the scores of just these nodes.

Why it exists: between filter and prioritize the last pod is bound, so the state has changed, but on one or two nodes
only; judging all of them again costs as much as filter did. It must not answer. Invariant: what it returns is what
filtering the same names anew would pass; where that is not certain it returns nothing.
"""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from accounting.device_table import Int64Array, Rows
from accounting.filter import filter_nodes
from accounting.pod import Pod
from accounting.snapshot import Snapshot
from extender.cluster import Cluster


class Encoded(NamedTuple):
    """Filter's answer, and the passing names in it."""

    body: bytes
    raw_names: bytes
    names: list[str]


class Passed(NamedTuple):
    """The pod; the names, as they were encoded and as a list; their rows, and how these were then."""

    pod: Pod
    raw_names: bytes
    names: list[str]
    rows: Rows
    stamps: Int64Array
    node_generation: int

    @classmethod
    def of(cls, snapshot: Snapshot, pod: Pod, encoded: Encoded, rows: Rows) -> "Passed":
        """Keep what filter passed on a snapshot. `rows`: of `encoded.names`; -1 stands for a node that is not known."""
        return cls(pod, encoded.raw_names, encoded.names, rows, snapshot.stamps[rows], snapshot.node_generation)

    def now(self, cluster: Cluster) -> tuple[Sequence[str], Rows] | None:
        """Return the names that pass now, and their rows: only nodes on which something has changed are judged anew.

        None if all of them must be: nodes have changed, the pod is booked, or its namespace's quotas have a say.
        """
        cache = cluster.cache
        snapshot, own = cache.snapshot(), cache.own_row(self.pod.uid)
        if snapshot.node_generation != self.node_generation or own is not None or any(cluster.quota_check(self.pod)):
            return None
        changed = np.flatnonzero(snapshot.stamps[self.rows] != self.stamps)
        if not len(changed):
            return self.names, self.rows
        passing = np.ones(len(self.rows), np.bool_)
        passing[changed] = filter_nodes(snapshot, self.pod, self.rows[changed]).feasible
        return list(compress(self.names, passing.tolist())), self.rows[passing]
