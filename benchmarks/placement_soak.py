"""Compares filter and bind with OR-Tools' CP-SAT, and on small cases with trying everything, on 100,000 random nodes.

It exists because rare arrangements need many cases. It must not know what a case is. Invariant: a difference ends the
run with the seed that finds it again; what the search left undecided is counted and never taken for an answer.

    python -m benchmarks.placement_soak [--nodes 100000] [--seed N] [-o docs/placement_soak.json]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from accounting.holdings import DeviceUse
from accounting.node import Node
from accounting.pod import Pod
from benchmarks import placement_cp_sat, placement_oracle
from benchmarks.placement_cases import LARGE, SMALL, Size
from benchmarks.placement_check import Counts, Difference, Oracle, check

#: Keeps the two sizes, and the tests, from asking the same case.
_FIRST_SEED: Final = 1_000_000


class _Part(NamedTuple):
    name: str
    size: Size
    oracle: Oracle


def both(node: Node, uses: Sequence[DeviceUse], pod: Pod) -> bool:
    """Ask both oracles; they must agree."""
    found = placement_oracle.exists(node, uses, pod)
    assert placement_cp_sat.exists(node, uses, pod) == found, f"the oracles differ on {node} with {uses} and {pod}"
    return found


_PARTS: Final = (
    _Part("up to 4 cards and 5 containers, both oracles", SMALL, both),
    _Part("up to 8 cards and 7 containers, CP-SAT", LARGE, placement_cp_sat.exists),
)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    started, console = time.perf_counter(), Console(stderr=True)
    report: dict[str, object] = {"seed": options.seed}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        for part in _PARTS:
            cases = options.nodes // len(_PARTS) // part.size.nodes
            task = progress.add_task(part.name, total=cases)
            found = _run(part, cases, options.seed, lambda task=task: progress.advance(task))  # type: ignore[misc]
            if isinstance(found, Difference):
                progress.stop()
                print(f"{part.name}: seed {found.seed}, node {found.node}: {found.what}")
                return 1
            report[part.name] = found._asdict()
    report["seconds"] = round(time.perf_counter() - started, 1)
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if options.output is not None:
        options.output.write_bytes(text)
    print(text.decode(), end="")
    return 0


def _run(part: _Part, cases: int, seed: int, step: Callable[[], None]) -> Counts | Difference:
    seen = Counts()
    for number in range(cases):
        found = check(_FIRST_SEED * (seed + 1) + number, part.size, part.oracle)
        if isinstance(found, Difference):
            return found
        seen = seen.plus(found)
        step()
    return seen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement_soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
