"""Sends random events for as long as asked and compares every step with the reference; optionally runs hypothesis too.

It exists because rare histories need many events. It must not know what an event is; see `random_events` for cards and
`quota_events` for charges of namespaces. Invariant: a difference ends the run with the seed and the event that find it
again.

    python -m benchmarks.soak [--of cards|quotas] [--events 1000000] [--seed N] [-o docs/soak.json]
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks import quota_events, random_events
from benchmarks.options import positive
from benchmarks.random_run import Summary

CHECK_EVERY = 1000
REFRESH_EVERY = 200
WORLDS = {"cards": random_events.run, "quotas": quota_events.run}
TESTS = ("test_fit_against_reference.py", "test_cache_stateful.py", "test_budget.py")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    print(f"seed {seed}")
    started = time.perf_counter()
    summary = _events(options.of, options.events, seed)
    seconds = time.perf_counter() - started
    hypothesis = _hypothesis(options.hypothesis_examples) if options.hypothesis_examples else None
    report = {"of": options.of} | _report(summary, seconds, options.hypothesis_examples, hypothesis)
    if options.output is not None:
        options.output.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    if summary.difference is not None:
        print(f"seed {seed}, event {summary.events}: {summary.difference}")
        return 1
    print(f"{summary.events} events in {seconds:.0f} s, no difference")
    return 1 if hypothesis else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--of", choices=WORLDS, default="cards", help="whose events (%(default)s)")
    parser.add_argument("--events", type=positive, default=1_000_000, help="how many events to send (%(default)s)")
    parser.add_argument("--seed", type=int, help="repeat the run of that seed (default: a new one)")
    parser.add_argument(
        "--hypothesis-examples", type=positive, default=0, help="then run the property tests, that many examples each"
    )
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser


def _events(world: str, events: int, seed: int) -> Summary:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("events", total=events)

        def show(number: int) -> None:
            if number % REFRESH_EVERY == 0 or number == events:
                progress.update(task, completed=number)

        return WORLDS[world](events, seed, CHECK_EVERY, show)


def _hypothesis(examples: int) -> int:
    """Run the property tests; returns pytest's exit status."""
    here = Path(__file__).resolve().parents[1]
    environment = os.environ | {"HYPOTHESIS_PROFILE": "soak", "HYPOTHESIS_EXAMPLES": str(examples)}
    tests = [f"tests/accounting/{name}" for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", *tests]
    return subprocess.run(command, cwd=here, env=environment, check=False).returncode


def _report(summary: Summary, seconds: float, examples: int, hypothesis: int | None) -> dict[str, object]:
    return {
        "seed": summary.seed,
        "events": summary.events,
        "events_by_kind": dict(sorted(summary.by_kind.items())),
        "full_checks": summary.full_checks,
        "most_pods": summary.most_pods,
        "wrong": 0 if summary.difference is None else 1,
        "difference": summary.difference,
        "seconds": round(seconds, 1),
        "events_per_second": round(summary.events / seconds) if seconds else 0,
        "hypothesis_examples_per_test": examples,
        "hypothesis_passed": None if hypothesis is None else hypothesis == 0,
    }


if __name__ == "__main__":
    sys.exit(main())
