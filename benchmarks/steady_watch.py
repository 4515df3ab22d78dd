"""Looks at a running extender and its API server from outside: memory, CPU, stalls, and how late the watch is.

It exists so that a long run looks at the same things each time. It must not make load worth mentioning or judge.
Invariant: a probe pod is deleted again before the look ends.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from benchmarks.http_load import Connection
from benchmarks.live_process import LiveProcess
from benchmarks.processes import Server
from benchmarks.steady_pods import NAMESPACE, manifest_of

_PROBES: Final = 3
_POLL_SECONDS: Final = 0.001
_SEEN_SECONDS: Final = 60.0
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Watched(NamedTuple):
    """What a look shows; counts and CPU are since the look before."""

    seconds: float
    resident_kib: tuple[int, int, int]
    """Of the extender, the API server and this process."""
    cpu_percent: tuple[int, int, int]
    watch_lag_us: int
    stall_us: int
    stall_cpu_us: int
    events: int


class Observer:
    """Looks at two servers and at this process."""

    def __init__(self, api: Server, extender: Server) -> None:
        self.extender = LiveProcess(extender.pid, extender.address)
        self._api_address, self._extender_address = api.address, extender.address
        self._api = LiveProcess(api.pid, api.address)
        self._number = itertools.count()
        self._at = time.monotonic()
        self._cpu = self._cpu_ns()
        self._events = 0

    def look(self) -> Watched:
        """Look now."""
        lag_us = self._lag_us()
        self.extender.forget_stalls()
        stall = self.extender.stall()
        now, cpu, events = time.monotonic(), self._cpu_ns(), self._patched()
        seconds = max(1e-6, now - self._at)
        percent = tuple(round((after - before) / seconds / 1e7) for before, after in zip(self._cpu, cpu, strict=True))
        resident = (self.extender.resident_kib(), self._api.resident_kib(), _own_kib())
        found = Watched(seconds, resident, (percent[0], percent[1], percent[2]), lag_us, *stall, events - self._events)
        self._at, self._cpu, self._events = now, cpu, events
        return found

    def _cpu_ns(self) -> tuple[int, int, int]:
        return self.extender.cpu().used_ns, self._api.cpu().used_ns, time.process_time_ns()

    def _patched(self) -> int:
        """Return how many pods' statuses were patched one by one, which the maker of events alone does."""
        with Connection(self._api_address) as api:
            rows = orjson.loads(api.call("GET", "/_test/requests").body)
        return sum(each["count"] for each in rows if each["resource"] == "pods/status" and each["verb"] == "patch")

    def _lag_us(self) -> int:
        with Connection(self._api_address) as api, Connection(self._extender_address) as extender:
            return max(self._probe(api, extender) for _ in range(_PROBES))

    def _probe(self, api: Connection, extender: Connection) -> int:
        """Create a pod that nobody schedules, and wait until the extender shows it."""
        name = f"probe-{next(self._number)}"
        created = api.call("POST", _PODS, manifest_of(name))
        began = time.perf_counter_ns()
        if created.status != 201:
            raise RuntimeError(f"{created.status}: {created.body[:300].decode(errors='replace')}")
        try:
            while extender.call("GET", f"/api/v1/pods/{NAMESPACE}/{name}").status != 200:
                if time.perf_counter_ns() - began > _SEEN_SECONDS * 1e9:
                    raise RuntimeError(f"the extender does not see {name}")
                time.sleep(_POLL_SECONDS)
            return (time.perf_counter_ns() - began) // 1000
        finally:
            api.call("DELETE", f"{_PODS}/{name}", b'{"gracePeriodSeconds":0}')


def _own_kib() -> int:
    # Resident pages, the second number of statm, which is shorter to read than status.
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4
