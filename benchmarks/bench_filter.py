"""Measures filter + prioritize over loopback as kube-scheduler calls them, beside an extender that does nothing.

It exists because every pod waits for the extender: its time is added to each. It must not judge a change: times are
printed, and the exit status says only whether the run was completed. Invariant: the clusters come from a seed, and what
is compared was measured in one run, by turns.

python -m benchmarks.bench_filter [--quick] [-o FIGURES.json] [--plot FIGURES.svg]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import chart, clusters, in_process, processes, targets
from benchmarks.figures import Figures, Kind, Size
from benchmarks.http_load import Address
from benchmarks.measure import measure
from benchmarks.options import positive
from benchmarks.report import Machine, Report, Started, show

_FULL: Final = (targets.SMALL, targets.LARGE)
_QUICK: Final = (Size(200, 2_000), targets.SMALL)
_REFERENCE: Final = Size(200, 2_000)
_REFERENCE_CALLS: Final = 5
_COLUMNS: Final = 110  # where the output is not a terminal


class Plan(NamedTuple):
    """What to measure."""

    sizes: tuple[Size, ...]
    calls: int
    warm_up: int
    seed: int
    against: tuple[Path, ...]

    @property
    def rounds(self) -> int:
        return self.warm_up + self.calls


def run(plan: Plan, progress: Progress) -> Report:
    """Measure everything in the plan."""
    machine = Machine.now()
    started: list[Started] = []
    rows: list[Figures] = []
    with TemporaryDirectory(prefix="bench-filter-") as name:
        folder = Path(name)
        with processes.running(["benchmarks.echo_server"]) as echo:
            for size in plan.sizes:
                rows += _measure(size, plan, folder, echo.address, started, progress)
        largest, small = max(plan.sizes), min(_REFERENCE, max(plan.sizes))
        with _task(progress, "accounting alone", 2) as step:
            steps = in_process.steps(clusters.dump(largest, plan.seed, folder), plan.calls)
            step()
            steps += in_process.beside_reference(clusters.dump(small, plan.seed, folder), _REFERENCE_CALLS)
            step()
    judged = targets.judge(rows, steps)
    return Report(machine, plan.calls, plan.warm_up, plan.seed, started, rows, steps, judged)


def _measure(
    size: Size, plan: Plan, folder: Path, echo: Address, started: list[Started], progress: Progress
) -> list[Figures]:
    """Measure one number of nodes, without pods and with them, by turns."""
    found = []
    with ExitStack() as stack:
        sizes = [Size(size.nodes, 0), size]
        with _task(progress, f"{size.nodes:,} nodes: start", len(sizes)) as step:
            for each in sizes:
                path = clusters.dump(each, plan.seed, folder)
                found.append(clusters.start(each, path, echo, clusters.checkouts(plan.against), stack))
                step()
        started += [cluster.started for cluster in found]
        empty, full = found
        cases = [empty.case(Kind.NEW), full.case(Kind.NEW), full.case(Kind.OTHER)]
        cases += [full.case(Kind.AGAIN), full.case(Kind.REFUSED), empty.case(Kind.GREEDY)]
        with _task(progress, f"{size.nodes:,} nodes: ask", plan.rounds) as step:
            return measure(cases, plan.calls, plan.warm_up, step)


@contextmanager
def _task(progress: Progress, name: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar that moves only between calls: a thread that draws would disturb the times."""
    task = progress.add_task(name, total=total)
    progress.refresh()

    def step() -> None:
        progress.advance(task)
        progress.refresh()

    yield step


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Write a usage error in the form of every other error."""
        self.exit(2, f"error: command line: {' '.join(sys.argv[1:])}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m benchmarks.bench_filter", description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="smaller clusters and fewer calls")
    parser.add_argument("--size", action="append", type=_size, metavar="NODESxPODS", help="repeatable")
    parser.add_argument("--calls", type=positive, help="measured calls a row (default: 200, quick 40)")
    parser.add_argument("--warm-up", type=positive, help="calls before them (default: 20, quick 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the clusters (default: %(default)s)")
    parser.add_argument(
        "--against", type=_folder, action="append", metavar="DIR", help="another checkout, measured in turn"
    )
    parser.add_argument("-o", "--output", type=_new_file, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--plot", type=_picture, action="append", metavar="FILE", help="draw them: .svg, or .png; repeatable"
    )
    return parser


def _size(text: str) -> Size:
    try:
        return Size.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be like 1000x10000, with 1 to 20000 nodes") from None


def _folder(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "extender").is_dir():
        raise argparse.ArgumentTypeError("must be a checkout, with a folder extender")
    return path


def _new_file(text: str) -> Path:
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path.parent} is no folder")
    return path


def _picture(text: str) -> Path:
    path = _new_file(text)
    try:
        chart.check(path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def _plan(options: argparse.Namespace) -> Plan:
    calls, warm_up, sizes = (40, 5, _QUICK) if options.quick else (200, 20, _FULL)
    return Plan(
        tuple(options.size or sizes),
        options.calls or calls,
        options.warm_up or warm_up,
        options.seed,
        tuple(options.against or ()),
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        report = run(_plan(options), progress)
    console = Console()
    show(report, console if console.is_terminal else Console(width=_COLUMNS))
    try:
        if options.output:
            options.output.write_bytes(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2))
        for path in options.plot or ():
            chart.write(report.rows, path, str(report.machine))
    except OSError as error:
        sys.stderr.write(f"error: output: {error.filename}: {error.strerror}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
