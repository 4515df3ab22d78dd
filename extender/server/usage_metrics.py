"""Metrics of the cards' capacity, of what is held, of whole devices, and of quotas, summed over the cluster.

Why it exists: each metric has one base unit (bytes, ratio, number), so each dimension of a card is a separate metric.
It must not label by pod, card or node. Invariant: a ratio of 1 is all cores of one card.
"""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from accounting.holders import ANY_NAMESPACE
from accounting.quota import Limit
from accounting.vendor import Vendor
from extender.cluster import Cluster

MIB = 1 << 20
PERCENT = 0.01


class Dimension(NamedTuple):
    """A dimension of cards: the suffix of its metrics' names, its words, and accounting's unit in base units."""

    suffix: str
    words: str
    scale: float


SLOTS = Dimension("slots", "slots", 1)
MEMORY = Dimension("memory_bytes", "bytes of memory", MIB)
CORES = Dimension("cores_ratio", "cores, where 1 is a whole card", PERCENT)


def card_sums(cluster: Cluster) -> Iterator[Metric]:
    """Yield sums over registered cards; cards that are gone count only as problems."""
    snapshot = cluster.cache.snapshot()
    cards = int(snapshot.nodes.present.sum())
    yield GaugeMetricFamily("gpu_extender_cards", "Cards that nodes register.", value=cards)
    unhealthy = int((snapshot.nodes.present & ~snapshot.nodes.healthy).sum())
    yield GaugeMetricFamily("gpu_extender_cards_unhealthy", "Cards that nodes register as unhealthy.", value=unhealthy)
    for dimension, whole, held in zip((SLOTS, MEMORY, CORES), snapshot.capacity, snapshot.used, strict=True):
        text = f"Sum over registered cards of {dimension.words}."
        yield _gauge(f"capacity_{dimension.suffix}", text, int(whole.sum()) * dimension.scale)
        text = f"Sum over registered cards of {dimension.words} that are held."
        yield _gauge(f"requested_{dimension.suffix}", text, int(held.sum()) * dimension.scale)
    waiting = len(cluster.registry.waiting())
    yield _gauge("pods_waiting", "Pods that ask for cards and are on no node.", waiting)


def quota_metrics(cluster: Cluster) -> Iterator[Metric]:
    """Yield the limits of every namespace. A quota that counts only some of its pods also has the label `scopes`."""
    families: dict[tuple[str, str], GaugeMetricFamily] = {}
    kinds = [
        ("hard", "Tightest limit of {}."),
        ("used", "What pods are charged now: {}."),
        ("api_charge", "What the API server's own quota charges the same pods, never shrinking: {}."),
    ]
    for suffix, words in (("cards", "cards"), MEMORY[:2], CORES[:2]):
        for kind, text in kinds:
            name = f"gpu_extender_quota_{kind}_{suffix}"
            families[kind, suffix] = GaugeMetricFamily(name, text.format(words))
    for namespace in cluster.quotas.namespaces():
        for limit in cluster.quotas.limits_of(namespace):
            suffix, scale = _unit(limit, cluster)
            scopes = {"scopes": ", ".join(map(str, limit.selector))} if limit.selector else {}
            labels = {"namespace": namespace, "resource": limit.resource} | scopes
            amounts = limit.hard, cluster.charges.used(limit), cluster.charges.by_api(limit)
            for (kind, _), amount in zip(kinds, amounts, strict=True):
                family = families[kind, suffix]
                family.add_sample(family.name, labels, amount * scale)
    yield from families.values()


def raw_metrics(cluster: Cluster) -> Iterator[Metric]:
    """Yield whole devices by raw key, and the budgets for them; nothing where no key is counted."""
    keys = cluster.settings.raw_keys
    if not keys:
        return
    raw = cluster.raw
    used = dict.fromkeys(keys, 0)
    for (_, key), units in raw.units.on_nodes().items():
        used[key] = used.get(key, 0) + units
    devices = GaugeMetricFamily(
        "gpu_extender_raw_devices", "Whole devices that nodes have, by raw key.", labels=["key"]
    )
    in_use = GaugeMetricFamily(
        "gpu_extender_raw_devices_used", "Whole devices that pods, VMs and holds have.", labels=["key"]
    )
    for key in sorted(used):
        devices.add_metric([key], sum(raw.allocatable(key).values()))
        in_use.add_metric([key], used[key])
    text = "Whole devices that a namespace may have."
    hard = GaugeMetricFamily("gpu_extender_raw_budget_hard", text, labels=["namespace", "key"])
    text = "Whole devices that are charged to a namespace with a budget."
    charged = GaugeMetricFamily("gpu_extender_raw_budget_used", text, labels=["namespace", "key"])
    for (namespace, key), units in sorted(raw.budgets().items()):
        hard.add_metric([namespace, key], units)
        if namespace != ANY_NAMESPACE:
            charged.add_metric([namespace, key], raw.units.used_in(namespace, key))
    yield from (devices, in_use, hard, charged)


def _unit(limit: Limit, cluster: Cluster) -> tuple[str, float]:
    """Return the suffix of the metric's name, and the limit's unit in base units."""
    vendor = next((each for each in cluster.settings.vendors if limit.resource in each.resources), None)
    return _unit_of(limit.resource, vendor)


def _unit_of(resource: str, vendor: Vendor | None) -> tuple[str, float]:
    if vendor is not None and resource == vendor.memory_resource:
        return MEMORY.suffix, MIB
    if vendor is not None and resource == vendor.cores_resource:
        return CORES.suffix, PERCENT
    return "cards", 1


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpu_extender_{name}", text, value=value)
