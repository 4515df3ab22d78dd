"""Prometheus metrics.

Why it exists: it observes latencies where requests are answered, and reads everything else from the state at each
scrape. It must not keep other state. Invariant: no label's value is a pod, a card or a node.
"""

import platform
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from accounting.status import Code
from extender import __version__
from extender.log_repeats import RepeatsCollector
from extender.logs import REPEATS
from extender.reports import holder_counts
from extender.server.usage_metrics import card_sums, quota_metrics, raw_metrics
from extender.verbs import Verbs
from extender.wire.extender_v1 import WireError

#: A verb takes from a tenth of a millisecond to a few; a whole second slows kube-scheduler down badly.
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """The registry, and the histogram of latencies."""

    def __init__(self, verbs: Verbs, live: Collector | None = None, kubernetes: Callable[[], str] = lambda: "") -> None:
        """`kubernetes`: returns the API server's version, "" while it is unknown."""
        self.registry = CollectorRegistry()
        self.duration = Histogram(
            "gpu_extender_request_duration_seconds",
            "Time from the whole body received to the answer built, by verb and result.",
            ["verb", "result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_StateCollector(verbs, kubernetes))
        self.registry.register(RepeatsCollector(REPEATS))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        if live is not None:
            self.registry.register(live)


class _StateCollector(Collector):
    def __init__(self, verbs: Verbs, kubernetes: Callable[[], str]) -> None:
        self._verbs = verbs
        self._kubernetes = kubernetes

    def collect(self) -> Iterator[Metric]:
        text = "Always 1; the versions of the program, of Python, and of the API server once it has said it."
        info = GaugeMetricFamily("gpu_extender_build_info", text, labels=["version", "python", "kubernetes"])
        info.add_metric([__version__, platform.python_version(), self._kubernetes()], 1)
        yield info
        yield from self._counters()
        try:
            self._verbs.check_ready()
        except WireError:
            # Only the leader of several replicas exports usage; otherwise a sum over replicas would count it twice.
            return
        yield from self._cluster()
        yield from card_sums(self._verbs.cluster)

    def _counters(self) -> Iterator[Metric]:
        rejected = CounterMetricFamily(
            "gpu_extender_nodes_rejected", "Nodes refused by filter, by reason code.", labels=["code"]
        )
        for code, count in sorted(self._verbs.rejected.items()):
            rejected.add_metric([code], count)
        yield rejected
        preemptions = CounterMetricFamily(
            "gpu_extender_preemptions",
            "Preempt calls by result: victims named, none that help, or echoed for a pod without cards.",
            labels=["result"],
        )
        for outcome, count in self._verbs.preemptions.items():
            preemptions.add_metric([outcome], count)
        yield preemptions
        text = "Pods that kube-scheduler offered as victims for pods with cards, over all nodes of its questions."
        offered = self._verbs.victims_offered
        yield CounterMetricFamily("gpu_extender_preemption_victims_offered", text, value=offered)
        text = "Pods that preempt named as victims, over all nodes of its answers."
        yield CounterMetricFamily("gpu_extender_preemption_victims_named", text, value=self._verbs.victims_named)
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
        text = "Who holds cards or whole devices, by kind: pods, DRA claims, VMs, holds with objects of their own."
        holders = GaugeMetricFamily("gpu_extender_holders", text, labels=["kind"])
        counts = holder_counts(cluster)
        holders.add_metric(["pod"], counts["pod"])
        holders.add_metric(["claim"], counts["claim"])
        holders.add_metric(["vmi"], counts["vmi"])
        holders.add_metric(["hold"], counts["hold"])
        yield holders
        found = GaugeMetricFamily("gpu_extender_problems", "What verify reports now, by code.", labels=["code"])
        for code, count in cluster.problem_counts().items():
            found.add_metric([code.value], count)
        yield found
        yield from quota_metrics(cluster)
        yield from raw_metrics(cluster)
