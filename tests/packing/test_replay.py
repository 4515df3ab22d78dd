"""Replaying a workload makes the extender's own choices, with or without its memory."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from accounting.answers.filter import feasible_on
from accounting.policy import NodePolicy
from extender.convert.manifests import InputError
from extender.simulation.curves import make_scenario, run, summary
from extender.simulation.replay import POLICIES, RANDOM, Replay
from extender.simulation.stream import arrivals
from extender.simulation.trace import Job, Machine, read_jobs, read_machines
from tests.packing.builders import SOME_PODS, card_node, named, share_pod
from tests.packing.traces import write_trace

MACHINES = [
    *(Machine(card_node(f"n{number}", 4, cpu=20_000), 50_000) for number in range(5)),
    Machine(card_node("small", 2, cpu=6_000, model="P100"), 9_000),
]
JOBS = [Job(named(pod, str(number)), 1000) for number, pod in enumerate((*SOME_PODS, share_pod(70, types="P100")))]


@pytest.mark.parametrize("policy", POLICIES)
def test_remembering_changes_no_choice(policy: str) -> None:
    scenario = make_scenario(MACHINES, JOBS)
    order = arrivals(JOBS, scenario.demand, scenario.capacity * 13 // 10, 5)
    quick = Replay(MACHINES, policy, scenario.workload, 5)
    slow = Replay(MACHINES, policy, scenario.workload, 5, remember=False)
    chosen = [quick.place(JOBS[at], str(number)) for number, at in enumerate(order)]
    assert chosen == [slow.place(JOBS[at], str(number)) for number, at in enumerate(order)]
    assert None in chosen


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_that_fits_somewhere_is_placed_and_nothing_is_overcommitted(policy: str) -> None:
    scenario = make_scenario(MACHINES, JOBS)
    replay = Replay(MACHINES, policy, scenario.workload, 1)
    rng = random.Random(2)
    for number in range(60):
        job = rng.choice(JOBS)
        snapshot = replay.cache.snapshot()
        takes = feasible_on(snapshot, job.pod, snapshot)
        node = replay.place(job, str(number))
        if node is not None:
            assert not job.pod.asks or takes[snapshot.rows[node]]
    snapshot = replay.cache.snapshot()
    for machine in MACHINES:
        row = snapshot.rows[machine.node.name]
        assert snapshot.requested.cpu_milli[row] <= (machine.node.cpu_milli or 0)
        assert (snapshot.requested.memory[:, row] <= snapshot.nodes.memory[:, row]).all()


def test_memory_of_nodes_is_kept() -> None:
    machines = [Machine(card_node("a", 2), 1500)]
    replay = Replay(machines, RANDOM, None, 1)
    assert replay.place(Job(share_pod(10), 1000), "1") == "a"
    assert replay.place(Job(share_pod(10), 1000), "2") is None


def test_curves_are_the_same_for_the_same_seed() -> None:
    scenario = make_scenario(MACHINES, JOBS)
    one, other = (run(scenario, NodePolicy.FRAGMENTATION.value, 3, 130) for _ in range(2))
    assert one == other
    assert one.allocated[50] >= 50
    assert max(one.allocated.values()) <= 100
    assert one.placed + one.refused == len(arrivals(JOBS, scenario.demand, scenario.capacity * 13 // 10, 3))
    means = summary([one, replace(other, seed=4)])
    assert means["seeds"] == [3, 4]
    assert means["allocated"]["100"] == {"mean": pytest.approx(one.allocated[100], abs=1e-3), "deviation": 0.0}


def test_orders_hold_every_pod_once_before_any_comes_twice() -> None:
    order = arrivals(JOBS, [1] * len(JOBS), len(JOBS) + 5, 9)
    assert sorted(order[: len(JOBS)]) == list(range(len(JOBS)))
    assert len(order) == len(JOBS) + 5
    assert order == arrivals(JOBS, [1] * len(JOBS), len(JOBS) + 5, 9)
    assert order != arrivals(JOBS, [1] * len(JOBS), len(JOBS) + 5, 10)


def test_a_trace_is_read(tmp_path: Path) -> None:
    folder = write_trace(tmp_path)
    machines, jobs = read_machines(folder), read_jobs(folder, "default")
    assert [(m.node.name, len(m.node.devices), m.node.cpu_milli, m.memory_mib) for m in machines][:2] == [
        ("node-0", 4, 32_000, 100_000),
        ("node-1", 4, 32_000, 100_000),
    ]
    request = jobs[0].pod.containers[0].request
    assert request is not None
    assert (request.count, request.memory_percentage, request.cores) == (1, 47, 47)
    assert jobs[-1].pod.selection.use_types == (("p100",), ("t4",))


@pytest.mark.parametrize(
    "row,why",
    [("pod,1000,1000,x,0", "num_gpu=x: must be a whole number"), ("pod,-1,1000,1,500", "cpu_milli=-1")],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, why: str) -> None:
    folder = write_trace(tmp_path)
    (tmp_path / "openb_pod_list_default.csv").write_text(f"name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{row}\n")
    with pytest.raises(InputError, match="line 2") as error:
        read_jobs(folder, "default")
    assert why in str(error.value)


def test_a_missing_file_and_a_missing_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_machines(str(tmp_path))
    folder = write_trace(tmp_path)
    (tmp_path / "openb_pod_list_default.csv").write_text("name,cpu_milli\n")
    with pytest.raises(InputError, match="has no column gpu_milli"):
        read_jobs(folder, "default")
