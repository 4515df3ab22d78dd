"""Curves as pictures.

Why it exists: a picture shows where a policy falls behind. It must not compute anything beyond means. Invariant: the
same curves give the same bytes of SVG.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from extender.convert import InputError
from extender.simulation.curves import Curve

SUFFIXES = (".svg", ".png")


def plot(path: str, title: str, curves: Mapping[str, Sequence[Curve]]) -> list[str]:
    """Write BASE.svg and BASE.png; returns their names. `curves`: policy -> runs. Raises `InputError`."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an optional extra, and half a second to import
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        why = "needs matplotlib: pip install 'gpu-extender[simulate]'"
        raise InputError("--plot", path, why) from None
    base = path.removesuffix(".svg").removesuffix(".png")
    written = [base + suffix for suffix in SUFFIXES]
    with mpl.rc_context({"svg.hashsalt": "gpu-extender", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for policy, runs in curves.items():
            for axes, name in ((left, "allocated"), (right, "fragmented")):
                points = _mean(runs, name)
                axes.plot(list(points), list(points.values()), label=policy, linewidth=1.3)
        for axes, name in ((left, "allocated cards, %"), (right, "fragmented cards, %")):
            axes.set_xlabel("arrived demand, % of all cards")
            axes.set_title(name, loc="left", fontsize=9)
        marks = [mark for runs in curves.values() for curve in runs for mark in curve.allocated]
        left.set_xlim(min(70, max(marks, default=70) // 2), max(marks, default=100))
        left.set_ylim(bottom=65 if max(marks, default=0) > 100 else 0)  # noqa: PLR2004 - in percent
        left.legend(frameon=False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        try:
            for name in written:
                figure.savefig(name, metadata={"Date": None} if name.endswith(".svg") else {}, dpi=150)
        except OSError as error:
            raise InputError("--plot", path, error.strerror or str(error)) from None
    _without_trailing_blanks(Path(written[0]))
    return written


def _mean(runs: Sequence[Curve], name: str) -> dict[int, float]:
    points: dict[int, list[float]] = {}
    for curve in runs:
        for mark, value in getattr(curve, name).items():
            points.setdefault(mark, []).append(value)
    return {mark: fmean(values) for mark, values in sorted(points.items())}


def _without_trailing_blanks(path: Path) -> None:
    path.write_text("".join(line.rstrip() + "\n" for line in path.read_text().splitlines()))
