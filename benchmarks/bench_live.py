"""Measures the extender on a live cluster: the first lists, the cost of an event, memory, stalls, verbs under events.

It exists because a process that is fast on a file may still be slow, large or late on an API server. It must not judge
a change: the exit status says only whether the run was completed. Invariant: the API server is a process of its own,
and so is the maker of events; "CPU" means the extender's alone.

    python -m benchmarks.bench_live [--quick] [--size NODESxPODS] [--events N] [-o docs/bench_live.json]
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import orjson
from rich.console import Console

from benchmarks import live_cluster, live_dump, live_event_cost, live_events, targets
from benchmarks.figures import PAIR, Size, Summary
from benchmarks.http_load import Address, Connection
from benchmarks.live_figures import LiveReport, Pairs, Stream, Sync, show
from benchmarks.live_process import LiveProcess
from benchmarks.measure import ask, quiet_collector
from benchmarks.questions import INIT_SIDECAR_APP, Questions
from benchmarks.report import Machine

_QUICK: Final = Size(1_000, 10_000)
_SYNC_SECONDS: Final = 300.0
_REST_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 20.0
_WARM_UP: Final = 10
#: The number of pods with inits that events may have changed before the streams begin.
_SKIP: Final = 4_000
_COLUMNS: Final = 110


class Plan(NamedTuple):
    """What to measure."""

    size: Size
    events: int
    """Events that change nothing that counts; a tenth as many change something."""
    calls: int
    per_second: int
    seed: int


def run(plan: Plan, console: Console) -> LiveReport:
    """Measure everything in the plan."""
    machine = Machine.now()
    with TemporaryDirectory(prefix="bench-live-") as name:
        folder = Path(name)
        console.print(f"writing {plan.size} ...")
        dump = live_dump.write(plan.size, plan.seed, folder)
        kubeconfig = folder / "kubeconfig"
        with live_cluster.api_server(dump, kubeconfig) as api, live_cluster.extender(kubeconfig) as started:
            console.print("first lists ...")
            extender = LiveProcess(started.pid, started.address)
            sync = _sync(extender, dump)
            console.print("questions ...")
            pairs = _pairs(extender, started.address, api.address, dump, plan)
            streams = []
            for kind, events in ((live_events.STATUS, plan.events), (live_events.INITS, max(1, plan.events // 10))):
                console.print(f"events ({kind}) ...")
                streams.append(_stream(extender, api.address, dump, kind, events))
        console.print("one event, without network ...")
        cost = live_event_cost.measure(dump.path)
    return LiveReport(machine, plan.size, plan.seed, sync, streams, pairs, cost)


def _sync(extender: LiveProcess, dump: live_dump.Dump) -> Sync:
    """Wait for the first lists. The extender listens before it begins them, so the wait starts when they do."""
    started, before = time.monotonic(), extender.cpu()
    extender.wait_until_ready(_SYNC_SECONDS)
    wall, after = time.monotonic() - started, extender.cpu()
    pods = int(extender.metric("cache_pods"))
    assert pods == dump.pods, f"{pods} pods are known, not {dump.pods}"
    return Sync(
        len(dump.nodes),
        pods,
        round(wall * 1000),
        (after.used_ns - before.used_ns) // 1_000_000,
        (after.waited_ns - before.waited_ns) // 1_000_000,
        extender.peak_kib(),
        extender.stall(),
    )


def _stream(extender: LiveProcess, api: Address, dump: live_dump.Dump, kind: str, events: int) -> Stream:
    """Send events as fast as possible.

    Some are sent first, so that the cost of the first of its kind is not measured.
    """
    warm_up = max(1, events // 20)
    with live_cluster.events(api, dump, kind, count=warm_up, skip=_SKIP) as first:
        first.wait()
    extender.wait_until_quiet(_REST_SECONDS)
    extender.forget_stalls()
    resident, before, started = extender.resident_kib(), extender.cpu(), time.monotonic()
    with live_cluster.events(api, dump, kind, count=events, skip=_SKIP + warm_up) as sending:
        while sending.poll() is None:
            _look(extender, sending)
    assert sending.returncode == 0, "an event was refused"
    extender.wait_until_quiet(_REST_SECONDS)
    wall, after = time.monotonic() - started, extender.cpu()
    cpu_us = (after.used_ns - before.used_ns) // 1000
    return Stream(kind, events, round(wall * 1000), cpu_us, resident, extender.resident_kib(), extender.stall())


def _look(extender: LiveProcess, sending: subprocess.Popen[bytes]) -> None:
    """Read the stall gauge now and then."""
    try:
        sending.wait(_LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        extender.stall()


def _pairs(extender: LiveProcess, address: Address, api: Address, dump: live_dump.Dump, plan: Plan) -> Pairs:
    questions = Questions(dump.nodes, INIT_SIDECAR_APP, plan.seed)
    with Connection(address) as connection, quiet_collector():
        quiet = _ask(connection, questions, plan.calls)
        with live_cluster.events(api, dump, live_events.INITS, per_second=plan.per_second) as sending:
            time.sleep(1.0)
            under_events = _ask(connection, questions, plan.calls)
            assert sending.poll() is None, "the events ended early"
    extender.wait_until_quiet(_REST_SECONDS)
    return Pairs(quiet, plan.per_second, under_events, extender.stall())


def _ask(connection: Connection, questions: Questions, calls: int) -> Summary:
    times = [ask(connection, questions.next())[0][PAIR] for _ in range(_WARM_UP + calls)]
    return Summary.of(times[_WARM_UP:])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_live", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller cluster and fewer events")
    parser.add_argument("--size", type=live_cluster.size, metavar="NODESxPODS")
    parser.add_argument("--events", type=int, help="events at full speed (default: 1000000, quick 5000)")
    parser.add_argument("--calls", type=int, help="filter + prioritize pairs (default: 400, quick 100)")
    parser.add_argument("--per-second", type=int, default=300, help="events beside them (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the cluster (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the figures as JSON")
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    size, events, calls = (_QUICK, 5_000, 100) if options.quick else (targets.LARGE, 1_000_000, 400)
    return Plan(
        options.size or size, options.events or events, options.calls or calls, options.per_second, options.seed
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    report = run(_plan(options), Console(stderr=True))
    console = Console()
    show(report, console if console.is_terminal else Console(width=_COLUMNS))
    if options.output:
        options.output.write_bytes(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
