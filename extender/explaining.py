"""Explaining one pod over a whole cluster.

It must not print. Invariant: the pod's own booking, found by UID, or by name where one of the two has no UID, never
counts against it, and the answer agrees with what filter would say.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from accounting.cache import Cache
from accounting.explain import explain_node
from accounting.filter import filter_nodes
from accounting.pod import Pod
from accounting.quota import QuotaCheck
from accounting.score import score_nodes
from extender.cluster import Cluster
from extender.render import explained_node


def explain(cluster: Cluster, pod: Pod) -> dict[str, Any]:
    """Return {"pod", "nodes": [...]} with every node of the cluster by name."""
    pod = replace(pod, uid=_booked_uid(cluster, pod))
    quota, names = cluster.quota_check(pod), cluster.cache.node_names()
    scores = _scores(cluster.cache, pod, names, quota)
    return {"pod": pod.key, "nodes": [_node(cluster.cache, pod, name, scores.get(name, 0), quota) for name in names]}


def _booked_uid(cluster: Cluster, pod: Pod) -> str:
    """Return the UID under which the cluster has booked the pod; a manifest may have none, and is known by its name."""
    named = cluster.pod_named(pod.namespace, pod.name)
    if cluster.pod(pod.uid) is None and named is not None and pod.key in (pod.uid, named.uid):
        return named.uid
    return pod.uid


def _node(cache: Cache, pod: Pod, name: str, score: int, quota: QuotaCheck) -> dict[str, Any]:
    record = cache.pods.get(pod.uid)
    if record is not None and record.node == name:
        cache = cache.node_without(pod.uid)
    blockers = tuple(each.key for each in cache.pods_on(name) if each.blocks is not None)
    outcome = explain_node(cache.snapshot(), pod, name, cache.positions(name), blockers, quota)
    return explained_node(name, outcome, score)


def _scores(cache: Cache, pod: Pod, names: list[str], quota: QuotaCheck) -> dict[str, int]:
    snapshot = cache.snapshot()
    rows = snapshot.rows_of(names)
    own = cache.own_row(pod.uid)
    feasible = np.flatnonzero(filter_nodes(snapshot, pod, rows, own, quota).feasible)
    scores = score_nodes(snapshot, rows[feasible], pod.policies.node)
    return {names[int(feasible[place])]: score for place, score in scores}
