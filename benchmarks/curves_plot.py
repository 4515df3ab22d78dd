"""Draws cost curves as one picture, in SVG and PNG.

It exists because growth is easier to see than to read. It must not measure. Invariant: the same curves give the same
bytes of SVG. Needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.figures import Summary

_COLOURS: Final = {"filter": "#2f6fab", "prioritize": "#c98b2b"}
_MS: Final = 1000


class Point(NamedTuple):
    """What was measured at one value."""

    label: str
    filter: Summary
    prioritize: Summary


class Curve(NamedTuple):
    """Points along one thing that varies."""

    name: str
    unit: str
    points: list[Point]

    def as_json(self) -> list[dict[str, object]]:
        """The points as plain values."""
        return [
            {"value": point.label, "filter": point.filter._asdict(), "prioritize": point.prioritize._asdict()}
            for point in self.points
        ]


def plot(base: str, curves: Sequence[Curve], caption: str) -> list[str]:
    """Write BASE.svg and BASE.png; return their names."""
    # Needed for pictures only; the import takes half a second.
    mpl, figures = import_module("matplotlib"), import_module("matplotlib.figure")
    settings = {"svg.hashsalt": "gpu-extender", "font.size": 8, "axes.grid": True, "grid.alpha": 0.3}
    with mpl.rc_context(settings):
        columns = 3
        rows = -(-len(curves) // columns)
        figure = figures.Figure(figsize=(11, 3 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for own, curve in zip(axes, curves, strict=False):
            _draw(own, curve)
        figure.suptitle(f"p50 as a line, p99 as a dot, ms; {caption}", x=0.01, ha="left", fontsize=9)
        names = [f"{base}.svg", f"{base}.png"]
        for name in names:
            figure.savefig(name, metadata={"Date": None} if name.endswith(".svg") else {}, dpi=130)
    svg = Path(names[0])
    svg.write_text("".join(line.rstrip() + "\n" for line in svg.read_text().splitlines()))
    return names


def _draw(axes: Any, curve: Curve) -> None:  # noqa: ANN401 - matplotlib's Axes, which may not be installed
    labels = [point.label for point in curve.points]
    # Policies are not numbers, so no line joins them.
    style = "-" if labels[0][0].isdigit() else "_"
    for verb, colour in _COLOURS.items():
        summaries: list[Summary] = [getattr(point, verb) for point in curve.points]
        medians = [each.p50_us / _MS for each in summaries]
        axes.plot(labels, medians, style, color=colour, label=verb, linewidth=1.3, markersize=14)
        axes.plot(labels, [each.p99_us / _MS for each in summaries], ".", color=colour, markersize=4)
    axes.set_title(curve.unit, loc="left", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=7)
    if max(map(len, labels)) > 7:
        axes.tick_params(axis="x", rotation=20)
