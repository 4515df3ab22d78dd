"""Pods of different priority on full cards, and an extender that may evict.

It exists so that a test of evicting shows only which pods are in the way. It must not choose victims. Invariant: the
evicted pods are those of the API server's requests, in their order.
"""

from dataclasses import replace
from typing import Any

from extender.convert.annotations import PREEMPTING
from extender.live.evicting import EvictSettings
from extender.live.settings import LiveSettings
from tests.apiserver.resources import EVENTS
from tests.extender.objects import Json, bound
from tests.live.harness import Bench, eventually, live_settings
from tests.live.harness_kube import MERGE
from tests.live.harness_scheduler import SchedulingQueue
from tests.virtual_time import passes

LOW, MIDDLE, HIGH = 0, 500, 1000


def with_priority(made: Json, priority: int, **meta: Any) -> Json:  # noqa: ANN401 - any field
    made["spec"]["priority"] = priority
    made["metadata"] |= meta
    return made


def holder(name: str, node: str = "n1", memory: int = 900, *, priority: int = LOW, card: int = 0, **how: Any) -> Json:  # noqa: ANN401 - see bound
    """A pod on a card of a node, without a grace period."""
    meta = {"labels": how.pop("labels")} if "labels" in how else {}
    grace = how.pop("grace_seconds", 0)
    made = with_priority(bound(name, node, f"GPU-{node}-{card}", memory, **how), priority, **meta)
    made["spec"]["terminationGracePeriodSeconds"] = grace
    return made


def budget(allowed: int, name: str = "b", **labels: str) -> Json:
    """A PodDisruptionBudget over pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


def evicting(how: Any = None, **evict: Any) -> LiveSettings:  # noqa: ANN401 - settings
    """Settings of an extender that evicts."""
    return replace(live_settings(**(how or {})), evict=EvictSettings(**{"evicts": True, **evict}))


def evicted(bench: Bench) -> list[str]:
    """Return the pods whose eviction was requested, in order; a pod comes as often as it was."""
    return [seen.path.split("/")[-2] for seen in bench.api.requests.recent if seen.target == "pods/eviction"]


def names_left(bench: Bench) -> set[str]:
    """Return the pods that exist and are not being deleted."""
    return {pod["metadata"]["name"] for pod in bench.kube.pods() if not pod["metadata"].get("deletionTimestamp")}


def queue(bench: Bench) -> SchedulingQueue:
    """kube-scheduler, which asks about every pending pod that is new or has changed."""
    return SchedulingQueue(bench.scheduler, bench.kube, idle_seconds=0.1)


async def is_bound(bench: Bench, name: str, node: str | None = None) -> None:
    """Wait until a pod has a node."""
    await eventually(lambda: bench.kube.node_of(name) is not None, f"{name} is bound")
    assert node in (None, bench.kube.node_of(name))


async def unevicted_after(bench: Bench, seconds: float, already: int = 0) -> bool:
    """Whether no further pod is evicted while that much time passes."""
    await passes(seconds)
    return len(evicted(bench)) == already


def allow(bench: Bench, disruptions: int, name: str = "b") -> None:
    """Let a budget allow that many, as its controller does when pods have come back."""
    path = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}/status"
    bench.kube.send("PATCH", path, {"status": {"disruptionsAllowed": disruptions}}, MERGE)


def kept_for(bench: Bench, name: str) -> str | None:
    """Return what the annotation on a pod says is kept for it."""
    text: str | None = (bench.kube.pod(name)["metadata"].get("annotations") or {}).get(PREEMPTING)
    return text


def notes(bench: Bench) -> dict[str, tuple[str, str]]:
    """Return the last event of each reason: the pod that it is about, and its text."""
    rows = [row.decode() for row in bench.api.store.tables[EVENTS].rows]
    return {event["reason"]: (event["regarding"]["name"], event["note"]) for event in rows}
