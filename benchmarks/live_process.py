"""Reads what a running extender uses: CPU and memory as the system counts them, and its own metrics.

It exists because wall time alone says little on a machine that other processes use too. It must not start or judge
anything. Invariant: CPU time is that of the process alone, in nanoseconds, all threads together.
"""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.http_load import Address, Connection

_GZIP: Final = b"\x1f\x8b"
_POLL_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 0.4
#: The share of CPU time that the loop's own ticks take while nothing happens.
_QUIET_SHARE: Final = 0.08


class Cpu(NamedTuple):
    """Nanoseconds on a CPU, and nanoseconds waiting for one."""

    used_ns: int
    waited_ns: int


class Stall(NamedTuple):
    """For how many microseconds at a stretch the event loop was held, and for how many of them the process ran."""

    wall_us: int
    cpu_us: int


class LiveProcess:
    """A running extender."""

    def __init__(self, pid: int, address: Address) -> None:
        self._folder = Path("/proc") / str(pid)
        self._address = address
        self._stall = Stall(0, 0)

    def cpu(self) -> Cpu:
        used = waited = 0
        for thread in (self._folder / "task").iterdir():
            numbers = (thread / "schedstat").read_text().split()
            used, waited = used + int(numbers[0]), waited + int(numbers[1])
        return Cpu(used, waited)

    def resident_kib(self) -> int:
        return self._status("VmRSS")

    def peak_kib(self) -> int:
        return self._status("VmHWM")

    def metric(self, name: str) -> float:
        """Return a metric without labels. Scraping changes nothing."""
        with Connection(self._address) as connection:
            body = connection.call("GET", "/metrics").body
        # The connection accepts gzip as kube-scheduler does, and /metrics packs its answer.
        text = (gzip.decompress(body) if body.startswith(_GZIP) else body).decode()
        found = re.search(rf"^gpu_extender_{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def stall(self) -> Stall:
        """Return the worst stalls since `forget_stalls`, and of up to two minutes before it, as the gauges remember."""
        now = (self.metric(name) for name in ("loop_stall_seconds", "loop_stall_cpu_seconds"))
        self._stall = Stall(*(max(known, round(each * 1e6)) for known, each in zip(self._stall, now, strict=True)))
        return self._stall

    def forget_stalls(self) -> None:
        self._stall = Stall(0, 0)

    def is_ready(self) -> bool:
        with Connection(self._address) as connection:
            return connection.call("GET", "/readyz").status == 200

    def wait_until_ready(self, seconds: float) -> None:
        _wait(self.is_ready, seconds, "the extender is not ready")

    def wait_until_quiet(self, seconds: float) -> None:
        """Wait until the extender has nothing to do, so that it has taken everything sent before."""

        def is_quiet() -> bool:
            before = self.cpu().used_ns
            time.sleep(_QUIET_SECONDS)
            return self.cpu().used_ns - before < _QUIET_SHARE * _QUIET_SECONDS * 1e9

        _wait(is_quiet, seconds, "the extender does not come to rest")

    def _status(self, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", (self._folder / "status").read_text())
        assert found is not None, name
        return int(found[1])


def _wait(condition: Callable[[], bool], seconds: float, why: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(why)
        time.sleep(_POLL_SECONDS)
