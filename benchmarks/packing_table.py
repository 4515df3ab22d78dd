"""The tables of docs/packing.md, from the figures of `benchmarks.packing`.

    python -m benchmarks.packing_table docs/packing.json docs/packing.md

Rewrites what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; nothing in the text is typed by hand.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from benchmarks.packing import ABLATED_TRACES, ABLATIONS, DEFAULT_POLICIES, OTHER_SEEDS, PUBLISHED_FGD
from extender.simulation.curves import MARKS

_MARKS = ("80", "90", "95", "100", "130")


def traces(results: dict[str, Any]) -> Iterator[str]:
    """FGD and fragmentation on every trace that was run."""
    marks = "80 / 90 / 95 / 100 / 130 %"
    yield f"| trace | `fgd` at {marks} | `fragmentation` at {marks} | FGD published at 130 % | gain on it |"
    yield "|---|---|---|---|---|"
    for trace, published in PUBLISHED_FGD.items():
        rows = results.get(trace, {})
        if not {"fgd", "fragmentation"} <= rows.keys():
            continue
        fgd, own = (_marks(rows[name]["allocated"]) for name in ("fgd", "fragmentation"))
        gain = rows["fragmentation"]["allocated"]["130"] - published
        yield f"| {trace} | {fgd} | {own} | {published:.2f} | {gain:+.2f} |"


def default(results: dict[str, Any]) -> Iterator[str]:
    """Every policy on the default trace."""
    yield "| policy | allocated at 80 / 90 / 95 / 100 / 130 % | by seed at 130 % | fragmented at 50 / 80 / 95 / 130 % |"
    yield "|---|---|---|---|"
    for name in DEFAULT_POLICIES:
        row = results["default"][name]
        last = [marks[-1] for marks in row["allocated_by_seed"].values()]
        parts = " / ".join(f"{row['fragmented'][mark]:.2f}" for mark in ("50", "80", "95", "130"))
        yield f"| `{name}` | {_marks(row['allocated'])} | {min(last):.2f} to {max(last):.2f} | {parts} |"


def ablation(results: dict[str, Any]) -> Iterator[str]:
    """What each term is worth."""
    names = ("fgd", "fragmentation", *ABLATIONS)
    shown = [trace for trace in ABLATED_TRACES if results.get(trace, {}).keys() & set(ABLATIONS)]
    yield f"| at 80 / 90 / 95 / 100 / 130 % | {' | '.join(shown)} |"
    yield "|---|" + "---|" * len(shown)
    for name in names:
        cells = (_first_seeds(results[trace].get(name)) for trace in shown)
        yield f"| {name} | {' | '.join(cells)} |"


def _first_seeds(row: dict[str, Any] | None) -> str:
    """Return the means over the seeds that every row has; a row that was not run is a dash."""
    if row is None:
        return "-"
    by_seed = [row["allocated_by_seed"][str(seed)] for seed in OTHER_SEEDS]
    means = {str(mark): fmean(values) for mark, *values in zip(MARKS, *by_seed, strict=True)}
    return _marks(means)


def _marks(marks: dict[str, float]) -> str:
    return " / ".join(f"{marks[mark]:.2f}" for mark in _MARKS)


def main() -> int:
    results = orjson.loads(Path(sys.argv[1]).read_bytes())["traces"]
    path = Path(sys.argv[2])
    text = path.read_text()
    for name, lines in (("traces", traces), ("default", default), ("ablation", ablation)):
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        after = rest.split(end, 1)[1]
        text = before + begin + "\n".join(lines(results)) + "\n" + end + after
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
