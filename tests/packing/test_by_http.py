"""The real HTTP verbs, with random ties, choose what the in-process replay chooses; and pods choose their policy."""

from pathlib import Path

import pytest

from accounting.policy import NodePolicy, make_policies
from benchmarks.packing_http import compare, node_manifest
from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.simulation.curves import make_scenario
from extender.simulation.trace import Machine, read_jobs, read_machines
from tests.extender.objects import Json, asks, container
from tests.extender.serving import make_cluster, serving
from tests.packing.builders import SOME_PODS, card_node, workload_of
from tests.packing.traces import write_trace


@pytest.mark.parametrize("policy", ["fragmentation", "fgd"])
async def test_choices_by_http_are_those_in_process(tmp_path: Path, policy: str) -> None:
    folder = write_trace(tmp_path)
    scenario = make_scenario(read_machines(folder), read_jobs(folder, "default"))
    for seed in (1, 2):
        outcome = await compare(scenario, policy, seed, 130)
        assert outcome.difference is None
        assert outcome.tied == 0
        assert 0 < outcome.placed < outcome.pods


def _pod(name: str, *, policy: str, cpu: str = "1", **asked: object) -> Json:
    resources = asks(**asked) if asked else {"requests": {}}
    resources["requests"]["cpu"] = cpu
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    meta["annotations"] = {"hami.io/node-scheduler-policy": policy}  # type: ignore[assignment]
    return {"metadata": meta, "spec": {"containers": [container("main", resources)]}}


def _cluster() -> Cluster:
    nodes = [node_manifest(Machine(card_node(name, 2), None)) for name in ("a", "b", "c")]
    cluster = make_cluster(*nodes)
    cluster.expect(workload_of(cluster.cache, SOME_PODS))
    return cluster


async def test_a_pod_may_choose_the_policy() -> None:
    async with serving(cluster=_cluster()) as client:
        await client.place(_pod("first", policy="binpack", percentage="50", cores="50"), "c")
        half = {"percentage": "50", "cores": "50"}
        packed = await client.prioritize(_pod("p", policy="fragmentation", **half), "a", "b", "c")
        spread = await client.prioritize(_pod("s", policy="spread", **half), "a", "b", "c")
    assert packed[0] == {"Host": "c", "Score": 10}
    assert {entry["Host"]: entry["Score"] for entry in spread}["c"] == 8
    assert sorted(entry["Score"] for entry in packed) == [8, 9, 10]


async def test_pods_without_cards_are_kept_from_nodes_with_cards() -> None:
    cluster = _cluster()
    cluster.cache.add_node(card_node("plain", 0))
    async with serving(cluster=cluster) as client:
        scores = await client.prioritize(_pod("cpu", policy="fragmentation", cpu="8"), "a", "plain", "b")
        assert scores[0] == {"Host": "plain", "Score": 10}
        assert await client.prioritize(_pod("cpu", policy="binpack", cpu="8"), "a", "plain", "b") == []


async def test_another_workload_is_another_state() -> None:
    """The same question after a new workload is not answered from memory."""
    cluster = _cluster()
    async with serving(cluster=cluster) as client:
        question = _pod("p", policy="fragmentation", percentage="50", cores="50")
        await client.prioritize(question, "a", "b")
        before = cluster.version
        cluster.expect(workload_of(cluster.cache, SOME_PODS[:6]))
        assert cluster.version != before


def test_the_cards_of_a_policy_that_looks_ahead_are_the_fullest() -> None:
    assert make_policies("fragmentation", None).card == make_policies("binpack", "binpack").card
    assert make_policies("fragmentation", "spread").card == make_policies("binpack", None).card
    assert Settings().policies.node is NodePolicy.BINPACK
