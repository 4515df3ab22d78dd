"""Sums over the cluster: over all cards, per model, per namespace.

It must not list pods or cards. Invariants: the sums are those of the lists; sums over all pods are made in steps of a
few milliseconds, so that a server can answer others in between.
"""

from collections.abc import Iterator

import numpy as np

from accounting.holdings import Total
from accounting.state import BoolArray, Snapshot
from extender import __version__
from extender.cluster import Cluster
from extender.reports.render import quota_row
from extender.reports.shapes import NamespaceUse, QuotaEntry, Summary, Sums, Uses

_PODS_PER_STEP = 1_000


def summary(cluster: Cluster, waiting: int) -> Summary:
    """Return the cluster's summary. `waiting`: pods that ask for cards and are on no node."""
    cache = cluster.cache
    snapshot = cache.snapshot()
    present = snapshot.nodes.present
    return {
        "version": __version__,
        "nodes": len(cache.nodes),
        "pods": len(cache.pods),
        "waiting": waiting,
        "totals": _sums(snapshot, present),
        "models": [
            {"model": model, **_sums(snapshot, present & (snapshot.nodes.type_id == number))}
            for model, number in sorted(snapshot.type_ids)
        ],
        "problems": {code.value: count for code, count in cluster.problem_counts().items()},
    }


def _sums(snapshot: Snapshot, cards: BoolArray) -> Sums:
    nodes, requested = snapshot.nodes, snapshot.requested

    def over(slots: object, memory: object, cores: object) -> Uses:
        slot_sum, memory_sum, core_sum = (int(np.asarray(each)[cards].sum()) for each in (slots, memory, cores))
        return {"slots": slot_sum, "memory": memory_sum, "cores": core_sum}

    return {
        "cards": int(np.count_nonzero(cards)),
        "capacity": over(nodes.slots, nodes.memory, nodes.cores),
        "requested": over(requested.slots, requested.memory, requested.cores),
    }


class Usage:
    """The sums of every namespace, made in steps."""

    def __init__(self, cluster: Cluster, namespace: str | None = None) -> None:
        self._cluster = cluster
        self._only = namespace
        self._found: dict[str, NamespaceUse] = {}
        self._cards: dict[str, set[tuple[str, str]]] = {}

    def steps(self) -> Iterator[None]:
        """Add up in steps; the sum is complete at the end."""
        cluster = self._cluster
        names = {self._only} if self._only is not None else set(cluster.quotas.namespaces())
        for name in names:
            self._entry(name)
        for count, record in enumerate(list(cluster.cache.pods.values())):
            if count % _PODS_PER_STEP == 0:
                yield
            if not record.held or self._only not in (None, record.namespace):
                continue
            entry, total = self._entry(record.namespace), record.held_total
            entry["pods"] += 1
            for use in record.held:
                self._cards[record.namespace].add((record.node or "", use.uuid))
                entry["held"]["slots"] += use.slots
                entry["held"]["memory"] += use.memory
                entry["held"]["cores"] += use.cores
            _charge(entry, total)

    def rows(self) -> list[NamespaceUse]:
        """Return one entry per namespace, by name."""
        for name, entry in self._found.items():
            entry["cards"] = len(self._cards[name])
        return [self._found[name] for name in sorted(self._found)]

    def _entry(self, namespace: str) -> NamespaceUse:
        known = self._found.get(namespace)
        if known is not None:
            return known
        cluster = self._cluster
        quotas: list[QuotaEntry] = [
            quota_row(limit, cluster.charges.used(limit), cluster.charges.by_api(limit))  # type: ignore[misc]
            for limit in cluster.quotas.limits_of(namespace)
        ]
        self._cards[namespace] = set()
        self._found[namespace] = {
            "namespace": namespace,
            "pods": 0,
            "cards": 0,
            "held": {"slots": 0, "memory": 0, "cores": 0},
            "charged": {"count": 0, "memory": 0, "cores": 0},
            "quotas": quotas,
        }
        return self._found[namespace]


def _charge(entry: NamespaceUse, total: Total) -> None:
    charged = entry["charged"]
    charged["count"] += total.count
    charged["memory"] += total.memory
    charged["cores"] += total.cores


def usage(cluster: Cluster, namespace: str | None = None) -> list[NamespaceUse]:
    """Return what namespaces hold and are charged for, without steps."""
    counted = Usage(cluster, namespace)
    for _ in counted.steps():
        pass
    return counted.rows()
