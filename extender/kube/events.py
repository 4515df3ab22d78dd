"""Events on objects (events.k8s.io/v1): aggregated, rate-limited, best effort.

Why it exists: people look at `kubectl describe pod` first. Nothing may wait for it or fail because of it. Invariants:
equal events within the window become one object with a count; the queue is bounded, and if it is full new events are
dropped.
"""

import asyncio
import json
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from extender.kube.client import MERGE_PATCH, KubeClient
from extender.kube.paths import EVENTS, api_path
from extender.logs import logger

_NOTE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class PodRef:
    """The pod that an event is about."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Rates and bounds of events."""

    per_second: float = 5.0
    queue: int = 500
    window_seconds: float = 300.0
    remembered: int = 2_000


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    first: float


@dataclass(frozen=True, slots=True)
class _Event:
    pod: PodRef
    type: str
    reason: str
    action: str
    note: str


class EventRecorder:
    """Sends events one after another."""

    def __init__(self, client: KubeClient, identity: str, settings: EventSettings | None = None) -> None:
        self.dropped = 0
        self._client = client
        self._identity = identity
        self._settings = settings or EventSettings()
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(self._settings.queue)
        self._series: OrderedDict[_Event, _Series] = OrderedDict()

    def warning(self, pod: PodRef, reason: str, action: str, note: str) -> None:
        """Queue a Warning; dropped when the queue is full."""
        self._put(pod, "Warning", reason, action, note)

    def normal(self, pod: PodRef, reason: str, action: str, note: str) -> None:
        """Queue an event of what should happen; dropped when the queue is full."""
        self._put(pod, "Normal", reason, action, note)

    def _put(self, pod: PodRef, kind: str, reason: str, action: str, note: str) -> None:
        text = note.encode()[:_NOTE_BYTES].decode(errors="ignore")
        try:
            self._queue.put_nowait(_Event(pod, kind, reason, action, text))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            event = await self._queue.get()
            await self._send(event)
            await asyncio.sleep(1 / self._settings.per_second)

    async def _send(self, event: _Event) -> None:
        now = asyncio.get_running_loop().time()
        series = self._series.get(event)
        if series is not None and now - series.first < self._settings.window_seconds:
            series.count += 1
            if await self._count(event, series):
                return
        self._series[event] = _Series(f"{event.pod.name[:200].rstrip('.-')}.{uuid.uuid4().hex[:16]}", 1, now)
        if len(self._series) > self._settings.remembered:
            self._series.popitem(last=False)
        await self._create(event, self._series[event].name)

    async def _count(self, event: _Event, series: _Series) -> bool:
        """Raise the count of an existing event; returns False if the event is gone."""
        body = json.dumps({"series": {"count": series.count, "lastObservedTime": _now()}}).encode()
        path = api_path(EVENTS, series.name, namespace=event.pod.namespace)
        answer = await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout_seconds=5)
        return answer.status != HTTPStatus.NOT_FOUND

    async def _create(self, event: _Event, name: str) -> None:
        pod = event.pod
        regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "eventTime": _now(),
            "reportingController": "gpu-extender",
            "reportingInstance": self._identity[:128],
            "action": event.action,
            "reason": event.reason,
            "type": event.type,
            "note": event.note,
            "regarding": regarding,
        }
        path = api_path(EVENTS, namespace=pod.namespace)
        answer = await self._client.request("POST", path, body=json.dumps(body).encode(), timeout_seconds=5)
        if not answer.ok:
            logger().info("event not written", pod=f"{pod.namespace}/{pod.name}", why=answer.message)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
