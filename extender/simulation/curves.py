"""The result of a run: allocated and fragmented cards over arrived demand, and means over seeds.

Why it exists: a single figure at the end of a run rewards a policy that refuses awkward pods early, so every result is
a curve with marks. It must not place anything. Invariant: a point is taken when arrived demand first reaches its
percent.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import numpy as np

from accounting.packing.fgd import fragmentation
from accounting.packing.mix import expected
from accounting.packing.shape import UNITS, need_of, shape_of
from accounting.packing.state import read_state
from accounting.packing.workload import Plan, Workload, build_workload, classes_of, plan_of
from accounting.pod import Pod
from accounting.state import Snapshot
from accounting.state.cache import Cache
from extender.simulation.replay import Replay
from extender.simulation.stream import arrivals
from extender.simulation.trace import Job, Machine

#: Percent of the capacity at which results are quoted.
MARKS = (50, 80, 90, 95, 100, 130)
#: Fragmented cards are counted every so many percent, allocated ones at each.
_FRAGMENTED_EVERY = 5


@dataclass(slots=True)
class Curve:
    """One run. Percent of arrived demand -> percent of all cards."""

    policy: str
    seed: int
    allocated: dict[int, float] = field(default_factory=dict)
    fragmented: dict[int, float] = field(default_factory=dict)
    refused: int = 0
    placed: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster, the pods that arrive, and the workload that looking ahead expects."""

    machines: Sequence[Machine]
    jobs: Sequence[Job]
    workload: Workload
    demand: tuple[int, ...]
    """Units per job."""
    capacity: int
    """Units of all cards."""


def make_scenario(machines: Sequence[Machine], jobs: Sequence[Job], prior: Iterable[Pod] | None = None) -> Scenario:
    """Return a scenario. `prior`: the pods that show what to expect, where these are not the jobs themselves."""
    plan = plan_of(_cluster(machines))
    shapes = [shape_of(job.pod) for job in jobs] if prior is None else list(map(shape_of, prior))
    workload = build_workload(expected(shapes, plan.usual_memory), plan)
    capacity = sum(len(machine.node.devices) for machine in machines) * UNITS
    return Scenario(machines, jobs, workload, tuple(_units(job.pod, plan) for job in jobs), capacity)


def run(
    scenario: Scenario, policy: str, seed: int, percent: int, tick: Callable[[int], None] = lambda _: None
) -> Curve:
    """Replay pods until their demand is `percent` of the capacity. `tick` is called with the percent arrived."""
    capacity, demand = scenario.capacity, scenario.demand
    order = arrivals(scenario.jobs, demand, capacity * percent // 100, seed)
    replay = Replay(scenario.machines, policy, scenario.workload, seed)
    curve, arrived, allocated, mark = Curve(policy, seed), 0, 0, 0
    for number, position in enumerate(order):
        arrived += demand[position]
        if replay.place(scenario.jobs[position], f"{position}-{number}") is None:
            curve.refused += 1
        else:
            curve.placed += 1
            allocated += demand[position]
        while mark <= percent and arrived * 100 >= mark * capacity:
            curve.allocated[mark] = round(allocated / capacity * 100, 4)
            if mark % _FRAGMENTED_EVERY == 0:
                curve.fragmented[mark] = round(_fragmented(replay.cache.snapshot(), scenario), 4)
            mark += 1
            tick(mark)
    return curve


def summary(curves: Sequence[Curve]) -> dict[str, Any]:
    """Return the means over seeds at the marks, with the sample's deviation if there are several seeds."""

    def means(name: str) -> dict[str, Any]:
        found = {}
        for mark in MARKS:
            values = [getattr(curve, name)[mark] for curve in curves if mark in getattr(curve, name)]
            if values:
                deviation = round(stdev(values), 3) if len(values) > 1 else None
                found[str(mark)] = {"mean": round(fmean(values), 3), "deviation": deviation}
        return found

    return {
        "policy": curves[0].policy,
        "seeds": [curve.seed for curve in curves],
        "allocated": means("allocated"),
        "fragmented": means("fragmented"),
    }


def _units(pod: Pod, plan: Plan) -> int:
    """Return the pod's demand in units, of the first cards that it may use."""
    shape = shape_of(pod)
    needs = (need_of(shape, card) for card, _ in plan.classes)
    need = next((each for each in needs if each is not None), None)
    return 0 if need is None else need.cards * need.units


def _fragmented(snapshot: Snapshot, scenario: Scenario) -> float:
    """Return the percent of all cards that are free and cannot be used by the pod that is expected next (FGD's sum)."""
    rows = np.flatnonzero(snapshot.nodes.registered & (snapshot.nodes.card_count > 0))
    groups = {group.card: group for group in scenario.workload.groups}
    classes, numbers = classes_of(snapshot, rows)
    total = 0.0
    for number, card in enumerate(classes):
        typical = groups[card].typical
        if typical.total:
            total += int(fragmentation(read_state(snapshot, rows[numbers == number]), typical).sum()) / typical.total
    return total / scenario.capacity * 100


def _cluster(machines: Sequence[Machine]) -> Snapshot:
    cache = Cache()
    for machine in machines:
        cache.add_node(machine.node)
    return cache.snapshot()
