"""Metrics of the webhooks, read from the counters at each scrape.

It must not keep other state. Invariant: no label's value is a pod, a namespace or a user.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.admission.service import Admission


class AdmissionCollector(Collector):
    """The webhooks' metrics."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        decisions = CounterMetricFamily(
            "gpu_extender_admission_decisions",
            "Reviews by webhook, decision and why; malformed ones could not be answered.",
            labels=["webhook", "decision", "why", "dry_run"],
        )
        for outcome, count in sorted(self._admission.counts.items()):
            dry_run = "true" if outcome.dry_run else "false"
            decisions.add_metric([outcome.webhook, outcome.decision, outcome.why, dry_run], count)
        yield decisions
