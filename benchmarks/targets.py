"""The target times of the project, and whether a run met them.

It exists so that the targets stand in one place. It must not measure or print. Invariant: a target is judged only on a
cluster of its own size; nothing depends on whether it is met.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from benchmarks.figures import EXTENDER, Figures, Json, Kind, Size, Step, Summary

SMALL: Final = Size(1_000, 10_000)
LARGE: Final = Size(10_000, 100_000)

_P50_US: Final = {SMALL: 1_500, LARGE: 8_000}
_P99_US: Final = {LARGE: 15_000}
_GREEDY_P99_US: Final = {LARGE.nodes: 50_000}
_GROWTH: Final = {LARGE: 1.2}


class Target(NamedTuple):
    """What was measured, and its limit; None where the number is only for information."""

    what: str
    unit: str
    measured: float
    limit: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.limit is None else self.measured <= self.limit

    def as_json(self) -> Json:
        return self._asdict() | {"measured": round(self.measured, 3), "met": self.met}


def judge(rows: Sequence[Figures], steps: Sequence[Step]) -> list[Target]:
    """Return every target that the figures can judge, and the ratios between them."""
    return [*(target for row in rows for target in _of_row(row)), *_growths(rows), *_of_steps(steps)]


def _of_row(row: Figures) -> Iterator[Target]:
    size, pair = row.size, row.pair(EXTENDER)
    if row.kind is Kind.NEW and size in _P50_US:
        yield _time(f"{row.name}: p50", pair.p50_us, _P50_US[size])
    if row.kind is Kind.NEW and size in _P99_US:
        yield _time(f"{row.name}: p99", pair.p99_us, _P99_US[size])
    if row.kind is Kind.GREEDY and row.nodes in _GREEDY_P99_US:
        yield _time(f"{row.name}: p99", pair.p99_us, _GREEDY_P99_US[row.nodes])


def _growths(rows: Sequence[Figures]) -> Iterator[Target]:
    """Return the ratios of p50 with pods to p50 without any, on the same number of nodes."""
    plain = sorted((row for row in rows if row.kind is Kind.NEW), key=lambda row: row.size)
    for empty, full in pairwise(plain):
        if empty.nodes == full.nodes and not empty.size.pods:
            what = f"{full.nodes:,} nodes: p50 with {full.pods:,} pods to that with none"
            yield Target(what, "x", _ratio(full.pair(EXTENDER), empty.pair(EXTENDER)), _GROWTH.get(full.size))


def _of_steps(steps: Sequence[Step]) -> Iterator[Target]:
    """Return how much longer the reference takes than the fast code on the same cluster."""
    for fast, slow in pairwise(steps):
        if slow.function == f"reference.{fast.function}":
            what = f"{slow.nodes:,} nodes, {slow.pods:,} pods: {slow.function} to {fast.function}"
            yield Target(what, "x", _ratio(slow.times, fast.times))


def _time(what: str, measured_us: int, limit_us: int) -> Target:
    return Target(what, "ms", measured_us / 1000, limit_us / 1000)


def _ratio(a: Summary, b: Summary) -> float:
    return a.p50_us / max(b.p50_us, 1)
