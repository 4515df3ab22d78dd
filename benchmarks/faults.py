"""Runs two replicas under faults, seed after seed, and stops at the first violation.

It exists because only many runs find faults that must coincide to do harm. It must not know what goes wrong or what
must hold; see `tests.live.fault_trial`. Invariant: what goes wrong follows from the seeds, however many processes share
them; the moments may differ between two plays of a seed.

    python -m benchmarks.faults [--runs 10000] [--first 1000] [--processes 1] [-o docs/faults.json]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import orjson
import structlog
from rich.console import Console
from rich.progress import track

from benchmarks.options import positive
from tests.live.fault_trial import ACTIVITIES, Outcome, Violation, run
from tests.virtual_time import VirtualTimeLoop, leases_in_virtual_time


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    harms, binds, activities, seconds, hits = Counter[str](), Counter[str](), Counter[str](), 0.0, 0
    pairs: dict[str, Counter[str]] = {}
    started, violation, done = time.perf_counter(), None, 0
    seeds = range(options.first, options.first + options.runs)
    with _outcomes(seeds, options.processes) as outcomes:
        for outcome in track(outcomes, "runs", total=len(seeds), console=Console(stderr=True)):
            if isinstance(outcome, str):
                violation = outcome
                break
            done += 1
            harms.update(outcome.harms)
            binds.update(outcome.binds)
            activities.update(outcome.activities)
            for harm in sorted(+outcome.harms):
                pairs.setdefault(harm, Counter()).update(("bind", "watch", *_beside(outcome)))
            seconds, hits = seconds + outcome.seconds, hits + outcome.hits
    report = {
        "first_seed": options.first,
        "runs": done,
        "harms": dict(sorted(harms.items())),
        "requests_and_events_harmed": hits,
        "runs_by_harm_and_activity": {harm: dict(sorted(counts.items())) for harm, counts in sorted(pairs.items())},
        "activities": dict(sorted(activities.items())),
        "answers_to_binds": dict(sorted(binds.items())),
        "virtual_seconds": round(seconds),
        "seconds": round(time.perf_counter() - started),
        "violation": violation,
    }
    if options.output is not None:
        options.output.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    print(violation or f"{done} runs in {report['seconds']} s, nothing lost, nothing over-committed")
    return 0 if violation is None else 1


def _beside(outcome: Outcome) -> list[str]:
    """Return what a run did beside binding and watching."""
    return [name for name in ACTIVITIES if outcome.activities[name]]


@contextmanager
def _outcomes(seeds: range, processes: int) -> Iterator[Iterable[Outcome | str]]:
    """Yield what each run saw or the text of its violation, in the order of the seeds."""
    # A forked process would share this one's threads and loops.
    with get_context("spawn").Pool(processes, _prepare) as pool:
        yield pool.imap(_run, seeds, chunksize=1)


def _prepare() -> None:
    """Prepare a process for runs."""
    # Every replica makes TLS contexts that are not needed here, and reading the machine's authorities into one takes 20
    # ms.
    os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _run(seed: int) -> Outcome | str:
    with leases_in_virtual_time(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        try:
            return runner.run(run(seed))
        except Violation as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - any failure of a run is told with its seed
            return f"seed {seed}: {''.join(traceback.format_exception(error)).strip()}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=positive, default=10_000, help="how many runs (%(default)s)")
    parser.add_argument("--first", type=int, default=1000, help="the first seed (%(default)s)")
    parser.add_argument("--processes", type=positive, default=1, help="processes that share the seeds (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
