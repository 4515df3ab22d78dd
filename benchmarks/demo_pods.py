"""Pods as the API server shows them while the kubelet runs them, one state after another.

It exists so that a story can say "the init fails" and the extender then sees what a kubelet would report. It must not
know what a pod holds. Invariant: time only moves forward, so that a later init starts after an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from benchmarks.demo_client import NAMESPACE
from benchmarks.questions import Ask, pod_object
from benchmarks.synthetic_pods import NOW_SECONDS, timestamp

Json = dict[str, Any]

GIB: Final = 1024

ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
#: A pod's containers share a card where they can; by default they are spread.
ONE_CARD: Final = {"hami.io/gpu-scheduler-policy": "binpack"}

#: A container's state in the tables -> whether it runs, and how it ended.
WAITING, RUNNING, DONE, FAILED, CRASHED = "waits", "runs", "exit 0", "exit 1", "crashed"
_EXIT_CODES: Final = {DONE: 0, FAILED: 1}


class DemoPod:
    """A pod and what its containers do now."""

    def __init__(self, name: str, asks: Sequence[Ask], annotations: Mapping[str, str] | None = None) -> None:
        self.asks = tuple(asks)
        self.states = {ask.name: WAITING for ask in asks}
        self.object = pod_object(name, str(uuid4()), self.asks, NAMESPACE)
        if annotations:
            self.object["metadata"]["annotations"] = dict(annotations)
        self._seconds = NOW_SECONDS
        self._statuses = {ask.name: self._status(ask.name) for ask in asks}

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.object["metadata"].get("annotations", {}))

    @property
    def name(self) -> str:
        name: str = self.object["metadata"]["name"]
        return name

    @property
    def uid(self) -> str:
        uid: str = self.object["metadata"]["uid"]
        return uid

    def bound_to(self, node: str, rows: Sequence[str] = ()) -> None:
        """Set the node, and each container's card if another scheduler chose it, as an accepted Binding does."""
        self.object["spec"]["nodeName"] = node
        if rows:
            text = "".join(
                f"{uuid},NVIDIA,{ask.memory_mib},{ask.cores}:;" for ask, uuid in zip(self.asks, rows, strict=True)
            )
            self.object["metadata"]["annotations"] = self.annotations | {ALLOCATED: text}

    def move(self, states: Mapping[str, str], phase: str) -> Json:
        """Let containers change their states; returns the Pod with its new status."""
        for name, state in states.items():
            self._seconds += 10
            self.states[name] = state
            self._statuses[name] = self._status(name)
        inits = [self._statuses[ask.name] for ask in self.asks if ask.kind != "app"]
        apps = [self._statuses[ask.name] for ask in self.asks if ask.kind == "app"]
        self.object["status"] = {"phase": phase, "initContainerStatuses": inits, "containerStatuses": apps}
        return self.object

    def _status(self, name: str) -> Json:
        state, started = self.states[name], timestamp(self._seconds)
        if state == RUNNING:
            return {"name": name, "state": {"running": {"startedAt": started}}}
        if state in _EXIT_CODES:
            ended = {"exitCode": _EXIT_CODES[state], "startedAt": started, "finishedAt": timestamp(self._seconds + 5)}
            return {"name": name, "state": {"terminated": ended}}
        reason = "CrashLoopBackOff" if state == CRASHED else "PodInitializing"
        return {"name": name, "state": {"waiting": {"reason": reason}}}
