"""Values of nodes: they are the same with and without memory; and which nodes they prefer."""

import random
from dataclasses import replace

import numpy as np
import pytest

from accounting.answers.allocate import allocate
from accounting.answers.filter import feasible_on
from accounting.cards.score import MAX_SCORE, score_nodes
from accounting.packing.scorer import Packing, Scorer
from accounting.packing.workload import Workload
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.policy import NodePolicy
from accounting.state.cache import Cache
from tests.builders import uuids_on
from tests.packing.builders import SOME_PODS, card_node, cluster_of, named, share_pod, workload_of

POLICIES = (NodePolicy.FGD, NodePolicy.FRAGMENTATION)


def _cluster() -> Cache:
    nodes = [card_node(f"n{number}", 4, cpu=16_000 + 4000 * (number % 3)) for number in range(6)]
    return cluster_of([*nodes, card_node("p0", 2, model="P100"), card_node("p1", 2, model="P100")])


def _book(cache: Cache, pod: Pod, name: str, row: int) -> None:
    snapshot = cache.snapshot()
    node = next(each for each, at in snapshot.rows.items() if at == row)
    placement = allocate(snapshot, pod, row, uuids_on(cache, node))
    assert placement is not None
    cache.assume_pod(record_pod(named(pod, name)._replace(node=node, allocation=placement.allocation)))


def _workload(cache: Cache) -> Workload:
    return workload_of(cache, [*SOME_PODS, share_pod(100, types="P100"), share_pod(30, types="T4")])


