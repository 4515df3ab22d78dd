"""Nodes as they would be with the woken pods already on them.

Why it exists: free room must be promised to one pod only. It must not change the cluster. Invariant: the first pod sees
the nodes as they are; each pod that is counted leaves less room for those after it.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from accounting.answers import Placement, allocate_in, claim_of, feasible_on, hold_claim, raw_request
from accounting.holdings import Total, pod_total
from accounting.pod import Allocation, Pod
from accounting.quota import QuotaCheck
from accounting.quota_scope import Selector
from accounting.state import BoolArray, NamespaceSums, charge_names
from accounting.vendor_part import requested_vendors, rows_of
from extender.cluster import Cluster


class Placed(NamedTuple):
    """A pod with cards on one of the nodes."""

    pod: Pod
    column: int
    placement: Placement


class Simulation:
    """A view of some nodes."""

    def __init__(self, cluster: Cluster, nodes: list[str]) -> None:
        self._cluster = cluster
        self._nodes = [name for name in nodes if name in cluster.cache.nodes]
        self._snapshot = cluster.cache.snapshot()
        self._positions = [dict(cluster.cache.positions(name)) for name in self._nodes]
        self._view = self._snapshot.take(self._snapshot.rows_of(self._nodes))
        self._promised = NamespaceSums()  # what the counted pods will be charged
        self._promised_raw: Counter[tuple[str, str]] = Counter()  # node or namespace, raw key -> units of held pods

    def place(self, pod: Pod) -> Placed | None:
        """Return the pod with cards on the first node where it fits; None if it fits nowhere or its quota forbids."""
        quota = self._quota_check(pod)
        if not self._nodes or quota.exceeded:
            return None
        columns = np.flatnonzero(feasible_on(self._view, pod, self._snapshot, quota.budget) & self._has_raw_room(pod))
        if not len(columns):
            return None
        column = int(columns[0])
        uuids = {position: uuid for uuid, position in self._positions[column].items()}
        placement = allocate_in(self._view.take(columns[:1]), pod, self._snapshot, uuids, quota.budget)
        return None if placement is None else Placed(pod, column, placement)

    def hold(self, placed: Placed) -> None:
        """Count a pod as if it were there."""
        pod = placed.pod
        claim = claim_of(pod, self._nodes[placed.column], placed.placement, self._snapshot)
        hold_claim(self._view, placed.column, self._positions[placed.column], claim, self._snapshot.vendors)
        self._view = self._view.refreshed()
        self._promised.add(pod.namespace, pod.scope, self._charge(pod, placed.placement.allocation))
        if pod.raw:
            self._promise_raw(pod, self._nodes[placed.column])

    def _has_raw_room(self, pod: Pod) -> BoolArray:
        """Return (column,): whether a node has the whole devices that a pod requests."""
        if not pod.raw:
            return np.ones(len(self._nodes), np.bool_)
        devices, request, promised = self._cluster.raw, raw_request(pod), self._promised_raw
        if devices.over_budget(request, promised):
            return np.zeros(len(self._nodes), np.bool_)
        return np.array([not devices.shortages(request, node, promised) for node in self._nodes], np.bool_)

    def _promise_raw(self, pod: Pod, node: str) -> None:
        devices, request = self._cluster.raw, raw_request(pod)
        self._promised_raw.update({(node, key): units for key, units in devices.new_units(request, node).items()})
        charges = devices.new_charges(request)
        self._promised_raw.update({(pod.namespace, key): units for key, units in charges.items()})

    def _charge(self, pod: Pod, allocation: Allocation) -> list[tuple[str, int]]:
        """Return what a pod with these cards is charged."""
        vendors = self._snapshot.vendors
        return [
            pair
            for key in requested_vendors(pod)
            for pair in zip(
                charge_names(vendors[key]), pod_total(pod.containers, rows_of(allocation, key))[0], strict=True
            )
        ]

    def _quota_check(self, pod: Pod) -> QuotaCheck:
        """Return the quotas' verdict on a pod, beside the pods that are charged and those that are promised room."""

        def used(selector: Selector, vendor: str | None = None) -> Total:
            charged = self._cluster.cache.used(pod.namespace, selector, vendor)
            sums = self._promised.of(pod.namespace, selector)
            names = charge_names(0 if vendor is None else self._snapshot.vendors[vendor])
            return Total(*(amount + sums.get(name, 0) for amount, name in zip(charged, names, strict=True)))

        return self._cluster.quotas.check(pod, used, mig=self._cluster.cache.has_mig)
