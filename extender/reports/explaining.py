"""Explaining one pod over a whole cluster.

It must not print. Invariants: the pod's own booking, found by UID, or by name if one of the two has no UID, never
counts against it; the answer agrees with filter's.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from accounting.answers import Placement, RawReport, explain_node, node_report, raw_reasons, raw_reports, score_raw
from accounting.cards import score_nodes
from accounting.holdings import pod_total
from accounting.pod import Pod
from accounting.quota import QuotaCheck, namespace_differences, pod_charges
from accounting.state.cache import Cache
from accounting.status import ProblemCode, Reason
from accounting.vendor_part import part_of
from extender.cluster import Cluster
from extender.reports.evictions import evictions
from extender.reports.render import card_holders, charge_row, explained_node, quota_row, raw_use


def explain(
    cluster: Cluster, pod: Pod, through: Callable[[list[str]], Iterable[str]] = lambda names: names
) -> dict[str, Any]:
    """Return {"pod", "nodes": [...]} with every node of the cluster by name, and "quotas" if some count the pod.

    `through`: yields the names one by one, and may show the progress.
    """
    pod = pod._replace(uid=booked_uid(cluster, pod))
    quota, names = cluster.quota_check(pod), cluster.cache.node_names()
    scores = _scores(cluster, pod, names)
    raw = raw_reports(cluster.raw) if pod.raw else {}
    nodes = [_node(cluster, pod, name, scores.get(name, 0), quota, raw.get(name, ())) for name in through(names)]
    limits = _quotas(cluster, pod)
    answer = {"pod": pod.key, "nodes": nodes} | ({"quotas": limits} if limits else {})
    if not any(each["fits"] for each in nodes) and pod.node is None:
        answer["preemption"] = evictions(cluster, pod)
    return answer | ({"ignored": [str(each) for each in pod.ignored]} if pod.ignored else {})


def _quotas(cluster: Cluster, pod: Pod) -> list[dict[str, Any]]:
    """Return the limits that count the pod, with what it would add to each; `used` is without its own booking."""
    limits = cluster.quotas.limits_of(pod.namespace)
    others = [(each, cluster.record(each)) for each in cluster.pods() if each.uid != pod.uid] if limits else []
    rows = []
    for vendor in cluster.settings.vendors:
        own = [limit for limit in limits if limit.resource in vendor.resources]
        for charge in pod_charges(own, part_of(pod, vendor.key), vendor, mig=cluster.cache.has_mig):
            used, api = (
                cluster.charges.used_by_others(charge.limit, pod),
                cluster.charges.by_api_to_others(charge.limit, pod),
            )
            why = namespace_differences(charge.limit, others, vendor) if used != api else []
            rows.append(quota_row(charge.limit, used, api) | charge_row(charge, why))
    return rows


def booked_uid(cluster: Cluster, pod: Pod) -> str:
    """Return the UID under which the cluster has booked the pod; a manifest without a UID is found by its name."""
    named = cluster.pod_named(pod.namespace, pod.name)
    if cluster.pod(pod.uid) is None and named is not None and pod.key in (pod.uid, named.uid):
        return named.uid
    return pod.uid


def _node(
    cluster: Cluster, pod: Pod, name: str, score: int, quota: QuotaCheck, raw: tuple[RawReport, ...]
) -> dict[str, Any]:
    cache = cluster.cache
    record, snapshot = cache.pods.get(pod.uid), cluster.nominations.of_node(pod, name)
    if record is not None and record.node == name:
        cache, snapshot = cache.node_without(pod.uid), None
    claims = dict.fromkeys(f"DRA claim {each.claim}" for each in cache.claimed.unmapped(name))
    blockers = (*(each.key for each in cache.pods_on(name) if each.blocks is not None), *claims)
    outcome = explain_node(
        snapshot or cache.snapshot(),
        pod,
        name,
        cache.positions(name),
        blockers,
        quota,
        _unreadable_register(cache, name),
    )
    users: list[dict[str, Any]] = []
    if isinstance(outcome, Placement):
        outcome = raw_reasons(cluster.raw, pod, name) or outcome
        users = [] if isinstance(outcome, Placement) else _users(pod, raw)
    if isinstance(outcome, Placement) and quota.budget is not None:
        total, _ = pod_total(pod.containers, outcome.allocation)
        return explained_node(name, outcome, score) | {"total": total._asdict()}
    holders = users if isinstance(outcome, Placement) else [*_holders(cache, name, outcome), *users]
    return explained_node(name, outcome, score) | ({"holders": holders} if holders else {})


def _holders(cache: Cache, name: str, reasons: tuple[Reason, ...]) -> list[dict[str, Any]]:
    """Return who holds the cards that refuse the pod, by kind and name, and how much."""
    refusing = {uuid for reason in reasons for uuid in reason.devices}
    reports = [each for each in node_report(cache, name) if each.uuid in refusing] if refusing else []
    return [{"uuid": report.uuid, **holder} for report in reports for holder in card_holders(report)]


def _users(pod: Pod, raw: tuple[RawReport, ...]) -> list[dict[str, Any]]:
    """Return who has whole devices of the keys that the pod wants."""
    wanted = {key for key, _ in pod.raw}
    return [{"key": each.key, **holder} for each in raw if each.key in wanted for holder in raw_use(each)["holders"]]


def _unreadable_register(cache: Cache, name: str) -> str:
    """Return why a node's register cannot be read."""
    problems = cache.nodes[name].problems if name in cache.nodes else ()
    return "; ".join(each.message for each in problems if each.code is ProblemCode.UNREADABLE_REGISTER)


def _scores(cluster: Cluster, pod: Pod, names: list[str]) -> dict[str, int]:
    snapshot = cluster.cache.snapshot()
    rows = snapshot.rows_of(names)
    feasible = np.flatnonzero(cluster.filter(pod, rows).feasible)
    if pod.raw and not pod.asks:
        return dict(score_raw(cluster.raw, pod, [names[place] for place in feasible.tolist()]))
    values = cluster.packing.values(snapshot, pod, rows[feasible])
    scores = score_nodes(snapshot, rows[feasible], pod.policies.node, values=values)
    return {names[int(feasible[place])]: score for place, score in scores}