@pytest.mark.parametrize("policy", POLICIES)
def test_values_are_the_same_with_and_without_memory(policy: NodePolicy) -> None:
    cache, rng = _cluster(), random.Random(7)
    workload = _workload(cache)
    remembering = Scorer(workload, policy)
    placed: list[str] = []
    for number in range(60):
        pod = rng.choice(SOME_PODS)._replace(policies=replace(share_pod(1).policies, node=policy))
        snapshot = cache.snapshot()
        rows = np.flatnonzero(feasible_on(snapshot, pod, snapshot))
        values = remembering.values(snapshot, pod, rows)
        assert values.tolist() == Scorer(workload, policy).values(snapshot, pod, rows).tolist()
        if len(rows):
            _book(cache, pod, str(number), int(rows[values.argmax()]))
            placed.append(f"uid-{number}")
        if number % 9 == 8:
            cache.remove_pod(placed.pop(rng.randrange(len(placed))))
        if number == 30:
            cache.add_node(card_node("late", 4))
            cache.remove_node("n5")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_whose_cards_a_pod_may_use_no_more_has_the_value_that_it_has_anew(policy: NodePolicy) -> None:
    cache = _cluster()
    workload, pod = _workload(cache), share_pod(30, types="P100")
    remembering = Scorer(workload, policy)
    rows = cache.snapshot().rows_of(["p0", "p1"])
    remembering.values(cache.snapshot(), pod, rows)
    cache.add_node(card_node("p0", 2, model="T4"))
    snapshot = cache.snapshot()
    assert (
        remembering.values(snapshot, pod, rows).tolist()
        == Scorer(workload, policy).values(snapshot, pod, rows).tolist()
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_order_is_full_and_the_best_node_alone_has_10(policy: NodePolicy) -> None:
    cache = cluster_of([card_node(name) for name in ("b", "c", "a")])
    snapshot, pod = cache.snapshot(), share_pod(30, policy=policy.value)
    packing = Packing()
    packing.use(workload_of(cache, SOME_PODS))
    rows = snapshot.rows_of(["c", "b", "a"])
    scores = score_nodes(snapshot, rows, policy, values=packing.values(snapshot, pod, rows))
    assert scores == [(2, MAX_SCORE), (1, MAX_SCORE - 1), (0, MAX_SCORE - 2)]


def test_before_the_first_workload_the_fullest_node_is_best() -> None:
    cache = cluster_of([card_node("a"), card_node("b")])
    _book(cache, share_pod(40), "first", cache.snapshot().rows["b"])
    snapshot, packing = cache.snapshot(), Packing()
    assert not packing.asked
    values = packing.values(snapshot, share_pod(30), snapshot.rows_of(["a", "b"]))
    assert values is not None
    assert values[1] > values[0]
    assert packing.asked


def test_policies_that_do_not_look_ahead_have_no_values() -> None:
    cache = cluster_of([card_node("a")])
    snapshot = cache.snapshot()
    assert Packing().values(snapshot, share_pod(30, policy="binpack"), snapshot.rows_of(["a"])) is None


def _best(cache: Cache, pod: Pod) -> str:
    snapshot, packing = cache.snapshot(), Packing()
    packing.use(_workload(cache))
    names = sorted(snapshot.rows)
    rows = snapshot.rows_of(names)
    fits = feasible_on(snapshot.take(rows), pod, snapshot)
    names = [name for name, fit in zip(names, fits, strict=True) if fit]
    rows = rows[fits]
    return names[score_nodes(snapshot, rows, pod.policies.node, values=packing.values(snapshot, pod, rows))[0][0]]


def test_half_a_card_goes_beside_the_other_half() -> None:
    cache = cluster_of([card_node("a", 2), card_node("b", 2)])
    _book(cache, share_pod(50), "first", cache.snapshot().rows["b"])
    assert _best(cache, share_pod(50)) == "b"


def test_a_node_without_free_cpu_is_not_worth_keeping() -> None:
    """Its cards serve no pod that needs CPU, so a pod that needs none should take them."""
    cache = cluster_of([card_node("a", 2, cpu=16_000), card_node("b", 2, cpu=16_000)])
    cache.put_cardless_pod("daemon", "b", 16_000)
    assert _best(cache, share_pod(100, cpu=0)) == "b"


def test_the_last_place_for_a_large_pod_is_kept() -> None:
    """A pod that fits in many places does not go to the one node where the large pods of the workload fit."""
    large = share_pod(100, cards=4, cpu=30_000)
    cache = cluster_of([card_node("a", 4, cpu=32_000), *(card_node(f"b{n}", 4, cpu=16_000) for n in range(4))])
    snapshot, packing = cache.snapshot(), Packing()
    packing.use(workload_of(cache, [*SOME_PODS, *[large] * 4]))
    names = sorted(snapshot.rows)
    values = packing.values(snapshot, share_pod(100, cpu=4000), snapshot.rows_of(names))
    assert values is not None
    assert names[int(values.argmax())] != "a"


def test_cards_that_others_need_are_dear() -> None:
    """A pod that may use any card avoids those that some pods insist on."""
    cache = cluster_of([card_node("p", 2, model="P100"), card_node("t", 2, model="T4")])
    packing = Packing()
    packing.use(workload_of(cache, [*[share_pod(100, types="P100")] * 5, *[share_pod(100)] * 5]))
    snapshot = cache.snapshot()
    values = packing.values(snapshot, share_pod(100), snapshot.rows_of(["p", "t"]))
    assert values is not None
    assert values[1] > values[0]


def test_a_node_of_an_unknown_card_class_has_a_value() -> None:
    cache = cluster_of([card_node("a")])
    workload = workload_of(cache, SOME_PODS)
    cache.add_node(card_node("b", 16, model="new", cpu=500_000))
    snapshot, packing = cache.snapshot(), Packing()
    packing.use(workload)
    assert packing.values(snapshot, share_pod(30), snapshot.rows_of(["a", "b"])) is not None


def test_an_empty_cluster_has_values() -> None:
    cache = cluster_of([])
    packing = Packing()
    packing.use(workload_of(cache, SOME_PODS))
    cache.add_node(card_node("a"))
    snapshot = cache.snapshot()
    values = packing.values(snapshot, share_pod(30), snapshot.rows_of(["a"]))
    assert values is not None
    assert values.tolist() == [0]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounting.packing.scorer._REMEMBERED_BYTES", 1)
    cache = _cluster()
    snapshot, scorer = cache.snapshot(), Scorer(_workload(cache), NodePolicy.FRAGMENTATION)
    rows = snapshot.rows_of(sorted(snapshot.rows))
    values = {percent: scorer.values(snapshot, share_pod(percent), rows).tolist() for percent in range(1, 40)}
    assert len(scorer._shapes) == 8
    for percent in range(1, 40):
        assert scorer.values(snapshot, share_pod(percent), rows).tolist() == values[percent]
