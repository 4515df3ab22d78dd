"""The figures of a live extender, their targets, and how they are shown.

It exists so that the targets stand in one place. It must not measure. Invariant: a target is judged only on a cluster
of the size that it is about; the JSON holds every number that the tables show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Json, Size, Summary
from benchmarks.live_event_cost import EventCost
from benchmarks.live_process import Stall
from benchmarks.report import Machine
from benchmarks.targets import LARGE, Target

_SYNC_SECONDS: Final = 15.0
_PEAK_MIB: Final = 400.0
_EVENT_US: Final = 50.0
_STALL_MS: Final = 50.0
_UNDER_EVENTS: Final = 2.0
#: How much more memory an allocator may keep after a million events.
_GROWTH_MIB: Final = 10.0


class Sync(NamedTuple):
    """The first lists. `waited_ms`: how long the extender could not run because other processes did."""

    nodes: int
    pods: int
    wall_ms: int
    cpu_ms: int
    waited_ms: int
    peak_kib: int
    stall: Stall


class Stream(NamedTuple):
    """Events at full speed."""

    kind: str
    events: int
    wall_ms: int
    cpu_us: int
    resident_before_kib: int
    resident_after_kib: int
    stall: Stall

    @property
    def event_us(self) -> float:
        return self.cpu_us / max(1, self.events)

    @property
    def grown_mib(self) -> float:
        return (self.resident_after_kib - self.resident_before_kib) / 1024


class Pairs(NamedTuple):
    """filter + prioritize without events, and under them."""

    quiet: Summary
    events_per_second: int
    under_events: Summary
    stall: Stall

    @property
    def ratio(self) -> float:
        return self.under_events.p99_us / max(1, self.quiet.p99_us)


class LiveReport(NamedTuple):
    """A whole run."""

    machine: Machine
    size: Size
    seed: int
    sync: Sync
    streams: list[Stream]
    pairs: Pairs
    cost: EventCost

    def targets(self) -> list[Target]:
        """Return the targets.

        Those for time and memory of the sync apply only to a cluster of the size that they are meant for.
        """
        large, sync = self.size == LARGE, self.sync
        found = [
            Target("initial sync", "s", sync.wall_ms / 1000, _SYNC_SECONDS if large else None),
            Target("initial sync: CPU", "s", sync.cpu_ms / 1000),
            Target("initial sync: peak memory", "MiB", sync.peak_kib / 1024, _PEAK_MIB if large else None),
            *_stalls("initial sync", sync.stall),
        ]
        for what, nanoseconds in zip(("changes nothing", "changes cards", "adds", "deletes"), self.cost, strict=True):
            name = f"event that {what}: CPU, decode to cache"
            found.append(Target(name, "us", nanoseconds / 1000, _EVENT_US))
        for stream in self.streams:
            name = f"{stream.events:,} events ({stream.kind})"
            found += [
                Target(f"{name}: all CPU of one, network and waking up included", "us", stream.event_us),
                *_stalls(name, stream.stall),
                Target(f"{name}: memory grown", "MiB", stream.grown_mib, _GROWTH_MIB),
            ]
        under = f"filter + prioritize, p99 under {self.pairs.events_per_second} events/s to quiet"
        return [
            *found,
            Target(under, "x", self.pairs.ratio, _UNDER_EVENTS),
            *_stalls("under events and questions", self.pairs.stall),
        ]

    def as_json(self) -> Json:
        pairs = self.pairs
        return {
            "machine": self.machine._asdict(),
            "size": str(self.size),
            "seed": self.seed,
            "sync": _json(self.sync),
            "streams": [_json(stream) | {"event_us": round(stream.event_us, 1)} for stream in self.streams],
            "pairs": _json(pairs)
            | {"quiet": pairs.quiet._asdict(), "under_events": pairs.under_events._asdict()}
            | {"ratio": round(pairs.ratio, 2)},
            "event_cost": self.cost._asdict(),
            "targets": [target.as_json() for target in self.targets()],
        }


def _json(phase: Sync | Stream | Pairs) -> Json:
    return phase._asdict() | {"stall": phase.stall._asdict()}


def _stalls(name: str, stall: Stall) -> Iterator[Target]:
    yield Target(f"{name}: longest stall", "ms", stall.wall_us / 1000, _STALL_MS)
    yield Target(f"{name}: longest stall, own CPU", "ms", stall.cpu_us / 1000, _STALL_MS)


def show(report: LiveReport, console: Console) -> None:
    """Print a run."""
    console.print(str(report.machine))
    sync = report.sync
    console.print(f"{sync.nodes:,} nodes, {sync.pods:,} pods that have not ended; waited for a CPU {sync.waited_ms} ms")
    console.print(_pairs(report.pairs))
    table = Table(title="live cluster", title_justify="left")
    for heading, justify in (("what", "left"), ("measured", "right"), ("target", "right"), ("", "left")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for target in report.targets():
        limit = "" if target.limit is None else f"<= {target.limit:g} {target.unit}"
        verdict = {None: "", True: "[green]met[/green]", False: "[red]not met[/red]"}[target.met]
        table.add_row(target.what, f"{target.measured:.1f} {target.unit}", limit, verdict)
    console.print(table)


def _pairs(pairs: Pairs) -> Table:
    table = Table(title="filter + prioritize, milliseconds", title_justify="left")
    for heading in ("", "calls", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, summary in (("quiet", pairs.quiet), (f"{pairs.events_per_second} events/s", pairs.under_events)):
        table.add_row(name, str(summary.calls), *(f"{us / 1000:.2f}" for us in summary[1:]))
    return table
