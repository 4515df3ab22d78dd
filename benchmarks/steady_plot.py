"""Draws a run of steady load over time: memory, each verb's latency, the loop and the watch, pods and errors.

It exists because drift is easier to see than to read. It must not measure or judge. Invariant: the same intervals give
the same bytes of SVG. Needs matplotlib.

    python -m benchmarks.steady_plot docs/steady_hour.json docs/steady_hour
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.steady_pods import VERBS

_BLUE, _AMBER, _GREY = "#2f6fab", "#c98b2b", "#8a949e"
_QUARTERS: Final = (0.25, 0.5, 0.75)
_LONG_SECONDS: Final = 600
_MINUTE: Final = 60

Json = dict[str, Any]
Line = tuple[str, str, list[float]]


def plot(base: str, report: Json) -> list[str]:
    """Write BASE.svg and BASE.png; return their names. Of no intervals nothing is drawn."""
    intervals: list[Json] = report["intervals"]
    if not intervals:
        return []
    # Needed for pictures only; the import takes half a second.
    mpl, figures = import_module("matplotlib"), import_module("matplotlib.figure")
    settings = {"svg.hashsalt": "gpu-extender", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    with mpl.rc_context(settings | {"axes.spines.top": False, "axes.spines.right": False}):
        figure = figures.Figure(figsize=(11, 9), layout="constrained")
        axes = figure.subplots(3, 2, sharex=True).flat
        long = report["seconds"] >= _LONG_SECONDS
        moments = [each["at_seconds"] / (_MINUTE if long else 1) for each in intervals]
        _draw(axes[0], moments, "resident memory, MiB", _memory(intervals), log=False)
        for own, verb in zip(axes[1:4], VERBS, strict=False):
            _draw(own, moments, f"{verb}, ms", _verb(intervals, verb), log=True)
        _draw(axes[4], moments, "watch lag and loop stall, ms", _loop(intervals), log=True)
        _draw(axes[5], moments, "per second", _rates(intervals), log=False)
        for own in axes[4:]:
            own.set_xlabel("minutes" if long else "seconds")
        figure.suptitle(_caption(report), x=0.01, ha="left", fontsize=10)
        names = [f"{base}.svg", f"{base}.png"]
        for name in names:
            figure.savefig(name, metadata={"Date": None} if name.endswith(".svg") else {}, dpi=130)
    svg = Path(names[0])
    svg.write_text("".join(line.rstrip() + "\n" for line in svg.read_text().splitlines()))
    return names


def _memory(intervals: Sequence[Json]) -> list[Line]:
    return [
        ("extender", _BLUE, [each["extender_kib"] / 1024 for each in intervals]),
        ("API server for tests", _GREY, [each["apiserver_kib"] / 1024 for each in intervals]),
    ]


def _verb(intervals: Sequence[Json], verb: str) -> list[Line]:
    parts = (("max", "max_us", _GREY), ("p99", "p99_us", _AMBER), ("p50", "p50_us", _BLUE))
    return [(name, colour, [_ms(each["verbs"][verb], key) for each in intervals]) for name, key, colour in parts]


def _loop(intervals: Sequence[Json]) -> list[Line]:
    return [
        ("longest stall", _GREY, [_ms(each, "stall_us") for each in intervals]),
        ("own CPU in a stall", _AMBER, [_ms(each, "stall_cpu_us") for each in intervals]),
        ("watch lag", _BLUE, [_ms(each, "watch_lag_us") for each in intervals]),
    ]


def _rates(intervals: Sequence[Json]) -> list[Line]:
    return [
        ("events of other pods", _BLUE, [each["events"] / each["seconds"] for each in intervals]),
        ("pods bound", _AMBER, [each["bound"] / each["seconds"] for each in intervals]),
        ("refusals and errors", "#b03a3a", [sum(each["errors"].values()) / each["seconds"] for each in intervals]),
    ]


def _ms(values: Json | None, key: str) -> float:
    return float("nan") if values is None else values[key] / 1000


def _draw(axes: Any, moments: list[float], title: str, lines: list[Line], *, log: bool) -> None:  # noqa: ANN401 - Axes
    for name, colour, values in lines:
        axes.plot(moments, values, color=colour, label=name, linewidth=1.2)
    axes.set_title(title, loc="left", fontsize=10)
    if log:
        axes.set_yscale("log")
        ticker = import_module("matplotlib.ticker")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    highest = max((value for _, _, values in lines for value in values if value == value), default=1.0)  # noqa: PLR0124
    lowest = min((value for _, _, values in lines for value in values if value > 0), default=0.1)
    # Room for the legend above the lines.
    axes.set_ylim((lowest / 1.5, highest * 3) if log else (0, max(1.0, highest) * 1.3))
    for share in _QUARTERS:
        axes.axvline(moments[-1] * share, color="#ccd", linewidth=0.8, linestyle=":")
    axes.legend(frameon=False, fontsize=8, ncols=len(lines), loc="upper left")


def _caption(report: Json) -> str:
    plan = report["plan"]
    nodes, _, pods = plan["size"].partition("x")
    return (
        f"{plan['pods_per_second']:g} pods/s and {plan['events_per_second']:g} events/s for {report['seconds']:,.0f} s "
        f"beside {int(pods):,} pods on {int(nodes):,} nodes; "
        f"one point per {plan['interval_seconds']:g} s, quarters dotted"
    )


if __name__ == "__main__":
    source, target = sys.argv[1:]
    sys.stdout.write("\n".join(plot(target, orjson.loads(Path(source).read_bytes()))) + "\n")
