"""Shows what a run measured: tables for a terminal, JSON for a file.

It exists so that figures stand beside what they were measured on. It must not measure or judge. Invariant: the JSON
holds every number that the tables show, as integers where they are times.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import ECHO, EXTENDER, FILTER, PAIR, PARTS, PRIORITIZE, Figures, Json, Step, Summary
from benchmarks.targets import Target

#: A plain number column: right-aligned, never wrapped.
_HEADINGS: Final = ("p50", "p90", "p99", "max")


class Machine(NamedTuple):
    """What the figures were measured on."""

    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    load_average: tuple[float, float, float]

    @classmethod
    def now(cls) -> Machine:
        load = os.getloadavg()
        return cls(
            _cpu(),
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            f"{platform.system()} {platform.release()}",
            platform.python_version(),
            np.__version__,
            (round(load[0], 2), round(load[1], 2), round(load[2], 2)),
        )

    def __str__(self) -> str:
        load = " ".join(f"{each:.2f}" for each in self.load_average)
        return (
            f"{self.cores} cores ({self.cpu}), {self.system}, Python {self.python}, numpy {self.numpy}; "
            f"load average at start {load}"
        )


class Started(NamedTuple):
    """How an extender started on its cluster."""

    nodes: int
    cards: int
    pods: int
    start_seconds: float
    resident_mib: int | None


class Report(NamedTuple):
    """A whole run."""

    machine: Machine
    calls: int
    warm_up: int
    seed: int
    started: list[Started]
    rows: list[Figures]
    steps: list[Step]
    targets: list[Target]

    def as_json(self) -> Json:
        return self._asdict() | {
            "machine": self.machine._asdict(),
            "started": [each._asdict() for each in self.started],
            "rows": [row.as_json() for row in self.rows],
            "steps": [step.as_json() for step in self.steps],
            "targets": [target.as_json() for target in self.targets],
        }


def show(report: Report, console: Console) -> None:
    """Print a run."""
    console.print(str(report.machine))
    console.print(f"{report.calls} calls a row after {report.warm_up} to warm up; times in milliseconds")
    for table in (_pairs(report.rows), _parts(report.rows), _starts(report.started)):
        console.print()
        console.print(table)
    if report.steps:
        console.print()
        console.print(_steps(report.steps))
    console.print()
    console.print(_targets(report.targets))


def _pairs(rows: Sequence[Figures]) -> Table:
    table = _table("filter + prioritize", "nodes", "pods", "question", "server", "passed", *_HEADINGS, "to echo")
    for row in rows:
        for server, parts in sorted(row.summaries.items(), key=lambda item: _order(item[0])):
            pair = parts[PAIR]
            first = server == EXTENDER
            about = (f"{row.nodes:,}", f"{row.pods:,}", row.kind.value) if first else ("", "", "")
            ratio = "" if server == ECHO else f"{_to_echo(row, server):.2f} x"
            passed = f"{row.passed:,}" if first else ""
            table.add_row(*about, server, passed, *_times(pair), ratio, end_section=server == ECHO)
    return table


def _to_echo(row: Figures, server: str) -> float:
    """Return the ratio of medians; of filter alone where no node passed, so that prioritize was not called."""
    part = PAIR if PRIORITIZE in row.summaries[server] else FILTER
    return row.summaries[server][part].p50_us / row.summaries[ECHO][part].p50_us


def _parts(rows: Sequence[Figures]) -> Table:
    table = _table("each verb", "nodes", "pods", "question", "server", "filter p50", "p99", "prioritize p50", "p99")
    for row in rows:
        for server, parts in sorted(row.summaries.items(), key=lambda item: _order(item[0])):
            about = (f"{row.nodes:,}", f"{row.pods:,}", row.kind.value) if server == EXTENDER else ("", "", "")
            cells = [cell for part in PARTS[1:] for cell in _median_and_tail(parts.get(part))]
            table.add_row(*about, server, *cells, end_section=server == ECHO)
    return table


def _starts(started: Sequence[Started]) -> Table:
    table = _table("start of the extender on a file", "nodes", "cards", "pods", "seconds", "memory MiB")
    for each in started:
        table.add_row(
            f"{each.nodes:,}", f"{each.cards:,}", f"{each.pods:,}", f"{each.start_seconds:.1f}", str(each.resident_mib)
        )
    return table


def _steps(steps: Sequence[Step]) -> Table:
    table = _table("accounting alone, in one process", "nodes", "pods", "function", *_HEADINGS)
    for step in steps:
        table.add_row(f"{step.nodes:,}", f"{step.pods:,}", step.function, *_times(step.times, digits=3))
    return table


def _targets(targets: Sequence[Target]) -> Table:
    table = _table("targets", "what", "measured", "target", "")
    for target in targets:
        limit = "" if target.limit is None else f"<= {target.limit:g} {target.unit}"
        verdict = {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[target.met]
        table.add_row(target.what, f"{target.measured:.2f} {target.unit}", limit, verdict)
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    words = {"question", "server", "what", "function", ""}
    for heading in headings:
        table.add_column(heading, justify="left" if heading in words else "right", no_wrap=heading != "what")
    return table


def _times(summary: Summary, digits: int = 2) -> list[str]:
    return [f"{us / 1000:.{digits}f}" for us in summary[1:]]


def _median_and_tail(summary: Summary | None) -> list[str]:
    return ["-", "-"] if summary is None else [f"{summary.p50_us / 1000:.2f}", f"{summary.p99_us / 1000:.2f}"]


def _order(server: str) -> tuple[int, str]:
    """Sort the extender first and the yardstick last."""
    return {EXTENDER: 0, ECHO: 2}.get(server, 1), server


def _cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
