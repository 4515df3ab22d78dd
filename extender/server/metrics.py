"""Prometheus metrics.

Why it exists: latencies are observed where requests are answered, everything else is read from the state when somebody
scrapes. It must not keep state of its own. Invariant: no label takes a pod, a card or a node as value.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from accounting.status import Code
from extender import __version__
from extender.cluster import Cluster
from extender.log_repeats import RepeatsCollector
from extender.logs import REPEATS
from extender.verbs import Verbs
from extender.wire.extender_v1 import WireError

_DIMENSIONS = ("slots", "memory_mib", "cores_percent")
_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """The registry and the one thing that is observed."""

    def __init__(self, verbs: Verbs, live: Collector | None = None) -> None:
        self.registry = CollectorRegistry()
        self.duration = Histogram(
            "gpu_extender_request_duration_seconds",
            "Time from the whole body received to the answer built, by verb and result.",
            ["verb", "result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_StateCollector(verbs))
        self.registry.register(RepeatsCollector(REPEATS))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        if live is not None:
            self.registry.register(live)


class _StateCollector(Collector):
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("gpu_extender_build_info", "Always 1.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        yield from self._counters()
        try:
            self._verbs.check_ready()
        except WireError:
            # Of several replicas the leader alone exports usage, or a sum over them would count it twice.
            return
        yield from self._cluster()
        yield from _devices(self._verbs)

    def _counters(self) -> Iterator[Metric]:
        rejected = CounterMetricFamily(
            "gpu_extender_nodes_rejected", "Nodes refused by filter, by reason code.", labels=["code"]
        )
        for code, count in sorted(self._verbs.rejected.items()):
            rejected.add_metric([code], count)
        yield rejected
        text = "Filter calls in which the greedy choice of cards left some node to the exact search."
        yield CounterMetricFamily("gpu_extender_exact_searches", text, value=self._verbs.searches)
        text = "Nodes that went to the exact search."
        yield CounterMetricFamily("gpu_extender_exactly_searched_nodes", text, value=self._verbs.searched_nodes)
        text = "Nodes that the exact search left undecided, because its steps ran out; filter refused them."
        at_limit = self._verbs.rejected.get(Code.SEARCH_LIMIT, 0)
        yield CounterMetricFamily("gpu_extender_exact_search_limits", text, value=at_limit)
        name = "gpu_extender_answers_from_memory"
        text = "Verb calls answered from memory: the same question on the same state."
        yield CounterMetricFamily(name, text, value=self._verbs.answered_from_memory)

    def _cluster(self) -> Iterator[Metric]:
        cluster = self._verbs.cluster
        nodes, pods = len(cluster.cache.nodes), len(cluster.cache.pods)
        yield GaugeMetricFamily("gpu_extender_cache_nodes", "Nodes known.", value=nodes)
        yield GaugeMetricFamily("gpu_extender_cache_pods", "Pods that hold cards or block them.", value=pods)
        found = GaugeMetricFamily("gpu_extender_problems", "What verify reports now, by code.", labels=["code"])
        for code, count in cluster.problem_counts().items():
            found.add_metric([code.value], count)
        yield found
        yield from _quotas(cluster)


def _quotas(cluster: Cluster) -> Iterator[Metric]:
    """The limits of every namespace. A quota that counts some of its pods has the label `scopes` as well."""
    hard = GaugeMetricFamily("gpu_extender_quota_hard", "Tightest limit.")
    used = GaugeMetricFamily("gpu_extender_quota_used", "Charged to pods now.")
    text = "What the API server's own quota charges the same pods: per container, never shrinking."
    charge = GaugeMetricFamily("gpu_extender_quota_api_charge", text)
    for namespace in cluster.quotas.namespaces():
        for limit in cluster.quotas.limits_of(namespace):
            scopes = {"scopes": ", ".join(map(str, limit.selector))} if limit.selector else {}
            labels = {"namespace": namespace, "resource": limit.resource} | scopes
            hard.add_sample(hard.name, labels, limit.hard)
            used.add_sample(used.name, labels, cluster.charges.used(limit))
            charge.add_sample(charge.name, labels, cluster.charges.by_api(limit))
    yield hard
    yield used
    yield charge


def _devices(verbs: Verbs) -> Iterator[Metric]:
    """Sums over registered cards; a card that is gone is counted in the problems."""
    capacity = GaugeMetricFamily("gpu_extender_capacity", "Slots, MiB and percent registered.", labels=["dimension"])
    requested = GaugeMetricFamily("gpu_extender_requested", "Slots, MiB and percent held.", labels=["dimension"])
    snapshot = verbs.cluster.cache.snapshot()
    for dimension, whole, held in zip(_DIMENSIONS, snapshot.capacity, snapshot.used, strict=True):
        capacity.add_metric([dimension], int(whole.sum()))
        requested.add_metric([dimension], int(held.sum()))
    yield capacity
    yield requested
