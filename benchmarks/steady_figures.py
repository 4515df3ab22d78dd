"""What an hour of steady load shows: its intervals, their drift, and what is right or wrong at the end.

It exists so that "no drift" is decided by numbers. It must not measure or draw. Invariants: the first quarter is the
warm-up and counts for nothing; memory, lost pods and books decide, times are only shown, since a machine with other
work has slow minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.steady_pods import VERBS, Reading
from benchmarks.steady_watch import Watched

#: Memory drifts if the last quarter's median is above the second quarter's by more than both.
MEMORY_RATIO: Final = 1.05
MEMORY_MIB: Final = 10.0
#: A shorter run is warm-up alone, and its memory is not judged.
JUDGED_SECONDS: Final = 1200.0
_QUARTERS: Final = 4
_NO_ERRORS: Final = frozenset({"created", "bound", "deleted"})

Json = dict[str, Any]


class Times(NamedTuple):
    """Nearest-rank percentiles in microseconds."""

    calls: int
    p50_us: int
    p99_us: int
    max_us: int

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Times | None:
        """Return them; None of no calls."""
        if not nanoseconds:
            return None
        ordered = sorted(nanoseconds)
        ranks = [-(-len(ordered) * percent // 100) - 1 for percent in (50, 99, 100)]
        return cls(len(ordered), *((ordered[rank] + 500) // 1000 for rank in ranks))


class Interval(NamedTuple):
    """One stretch of the run. Memory is resident; CPU is in percent of one core."""

    at_seconds: float
    seconds: float
    extender_kib: int
    apiserver_kib: int
    harness_kib: int
    extender_cpu: int
    apiserver_cpu: int
    harness_cpu: int
    verbs: dict[str, Times | None]
    watch_lag_us: int
    """From the answer to a pod's creation until the extender shows it: the longest of a few."""
    stall_us: int
    """The longest stall of the extender's loop of the last one to two minutes."""
    stall_cpu_us: int
    events: int
    """Patches of other pods that the API server took."""
    bound: int
    waiting: int
    alive: int
    errors: dict[str, int]

    @classmethod
    def of(cls, at_seconds: float, watched: Watched, reading: Reading) -> Interval:
        """Put together what was seen from outside and what the pods met."""
        return cls(
            round(at_seconds, 2),
            round(watched.seconds, 2),
            *watched.resident_kib,
            *watched.cpu_percent,
            {verb: Times.of(found) for verb, found in reading.nanoseconds.items()},
            watched.watch_lag_us,
            watched.stall_us,
            watched.stall_cpu_us,
            watched.events,
            reading.counts["bound"],
            reading.waiting,
            reading.alive,
            {what: reading.counts[what] for what in sorted(reading.counts) if what not in _NO_ERRORS},
        )

    def __str__(self) -> str:
        verbs = " ".join(
            f"{verb} {times.p50_us / 1000:.1f}/{times.p99_us / 1000:.1f}"
            for verb, times in self.verbs.items()
            if times is not None
        )
        return (
            f"{self.at_seconds:6.0f} s: {self.extender_kib / 1024:.1f} MiB (API server {self.apiserver_kib / 1024:.0f},"
            f" harness {self.harness_kib / 1024:.0f}), CPU {self.extender_cpu}+{self.apiserver_cpu}+{self.harness_cpu}"
            f" %, p50/p99 ms {verbs}, lag {self.watch_lag_us / 1000:.1f} ms, {self.bound / self.seconds:.1f} pods/s, "
            f"{self.events / self.seconds:.0f} events/s, {self.waiting} wait, {self.alive} exist, "
            f"{self.errors or 'no errors'}"
        )

    def as_json(self) -> Json:
        """The fields as plain values."""
        verbs = {verb: None if times is None else times._asdict() for verb, times in self.verbs.items()}
        return self._asdict() | {"verbs": verbs}


class Drift(NamedTuple):
    """A quantity's medians in the second and in the last quarter of the run."""

    what: str
    second: float
    last: float
    slope_per_hour: float
    """The median of the slopes of all pairs after the warm-up (Theil and Sen), in the quantity's unit."""

    @property
    def ratio(self) -> float:
        """Return last / second."""
        return self.last / self.second if self.second else 1.0

    def as_json(self) -> Json:
        """The fields, rounded, and the ratio."""
        return {
            "what": self.what,
            "second_quarter": round(self.second, 3),
            "last_quarter": round(self.last, 3),
            "ratio": round(self.ratio, 3),
            "slope_per_hour": round(self.slope_per_hour, 3),
        }


def drifts(intervals: Sequence[Interval]) -> list[Drift]:
    """Return the drift of memory and of each p50 and p99; nothing of fewer than four intervals."""
    if len(intervals) < _QUARTERS:
        return []
    found = [
        _drift("extender MiB", [(each.at_seconds, each.extender_kib / 1024) for each in intervals]),
        _drift("API server MiB", [(each.at_seconds, each.apiserver_kib / 1024) for each in intervals]),
        _drift("harness MiB", [(each.at_seconds, each.harness_kib / 1024) for each in intervals]),
        _drift("watch lag ms", [(each.at_seconds, each.watch_lag_us / 1000) for each in intervals]),
    ]
    for verb in VERBS:
        for part in ("p50_us", "p99_us"):
            points = [
                (each.at_seconds, getattr(times, part) / 1000)
                for each in intervals
                if (times := each.verbs[verb]) is not None
            ]
            found.append(_drift(f"{verb} {part.removesuffix('_us')} ms", points))
    return found


def memory_drifts(found: Sequence[Drift], seconds: float) -> bool:
    """Whether the extender's memory has drifted. Of a short run nothing is known."""
    memory = next((each for each in found if each.what == "extender MiB"), None)
    if memory is None or seconds < JUDGED_SECONDS:
        return False
    return memory.ratio > MEMORY_RATIO and memory.last - memory.second > MEMORY_MIB


def _drift(what: str, points: Sequence[tuple[float, float]]) -> Drift:
    size = len(points) // _QUARTERS
    if not size:
        return Drift(what, 0.0, 0.0, 0.0)
    warm = points[size:]
    slopes = [(later[1] - first[1]) / (later[0] - first[0]) for first, later in combinations(warm, 2)]
    second, last = (median(value for _, value in part) for part in (points[size : 2 * size], points[-size:]))
    return Drift(what, second, last, median(slopes) * 3600 if slopes else 0.0)
