"""Metrics of the live parts, read from their state when somebody scrapes.

It must not keep state beyond the loop's stalls; scraping changes nothing, so any number of scrapers see the same.
Invariant: no label's value is a pod, a card or a node.
"""

import asyncio
import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.live.app import LiveExtender
from extender.live.garbage import GarbagePace
from extender.live.leading import LeaseHolder

_TICK_SECONDS = 0.01
_WINDOW_SECONDS = 60.0
_STALL_SECONDS = 0.05


class LoopMonitor:
    """Measures how long the event loop was busy without a break, in seconds."""

    def __init__(self) -> None:
        self.stalls = 0
        """Number of stretches above the allowed 50 ms."""
        self._windows = [0.0, 0.0]  # the longest of the previous window, and of this one
        self._cpu_windows = [0.0, 0.0]
        self._window_end = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def worst_seconds(self) -> float:
        """The longest stretch of the last one to two minutes."""
        return max(self._windows)

    @property
    def worst_cpu_seconds(self) -> float:
        """The same in CPU time of this thread: without the time that the machine gave to others."""
        return max(self._cpu_windows)

    async def run(self) -> None:
        """Measure until cancelled: if a timer comes late, something else ran for that long.

        A timer is called back in one pass of the loop; a sleeping task would need two, a hundred times a second.
        """
        loop = asyncio.get_running_loop()
        self._window_end = loop.time() + _WINDOW_SECONDS
        self._tick(loop, loop.time(), time.thread_time())
        try:
            await loop.create_future()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float, cpu_before: float) -> None:
        now, cpu = loop.time(), time.thread_time()
        if now >= self._window_end:
            self.next_window()
            self._window_end = now + _WINDOW_SECONDS
        self.note(now - due, cpu - cpu_before)
        self._timer = loop.call_later(_TICK_SECONDS, self._tick, loop, now + _TICK_SECONDS, cpu)

    def next_window(self) -> None:
        """Begin a new window; the previous one still counts."""
        self._windows = [self._windows[1], 0.0]
        self._cpu_windows = [self._cpu_windows[1], 0.0]

    def note(self, seconds: float, cpu_seconds: float) -> None:
        """Note one stretch, and how long this thread ran meanwhile."""
        self._windows[1] = max(self._windows[1], seconds)
        self._cpu_windows[1] = max(self._cpu_windows[1], min(seconds, cpu_seconds))
        self.stalls += seconds > _STALL_SECONDS


class LiveCollector(Collector):
    """The live parts' metrics."""

    def __init__(self, live: LiveExtender, monitor: LoopMonitor, garbage: GarbagePace | None = None) -> None:
        self._live = live
        self._monitor = monitor
        self._garbage = garbage

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        yield from self._binds()
        yield from self._leading()
        yield from self._loop()
        yield from self._reflectors()
        yield from self._evicting()
        live = self._live
        yield _counter("pods_woken", "Annotation patches on refused pods.", live.waker.woken)
        yield _counter("api_requests", "Requests to the API server.", live.client.requests)
        yield _counter("events_dropped", "Events not written for lack of room.", live.events.dropped)
        yield _counter("overcommit_reports", "Pods reported for over-committed cards.", live.overcommit.reports)
        text = "Nodes reported on which more whole devices of a raw key are used than there are."
        yield _counter("raw_overcommit_reports", text, live.raw_overcommit.reports)
        claims = 0 if live.claims is None else len(live.claims)
        yield _gauge("claims", "Pods that passed filter and are not bound yet.", claims)
        if live.compared is not None:
            text = "Objects that differed from the API server when last compared."
            yield _gauge("cache_differences", text, live.compared.differing)

    def _binds(self) -> Iterator[Metric]:
        counts = self._live.binder.counts
        outcomes = CounterMetricFamily("gpu_extender_binds", "Binds by outcome.", labels=["outcome"])
        for outcome, count in sorted(counts.outcomes.items()):
            outcomes.add_metric([outcome], count)
        yield outcomes
        yield _gauge("binds_in_flight", "Binds being decided.", counts.in_flight)
        yield _counter("binds_unanswered", "Binds whose Binding got no answer, so far.", self._live.binder.unanswered)

    def _evicting(self) -> Iterator[Metric]:
        evictor, counts = self._live.evictor, self._live.evictor.counts
        text = "Preemptions by this extender that have ended, by how."
        ends = CounterMetricFamily("gpu_extender_evicting_preemptions", text, labels=["outcome"])
        for end, count in sorted(counts.ends.items()):
            ends.add_metric([end], count)
        yield ends
        yield _gauge("evicting_preemptions_under_way", "Preemptions by this extender under way.", evictor.under_way)
        yield _counter("evicting_victims", "Evictions that the API server accepted.", counts.victims)
        text = "Evictions that the API server did not accept, each time."
        yield _counter("evicting_not_accepted", text, counts.not_accepted)
        text = "1 while the stop file exists, so that nobody is evicted."
        yield _gauge("evicting_stopped", text, int(evictor.is_stopped))
        text = "From a pod's first refusal to its node, of pods for which this extender evicted others."
        yield HistogramMetricFamily(
            "gpu_extender_evicting_seconds", text, buckets=counts.buckets(), sum_value=counts.seconds
        )

    def _leading(self) -> Iterator[Metric]:
        leadership = self._live.leadership
        yield _gauge("leader", "1 while this replica leads and may write.", int(leadership.is_leader()))
        yield _gauge("ready", "1 while kube-scheduler should ask this replica.", int(self._live.is_ready()))
        if isinstance(leadership, LeaseHolder):
            yield _counter("elections", "Terms that this replica began.", leadership.elections)

    def _loop(self) -> Iterator[Metric]:
        monitor = self._monitor
        text = "Longest time that the event loop was busy at a stretch in the last one to two minutes."
        yield _gauge("loop_stall_seconds", text, monitor.worst_seconds)
        cpu_text = "The same, as far as it was the process that ran and not others of the machine."
        yield _gauge("loop_stall_cpu_seconds", cpu_text, monitor.worst_cpu_seconds)
        yield _counter("loop_stalls", "Times that the event loop was busy for more than 50 ms.", monitor.stalls)
        if self._garbage is not None:
            yield _gauge("full_collection_seconds", "Longest full garbage collection.", self._garbage.worst_seconds)

    def _reflectors(self) -> Iterator[Metric]:
        lists = _per_resource_counter("lists", "Lists taken.")
        watches = _per_resource_counter("watches", "Watches started.")
        failures = _per_resource_counter("failures", "Lists and watches failed.")
        undecodable = _per_resource_counter("undecodable", "Objects not decoded.")
        age = GaugeMetricFamily(
            "gpu_extender_reflector_last_event_age_seconds", "Since anything came.", labels=["resource"]
        )
        now = asyncio.get_running_loop().time()
        for reflector in self._live.reflectors:
            resource, state = [reflector.path.rpartition("/")[2]], reflector.state
            lists.add_metric(resource, state.lists)
            watches.add_metric(resource, state.watches)
            failures.add_metric(resource, state.failures)
            undecodable.add_metric(resource, state.undecodable)
            if state.last_event_at is not None:
                age.add_metric(resource, now - state.last_event_at)
        yield from (lists, watches, failures, undecodable, age)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"gpu_extender_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpu_extender_{name}", text, value=value)


def _per_resource_counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"gpu_extender_reflector_{name}", text, labels=["resource"])
