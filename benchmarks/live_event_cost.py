"""Measures what one watch event costs the extender apart from the network: decode, convert, record, cache.

It exists because a process that waits for events also pays for waking up, which is not a cost of the event. It must not
start anything. Invariant: the lines are those that the API server would send, and each one differs from the last one of
its pod; the times are CPU times of this thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from benchmarks.measure import quiet_collector
from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.kube.reflector import Change
from extender.kube.watch_event import read_event
from extender.live.watching import Facts, NodeSink, PodInformer, PodSink

_ROUNDS: Final = 5
_PODS: Final = 2_000


class EventCost(NamedTuple):
    """Nanoseconds of CPU per event: the best of some rounds."""

    unchanged_ns: int
    """Events of a status that changes nothing that counts."""
    changed_ns: int
    """Events of inits that end or run again, so that the pod holds less or more."""
    added_ns: int
    deleted_ns: int


class _Lines(NamedTuple):
    first: list[bytes]
    second: list[bytes]


def measure(dump: Path) -> EventCost:
    """Measure on some pods of a dump, in a cluster with those pods and all of the dump's nodes."""
    cluster = Cluster(Settings(), deletions_are_told=True)
    nodes, pods = NodeSink(cluster, Facts()), PodSink(cluster, PodInformer(cluster))
    cluster.events.freed.subscribe(_ignore)
    cluster.events.seen.subscribe(_ignore)
    chosen: list[bytes] = []
    for kind, raw in _objects(dump):
        if kind == "Node":
            nodes.change(Change.PUT, msgspec.Raw(raw))
        elif kind == "Pod" and len(chosen) < _PODS:
            chosen.append(raw)
    statuses, inits = _lines(chosen, _with_message), _lines(chosen, _with_inits)

    def put(lines: Iterable[bytes]) -> None:
        for line in lines:
            pods.change(Change.PUT, read_event(line).raw)

    def delete(lines: Iterable[bytes]) -> None:
        for line in lines:
            pods.change(Change.DELETED, read_event(line).raw)

    with quiet_collector():
        put(statuses.first)
        unchanged = _best(lambda: put(statuses.second), lambda: put(statuses.first))
        changed = _best(lambda: put(inits.second), lambda: put(inits.first))
        added = _best(lambda: put(statuses.first), lambda: delete(statuses.first), before=True)
        deleted = _best(lambda: delete(statuses.first), lambda: put(statuses.first), before=True)
    count, with_inits = len(statuses.first), max(1, len(inits.first))
    return EventCost(unchanged // count, changed // with_inits, added // count, deleted // count)


def _best(measured: Callable[[], None], between: Callable[[], None], *, before: bool = False) -> int:
    best = None
    for _ in range(_ROUNDS):
        if before:
            between()
        started = time.thread_time_ns()
        measured()
        took = time.thread_time_ns() - started
        best = took if best is None else min(best, took)
        if not before:
            between()
    return best or 0


def _objects(dump: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the objects of a dump that has one on each line; pods that have ended are left out."""
    with dump.open("rb") as lines:
        for line in lines:
            start = line[:60]
            if b'"kind":"Node"' in start:
                yield "Node", line.rstrip(b",\n")
            elif b'"kind":"Pod"' in start and b'"phase":"Succeeded"' not in line and b'"phase":"Failed"' not in line:
                yield "Pod", line.rstrip(b",\n")


def _lines(pods: list[bytes], change: Callable[[Any, int], bool]) -> _Lines:
    """Return two watch events of each pod that `change` can change."""
    lines = _Lines([], [])
    for raw in pods:
        for turn, found in enumerate(lines):
            pod = orjson.loads(raw)
            # A line is sent several times, by turns with the other one; a lower version would be dropped.
            pod["metadata"]["resourceVersion"] = "9000000"
            if change(pod, turn):
                found.append(orjson.dumps({"type": "MODIFIED", "object": pod}))
    return lines


def _with_message(pod: Any, turn: int) -> bool:  # noqa: ANN401 - a JSON object
    pod["status"]["message"] = f"turn {turn}"
    return True


def _with_inits(pod: Any, turn: int) -> bool:  # noqa: ANN401 - a JSON object
    statuses = pod["status"].get("initContainerStatuses", [])
    ended = {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:00Z"}}
    for status in statuses:
        status["state"] = ended if turn else {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    sidecars = {each["name"] for each in pod["spec"].get("initContainers", []) if each.get("restartPolicy") == "Always"}
    return any(status["name"] not in sidecars for status in statuses)


def _ignore(_: object) -> None:
    pass
