"""Reads the allocations of random pods as each version of HAMi writes them, and compares with what was placed.

It exists because a row that is read as another container's may free a card that is in use. It must not know the rules
of reading. Invariants: what is read is never less than the truth, on no card and in no dimension, and equal to it where
the rows can be told apart; the watch's quick reading says the same; a difference ends the run with its seed.

    python -m benchmarks.allocation_soak [--pods 100000] [--seed N] [-o docs/allocation_soak.json]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import orjson

from accounting.holdings import DeviceUse
from accounting.pod import Pod
from accounting.pod_record import PodRecord, record_pod
from accounting.reference.state import Amounts, card_holdings
from accounting.status import ProblemCode
from accounting.vendors import HYGON
from benchmarks.hami_pods import Version, WrittenPod, written_pod
from extender.config import Settings
from extender.convert.pod import convert_pod, convert_without_rows, held_or_rows, rows_text
from extender.wire import core_v1

_SETTINGS: Final = Settings(further_vendors=(HYGON,))
_NOTHING: Final = Amounts()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.allocation_soak", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--pods", type=int, default=100_000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the pods (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    counts, difference = compare(options.pods, options.seed)
    if difference is not None:
        print(difference)
        return 1
    report = {"seed": options.seed, "pods": options.pods, **counts, "seconds": round(time.perf_counter() - started, 1)}
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if options.output is not None:
        options.output.write_bytes(text)
    print(text.decode(), end="")
    return 0


def compare(pods: int, seed: int) -> tuple[dict[str, dict[str, int]], str | None]:
    """Compare that many pods; returns how many of each version were read exactly and how many not, and a difference."""
    counts = {version.value: Counter[str]() for version in Version}
    for number in range(pods):
        version = tuple(Version)[number % len(Version)]
        written = written_pod(Random(f"{seed}/{number}"), version)
        said, record = difference_of(written)
        if said is not None:
            return {}, f"seed {seed}, pod {number}, written by HAMi {version}: {said}\n{written.manifest}"
        ambiguous = record.problem is not None
        counts[version.value]["ambiguous" if ambiguous else "exact" if written.exact else "at least the truth"] += 1
    return {version: dict(sorted(of.items())) for version, of in counts.items()}, None


def difference_of(written: WrittenPod) -> tuple[str | None, PodRecord]:
    """Return what is wrong with the reading of a pod, if anything, and its record."""
    wire = msgspec.convert(written.manifest, core_v1.Pod)
    record = record_pod(convert_pod(wire, _SETTINGS))
    bare, text = convert_without_rows(wire, _SETTINGS), rows_text(wire, _SETTINGS)
    if record_pod(bare, held_or_rows(bare, text, _SETTINGS)) != record:
        return "the watch reads it differently", record
    if record.problem is not None and record.problem.code is not ProblemCode.AMBIGUOUS_ALLOCATION:
        return f"has the problem {record.problem.message}", record
    must_be_equal = written.exact and record.problem is None
    for read, over in ((record.peak, False), (record.steady, True)):
        truth = _truth(written.placed._replace(inits_over=over))
        found = _found(read)
        if any(min(_less(found.get(uuid, _NOTHING), held)) < 0 for uuid, held in truth.items()):
            return f"less than the truth: {found} of {truth}", record
        if must_be_equal and found != truth:
            return f"not the truth: {found} instead of {truth}", record
    return None, record


def _truth(pod: Pod) -> dict[str, Amounts]:
    return {uuid: holding.held for uuid, holding in card_holdings(pod).items() if any(holding.held)}


def _found(uses: tuple[DeviceUse, ...]) -> dict[str, Amounts]:
    return {use.uuid: Amounts(use.slots, use.memory, use.cores) for use in uses}


def _less(one: Amounts, other: Amounts) -> list[int]:
    return [mine - theirs for mine, theirs in zip(one, other, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
