"""Kills the extender with SIGKILL at many points of runs that schedule hundreds of pods, and checks what is left.

It exists because a restart must neither lose nor invent a byte of usage, whatever the killed process was doing. It must
not decide what is right; see `kill_checks` and `kill_watcher`. Invariant: the first violation ends it with the seed,
the run and the point.

    python -m benchmarks.kill_run [--points 200] [--pods 500] [--seed N] [-o docs/kill_run.json]
"""

import argparse
import secrets
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.kill_trial import Outcome, Settings, run
from benchmarks.options import positive

POINTS_PER_RUN = 10


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    print(f"seed {seed}")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    started = time.perf_counter()
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("kills", total=options.points)
        outcomes = kill(options.points, options.pods, seed, options.first_run, lambda: progress.advance(task))
    report = _report(outcomes, seed, options.pods, time.perf_counter() - started)
    if options.output is not None:
        options.output.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    last = outcomes[-1]
    if last.violation is not None:
        number = options.first_run + len(outcomes) - 1
        print(f"seed {seed}, run {number}, {last.where}: {last.violation}")
        return 1
    print(f"{options.points} kills in {report['seconds']} s, nothing lost, nothing over-committed")
    return 0


def kill(points: int, pods: int, seed: int, first_run: int, on_point: Callable[[], None]) -> list[Outcome]:
    """Run until enough kills are done, or to the first violation."""
    outcomes: list[Outcome] = []
    for settings in _runs(points, pods, seed, first_run):
        with tempfile.TemporaryDirectory() as directory:
            outcomes.append(run(settings, Path(directory), on_point))
        if not sys.stderr.isatty():
            print(f"{sum(outcomes[-1].moments.values())} kills of run {settings.seed}", file=sys.stderr, flush=True)
        if outcomes[-1].violation is not None:
            break
    return outcomes


def _runs(points: int, pods: int, seed: int, first_run: int) -> Iterator[Settings]:
    """Yield runs of both lock modes in turn."""
    for number in range(first_run, first_run + -(-points // POINTS_PER_RUN)):
        left = points - (number - first_run) * POINTS_PER_RUN
        own = min(POINTS_PER_RUN, left)
        yield Settings(seed=f"{seed}/{number}", points=own, pods=pods, locking=number % 2 == 0)


def _report(outcomes: list[Outcome], seed: int, pods: int, seconds: float) -> dict[str, object]:
    moments: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for outcome in outcomes:
        moments.update(outcome.moments)
        errors.update(outcome.errors)
    restarts = [seconds for outcome in outcomes for seconds in outcome.restart_seconds] or [0.0]
    last = outcomes[-1]
    return {
        "seed": seed,
        "runs": len(outcomes),
        "pods_per_run": pods,
        "kills": moments.total(),
        "kills_by_moment": dict(sorted(moments.items())),
        "moments_missed": sum(outcome.missed_moments for outcome in outcomes),
        "watch_events_checked": sum(outcome.events for outcome in outcomes),
        "pods_bound": sum(outcome.bound for outcome in outcomes),
        "pods_deleted": sum(outcome.deleted for outcome in outcomes),
        "pods_that_fit_nowhere": sum(outcome.unschedulable for outcome in outcomes),
        "filters": sum(outcome.filters for outcome in outcomes),
        "binds_failed_and_repeated": sum(outcome.failed_binds for outcome in outcomes),
        "calls_without_answer": sum(outcome.unanswered_calls for outcome in outcomes),
        "answers_with_error": dict(sorted(errors.items())),
        "locks_left_by_kills": sum(outcome.locks_left_by_kills for outcome in outcomes),
        "restart_seconds_median": round(statistics.median(restarts), 2),
        "restart_seconds_max": round(max(restarts), 2),
        "violation": last.violation,
        "where": None if last.violation is None else last.where,
        "seconds": round(seconds),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_run", description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=positive, default=200, help="how many kills (%(default)s)")
    parser.add_argument("--pods", type=positive, default=500, help="pods per run (%(default)s)")
    parser.add_argument("--seed", type=int, help="repeat the run of that seed (default: a new one)")
    parser.add_argument("--first-run", type=int, default=0, help="begin with that run of the seed")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
