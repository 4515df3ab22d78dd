"""One pod in full, and decisions, as JSON.

It must not compute what accounting can. Invariant: times are RFC 3339 in UTC, durations whole microseconds.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import cast

from accounting.pod import Pod
from accounting.pod_record import PodRecord
from extender.reports.container_requests import asks
from extender.reports.phases import phases
from extender.reports.render import pod_entry
from extender.reports.shapes import DecisionEntry, PodDetail, PodEntry
from extender.verbs import Decision


def pod_detail(pod: Pod, record: PodRecord, decisions: Iterable[Decision]) -> PodDetail:
    """Return a pod's entry, what it asks for, its phases and the last decisions on it, newest first."""
    entry = cast("PodEntry", pod_entry(pod, record))
    placed = isinstance(pod.allocation, tuple) and pod.node is not None
    rows = pod.allocation if placed and isinstance(pod.allocation, tuple) else ((),) * len(pod.containers)
    return {
        **entry,
        "asks": asks(pod.containers),
        "phases": phases(pod.containers, rows),
        "decisions": [decision_entry(each) for each in decisions],
    }


def decision_entry(decision: Decision) -> DecisionEntry:
    """Return one decision."""
    return {
        "pod": decision.pod,
        "uid": decision.uid,
        "time": datetime.fromtimestamp(decision.at, UTC).isoformat(timespec="milliseconds"),
        "asks": asks(decision.asked),
        "nodes": decision.node_count,
        "fits": decision.feasible,
        "refused": [{"code": each.code, "count": each.count, "nodes": list(each.nodes)} for each in decision.refused],
        "filter_microseconds": _microseconds(decision.seconds) or 0,
        "repeats": decision.repeats,
        "scores": [{"node": node, "score": score} for node, score in decision.scores],
        "choice": decision.scores[0][0] if decision.scores else None,
        "prioritize_microseconds": _microseconds(decision.score_seconds),
        "bind": None
        if decision.bound is None
        else {
            "node": decision.bound,
            "error": decision.bind_error,
            "microseconds": _microseconds(decision.bind_seconds),
        },
    }


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)
