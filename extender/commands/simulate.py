"""`simulate`: replay a workload on a cluster under several policies, and report packing.

Pods arrive in an order that a seed decides, until they ask for --demand percent of all cards; none leaves. Each pod is
filtered, scored, given cards and booked by the code that answers kube-scheduler; CPU and memory are judged as in
kube-scheduler. A pod that no node takes is refused for good.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from accounting.pod import Pod
from extender.cluster import garbage_collector_paused, load_objects
from extender.commands.arguments import add_output, natural, path, percent
from extender.commands.common import expected_pods, print_json, print_lines, read_pods, table
from extender.config import Settings
from extender.convert import InputError
from extender.simulation.curves import MARKS, Curve, Scenario, make_scenario, run, summary
from extender.simulation.plots import plot
from extender.simulation.replay import POLICIES
from extender.simulation.trace import Job, Machine, read_jobs, read_machines

DEFAULT_POLICIES = ("random", "bestfit", "binpack", "fgd", "fragmentation")
Tick = Callable[[int], None]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = __doc__
    parser.add_argument("--trace-dir", type=path, metavar="DIR", help="openb CSV files: nodes and pods")
    parser.add_argument("--trace", default="default", metavar="NAME", help="of openb_pod_list_NAME.csv")
    parser.add_argument("--cluster", action="append", metavar="FILE", help="cluster dump, repeatable: nodes, and pods")
    parser.add_argument("-f", "--filename", metavar="FILE", help="Pod manifests in place of the dump's or trace's pods")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="repeatable")
    parser.add_argument("--seed", action="append", type=natural, metavar="N", help="repeatable; default: 42")
    parser.add_argument("--demand", type=percent, default=130, metavar="PERCENT", help="of all cards; default: 130")
    parser.add_argument("--plot", type=path, metavar="BASE", help="write BASE.svg and BASE.png")
    add_output(parser)
    parser.set_defaults(run=run_command)


def run_command(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command. Raises `InputError`."""
    policies, seeds = arguments.policy or list(DEFAULT_POLICIES), arguments.seed or [42]
    scenario = _scenario(arguments, settings)
    curves: dict[str, list[Curve]] = {}
    with _progress() as start:
        for policy in dict.fromkeys(policies):
            for seed in dict.fromkeys(seeds):
                tick = start(f"{policy}, seed {seed}", arguments.demand)
                curves.setdefault(policy, []).append(run(scenario, policy, seed, arguments.demand, tick))
    written = plot(arguments.plot, _title(arguments, scenario, seeds), curves) if arguments.plot else []
    if arguments.output == "json":
        print_json(_json(arguments, scenario, curves))
    else:
        print_lines(_text(scenario, curves, written))
    return 0


def _scenario(arguments: argparse.Namespace, settings: Settings) -> Scenario:
    if not arguments.trace_dir and not arguments.cluster:
        raise InputError("--trace-dir, --cluster", "(none)", "one of them must say what to replay")
    machines, jobs = _from_files(arguments, settings)
    if arguments.trace_dir:
        machines = machines or read_machines(arguments.trace_dir)
        jobs = jobs or read_jobs(arguments.trace_dir, arguments.trace)
    if not any(machine.node.devices for machine in machines):
        raise InputError("--cluster", str(arguments.cluster), "has no node with cards")
    if not any(job.pod.asks for job in jobs):
        raise InputError("-f", str(arguments.filename), "no pod asks for a card")
    return make_scenario(machines, jobs, expected_pods(arguments.expected_workload, settings))


def _from_files(arguments: argparse.Namespace, settings: Settings) -> tuple[list[Machine], list[Job]]:
    """Return nodes and pods of dumps. The pods are those of -f, else the dump's own, as if none were bound yet."""
    machines: list[Machine] = []
    jobs: list[Job] = []
    if arguments.cluster:
        with garbage_collector_paused():
            objects = load_objects(arguments.cluster, settings)
        machines = [Machine(node, None) for node in objects.nodes]
        if not arguments.trace_dir:
            jobs = [Job(pod) for pod in objects.pods if not pod.invalid]
    if arguments.filename:
        jobs = [Job(pod) for pod in read_pods(arguments.filename, settings) if not pod.invalid]
    return machines, [Job(_unbound(job), job.memory_mib) for job in jobs]


def _unbound(job: Job) -> Pod:
    return job.pod._replace(node=None, allocation=None, terminal=False, deleting=False, inits_over=False)


@contextmanager
def _progress() -> Iterator[Callable[[str, int], Tick]]:
    """Yield a function that starts a progress bar on standard error; without a terminal or rich there is none."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda _name, _total: lambda _done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(file=sys.stderr), disable=not sys.stderr.isatty()
    ) as bars:

        def start(name: str, total: int) -> Tick:
            bar = bars.add_task(name, total=total)
            return lambda done: bars.update(bar, completed=done)

        yield start


def _title(arguments: argparse.Namespace, scenario: Scenario, seeds: list[int]) -> str:
    what = f"openb {arguments.trace}" if arguments.trace_dir else ", ".join(arguments.cluster)
    return f"{what}: {len(scenario.machines)} nodes, {scenario.capacity // 100} cards, {len(seeds)} seeds"


def _json(arguments: argparse.Namespace, scenario: Scenario, curves: dict[str, list[Curve]]) -> dict[str, Any]:
    return {
        "trace": arguments.trace if arguments.trace_dir else None,
        "nodes": len(scenario.machines),
        "cards": scenario.capacity // 100,
        "pods": len(scenario.jobs),
        "demand": arguments.demand,
        "policies": [summary(runs) | {"runs": list(map(_run_json, runs))} for runs in curves.values()],
    }


def _run_json(curve: Curve) -> dict[str, Any]:
    points = {
        name: {str(mark): value for mark, value in getattr(curve, name).items()} for name in ("allocated", "fragmented")
    }
    return {"seed": curve.seed, "placed": curve.placed, "refused": curve.refused} | points


def _text(scenario: Scenario, curves: dict[str, list[Curve]], written: list[str]) -> Iterator[str]:
    yield f"{len(scenario.machines)} nodes, {scenario.capacity // 100} cards, {len(scenario.jobs)} pods to draw from"
    for name in ("allocated", "fragmented"):
        yield f"{name} cards in percent of all, when that much demand has arrived:"
        rows = []
        for runs in curves.values():
            means = summary(runs)[name]
            marks = (means.get(str(mark)) for mark in MARKS)
            rows.append((runs[0].policy, *("-" if mark is None else f"{mark['mean']:.2f}" for mark in marks)))
        yield from table(("POLICY", *(f"{mark} %" for mark in MARKS)), rows)
    yield from (f"wrote {name}" for name in written)
