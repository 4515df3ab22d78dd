"""Runs a live extender under steady load for an hour, and says whether memory or latency drift.

It exists because a leak of a few bytes per pod shows after hours only. It must not know how pods arrive or what drift
is. Invariants: extender, API server and maker of events are processes of their own and end with the run; what was
measured so far is on disk after every interval; the exit status is 1 if a pod was lost, books differ, memory drifts or
the run failed, 130 if it was interrupted, and times alone never change it.

    python -m benchmarks.steady_hour [--seconds 3600] [--events 300] [--pods 50] [-o FILE] [--plot BASE]
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import orjson

from benchmarks import live_cluster, live_dump, live_events, steady_books, steady_plot
from benchmarks.figures import Size
from benchmarks.options import above_zero, positive
from benchmarks.report import Machine
from benchmarks.steady_figures import Interval, drifts, memory_drifts
from benchmarks.steady_pods import Steady
from benchmarks.steady_watch import Observer, Watched

_READY_SECONDS: Final = 300.0
_DRAIN_SECONDS: Final = 120.0
_SEED: Final = 1
#: The collector and the scheduler share this process; with 5 ms one would be measured waiting for the other.
_SWITCH_SECONDS: Final = 0.0005
_INTERRUPTED: Final = 130

Json = dict[str, Any]


class Plan(NamedTuple):
    """What to run."""

    seconds: float
    events_per_second: int
    pods_per_second: float
    size: Size
    life_seconds: float
    interval_seconds: float

    def as_json(self) -> Json:
        """The fields as plain values."""
        return self._asdict() | {"size": str(self.size)}


class Run:
    """One run and what it has shown so far."""

    def __init__(self, plan: Plan, output: Path | None) -> None:
        self.plan = plan
        self.stop = threading.Event()
        self.intervals: list[Interval] = []
        self._output = output
        self._machine = Machine.now()
        self._ended: Json = {}
        self._seconds = 0.0

    def carry_out(self) -> None:
        """Run until the time is over or `stop` is set. A failure is part of the report."""
        try:
            with TemporaryDirectory(prefix="steady-hour-") as name:
                self._run(Path(name))
        except Exception as error:  # noqa: BLE001 - whatever fails, what was measured is kept
            self._ended["failure"] = f"{type(error).__name__}: {error}"
        self.write()

    def holds(self) -> bool:
        """Whether nothing was lost, books are clean and memory does not drift."""
        ended = self._ended
        if ended.get("failure") or "books" not in ended:
            return False
        drift = memory_drifts(drifts(self.intervals), self._seconds)
        return bool(ended["books"]["clean"] and not ended["lost"] and not drift)

    def report(self) -> Json:
        """Everything so far."""
        found = drifts(self.intervals)
        return {
            "machine": self._machine._asdict(),
            "plan": self.plan.as_json(),
            "seconds": round(self._seconds, 1),
            "interrupted": self.stop.is_set(),
            **self._ended,
            "memory_drifts": memory_drifts(found, self._seconds),
            "drift": [each.as_json() for each in found],
            "intervals": [each.as_json() for each in self.intervals],
        }

    def write(self) -> None:
        """Write the report, whole or not at all."""
        if self._output is not None:
            partly = self._output.with_suffix(".partly")
            partly.write_bytes(orjson.dumps(self.report(), option=orjson.OPT_APPEND_NEWLINE))
            partly.replace(self._output)

    def _run(self, folder: Path) -> None:
        plan = self.plan
        _say(f"writing {plan.size} ...")
        dump = live_dump.write(plan.size, _SEED, folder)
        kubeconfig = folder / "kubeconfig"
        with (
            live_cluster.api_server(dump, kubeconfig) as api,
            live_cluster.extender(kubeconfig, ["--log-level", "warning"]) as extender,
        ):
            observer = Observer(api, extender)
            observer.extender.wait_until_ready(_READY_SECONDS)
            flow = Steady(api.address, extender.address, dump.nodes, plan.life_seconds, _SEED)
            try:
                with live_cluster.events(
                    api.address, dump, live_events.STATUS, per_second=plan.events_per_second
                ) as events:
                    flow.start(plan.pods_per_second)
                    self._watch(observer, flow, lambda: events.poll() is None)
                    _say("waiting for the last pods ...")
                    lost = flow.drain(_DRAIN_SECONDS)
            finally:
                flow.stop()
            flow.reading()
            self._ended = {"lost": lost, "totals": dict(sorted(flow.total.items()))}
            if flow.failure is not None:
                raise RuntimeError(f"a client failed: {flow.failure!r}")
            _say("comparing the books ...")
            self._ended["books"] = steady_books.check(api.address, extender.address).as_json()

    def _watch(self, observer: Observer, flow: Steady, sends: Any) -> None:  # noqa: ANN401 - whether events are sent
        began = time.monotonic()
        observer.look()
        flow.reading()
        while self._seconds < self.plan.seconds:
            due = began + min(self.plan.seconds, (len(self.intervals) + 1) * self.plan.interval_seconds)
            if self.stop.wait(max(0.0, due - time.monotonic())):
                return
            if flow.failure is not None:
                return
            if not sends():
                raise RuntimeError("the maker of events has ended")
            watched = observer.look()
            self._seconds = time.monotonic() - began
            self._take(watched, flow)
            self.write()

    def _take(self, watched: Watched, flow: Steady) -> None:
        interval = Interval.of(self._seconds, watched, flow.reading())
        self.intervals.append(interval)
        _say(str(interval))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _show(report: Json) -> None:
    print(f"{report['seconds']:.0f} s; {report.get('totals')}; lost {report.get('lost')}")
    print(f"{'':18} {'2nd quarter':>12} {'4th quarter':>12} {'ratio':>7} {'slope per h':>12}")
    for each in report["drift"]:
        values = f"{each['second_quarter']:12.2f} {each['last_quarter']:12.2f} {each['ratio']:7.3f}"
        print(f"{each['what']:18} {values} {each['slope_per_hour']:12.2f}")
    print(f"memory drifts: {report['memory_drifts']}; books: {report.get('books')}")
    if "failure" in report:
        print(f"failure: {report['failure']}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steady_hour", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=above_zero, default=3600.0, help="how long (default: %(default)s)")
    parser.add_argument(
        "--events", type=positive, default=300, help="events of other pods per second (default: %(default)s)"
    )
    parser.add_argument("--pods", type=above_zero, default=50.0, help="pods per second (default: %(default)s)")
    parser.add_argument(
        "--size", type=live_cluster.size, default=Size(1_000, 10_000), metavar="NODESxPODS", help="default: %(default)s"
    )
    parser.add_argument("--life", type=above_zero, default=20.0, help="seconds of a pod (default: %(default)s)")
    parser.add_argument("--interval", type=above_zero, default=10.0, help="seconds of a point (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--plot", metavar="BASE", help="write BASE.svg and BASE.png; needs matplotlib")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    plan = Plan(options.seconds, options.events, options.pods, options.size, options.life, options.interval)
    run = Run(plan, options.output)
    before = {number: signal.signal(number, lambda *_: run.stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    try:
        run.carry_out()
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval)
        for number, handler in before.items():
            signal.signal(number, handler)
    report = run.report()
    _show(report)
    if options.plot:
        steady_plot.plot(options.plot, report)
    if run.stop.is_set():
        return _INTERRUPTED
    return 0 if run.holds() else 1


if __name__ == "__main__":
    raise SystemExit(main())
