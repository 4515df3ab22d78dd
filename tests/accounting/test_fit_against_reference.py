"""filter, allocate, the rejections and the scores agree with the slow reference on random clusters.

It exists because the fast code decides thousands of nodes at once in packed integers. It must not know how. Invariant:
a question has one answer, however it is asked, and asking changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.answers.allocate import Placement
from accounting.answers.filter import filter_nodes
from accounting.answers.rejection import FITS, card_ranks
from accounting.answers.verdicts import Verdict
from accounting.cards import greedy
from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards
from accounting.cards.fit import fit_pod
from accounting.cards.score import MAX_SCORE, score_nodes
from accounting.cards.selection_mask import accepted
from accounting.demand import Demand
from accounting.node import Node
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.policy import NodePolicy, Weights
from accounting.reference import fit as reference
from accounting.reference import state as reference_state
from accounting.state import weighted_load
from accounting.state.cache import Cache
from accounting.status import CODES, Code
from tests.asking import placement
from tests.builders import (
    app,
    init,
    make_cache,
    make_device,
    make_node,
    make_pod,
    make_policies,
    sidecar,
    snapshot_bytes,
)
from tests.strategies import clusters, crowds, pending_pods, weights

UNKNOWN = "nowhere"


def judged(cache: Cache, pod: Pod, names: Sequence[str]) -> dict[str, tuple[Code | None, bool]]:
    """Return filter's verdict in the reference's form."""
    snapshot = cache.snapshot()
    verdict = filter_nodes(snapshot, pod, snapshot.rows_of(names), cache.own_row(pod.uid))
    return {
        name: (None if verdict.feasible[i] else CODES[int(verdict.codes[i])], bool(verdict.unresolvable[i]))
        for i, name in enumerate(names)
    }


def placed(cache: Cache, pod: Pod, node: str) -> Placement | None:
    """Return the cards that allocate would give on that node, without the pod's own booking."""
    alone = cache.node_without(pod.uid) if pod.uid in cache.pods and cache.pods[pod.uid].node == node else cache
    return placement(alone, pod, node)


def expected(nodes: Sequence[Node], pods: Sequence[Pod], pod: Pod) -> dict[str, tuple[Code | None, bool]]:
    """Return the reference's verdict, with a name that does not exist."""
    unknown = reference.filter_nodes([], [], pod) | {UNKNOWN: (Code.NODE_UNKNOWN, True)}
    if pod.invalid:
        unknown[UNKNOWN] = Code.INVALID_REQUEST, True
    elif not pod.asks:
        unknown[UNKNOWN] = None, False
    return reference.filter_nodes(nodes, pods, pod) | unknown


@settings(max_examples=150)
@given(clusters(), crowds(), pending_pods(), st.lists(st.integers(0, 5), max_size=5))
@example([make_node(devices=[make_device(memory=10)])], [], make_pod("p", [sidecar(6), init(6)]), [0])
@example(
    [make_node(devices=[make_device("GPU-0", memory=10), make_device("GPU-1", index=1, memory=10)])],
    [],
    make_pod("p", [init(10), app(5)], policies=make_policies("binpack")),
    [0],
)
@example(
    # With links the sidecars would fill two cards of one NUMA node; filter puts them on three, so its reason differs.
    [
        make_node(
            devices=[
                *(make_device(f"GPU-{i}", slots=2, memory=10) for i in range(2)),
                make_device("GPU-3", slots=2, memory=10, numa=1),
            ]
        )
    ],
    [],
    make_pod(
        "p",
        [sidecar(1, count=2), sidecar(1, count=2), init(0, count=2, cores=100)],
        policies=make_policies(card="topology-aware"),
    ),
    [0],
)
@example(
    [make_node(devices=3)],
    [],
    make_pod("p", [sidecar(5, cores=100), init(5, cores=100), init(5, cores=100), app(5)]),
    [0],
)
def test_however_it_is_asked_the_answer_is_the_references(
    nodes: list[Node], pods: list[Pod], pod: Pod, some: list[int]
) -> None:
    filter_agrees(nodes, pods, pod)
    allocate_agrees(nodes, pods, pod)
    what_allocate_gives_can_be_booked(nodes, pods, pod)
    a_card_without_rejection_is_a_card_that_fits(nodes, pods, pod)
    asking_changes_nothing(nodes, pods, pod)
    a_part_of_the_rows_is_judged_as_all_of_them(nodes, pods, pod, some)


def filter_agrees(nodes: list[Node], pods: list[Pod], pod: Pod) -> None:
    """Filter says of every node what the reference says, and accepts exactly where allocate finds cards."""
    want, cache = expected(nodes, pods, pod), make_cache(nodes, pods)
    assert judged(cache, pod, list(want)) == want
    found = {name: placed(cache, pod, name) is not None for name in cache.node_names()}
    assert found == {name: want[name][0] is None for name in found}


def allocate_agrees(nodes: list[Node], pods: list[Pod], pod: Pod) -> None:
    """The cards are the reference's, and so is what the pod would hold on them."""
    cache = make_cache(nodes, pods)
    for name, state in reference_state.cluster_state(nodes, pods).items():
        rows, found = reference.fit(state, pod), placed(cache, pod, name)
        assert (None if found is None else found.allocation) == (None if isinstance(rows, Code) else rows)
        if found is not None:
            peaks = reference_state.card_holdings(pod._replace(allocation=found.allocation))
            assert {use.uuid: use[1:4] for use in found.peak} == {u: of.peak for u, of in peaks.items()}


def what_allocate_gives_can_be_booked(nodes: list[Node], pods: list[Pod], pod: Pod) -> None:
    """No booking over-commits a card."""
    for node in nodes:
        cache = make_cache(nodes, pods)
        before = cache.snapshot().overcommitted.sum()
        found = placed(cache, pod, node.name)
        if found is not None:
            booked = pod._replace(node=node.name, allocation=found.allocation)
            cache.assume_pod(record_pod(booked))
            assert cache.snapshot().overcommitted.sum() == before
            state = reference_state.cluster_state(nodes, [*pods, booked])[node.name]
            assert not any(state.cards[row.uuid].overcommitted for rows in found.allocation for row in rows)


def a_card_without_rejection_is_a_card_that_fits(nodes: list[Node], pods: list[Pod], pod: Pod) -> None:
    """The reasons that explain gives are those that decide which cards are taken."""
    snapshot = make_cache(nodes, pods).snapshot()
    mask, mutex = accepted(snapshot, pod.selection, snapshot), pod.policies.card.mutex
    fit = fit_pod(snapshot, Demand.of(pod), snapshot, choose_cards=True)
    for container in pod.containers:
        for assignment in (Assignment.of(snapshot), *fit.assignments.values()):
            if container.request is not None:
                ranks = card_ranks(snapshot, assignment, container.request, Demand.of(pod), snapshot)
                cards = fitting_cards(snapshot, assignment, container.request, mask, mutex=mutex)
                np.testing.assert_array_equal(ranks == FITS, cards)


def asking_changes_nothing(nodes: list[Node], pods: list[Pod], pod: Pod) -> None:
    """A question leaves every byte as it was, and gets the same answer again."""
    cache = make_cache(nodes, pods)
    snapshot, generation, names = cache.snapshot(), cache.generation, cache.node_names()
    before = snapshot_bytes(snapshot)
    first = judged(cache, pod, names), [placed(cache, pod, name) for name in names]
    assert (judged(cache, pod, names), [placed(cache, pod, name) for name in names]) == first
    assert (cache.generation, snapshot_bytes(snapshot), snapshot_bytes(cache.snapshot())) == (
        generation,
        before,
        before,
    )


@given(clusters(), crowds(), pending_pods(), st.data())
def test_an_own_booking_never_counts(nodes: list[Node], pods: list[Pod], pod: Pod, data: st.DataObject) -> None:
    booked = data.draw(st.sampled_from(pods)) if pods else None
    if booked is not None:
        pod = pod._replace(uid=booked.uid)
    want = expected(nodes, pods, pod)
    cache = make_cache(nodes, pods)
    assert judged(cache, pod, list(want)) == want
    others = [other for other in pods if other.uid != pod.uid]
    for name, state in reference_state.cluster_state(nodes, others).items():
        rows, found = reference.fit(state, pod), placed(cache, pod, name)
        assert (None if found is None else found.allocation) == (None if isinstance(rows, Code) else rows)


def a_part_of_the_rows_is_judged_as_all_of_them(nodes: list[Node], pods: list[Pod], pod: Pod, some: list[int]) -> None:
    """Rows may be asked about in any order, also twice."""
    snapshot = make_cache(nodes, pods).snapshot()
    everywhere = verdict_of(filter_nodes(snapshot, pod, np.arange(snapshot.columns)))
    rows = np.array([each % snapshot.columns for each in some], dtype=np.intp)
    assert verdict_of(filter_nodes(snapshot, pod, rows)) == [everywhere[row] for row in rows]


def verdict_of(verdict: Verdict) -> list[tuple[bool, int, bool]]:
    """Return one comparable entry per row; the code means nothing where the pod fits."""
    columns = verdict.feasible.tolist(), verdict.codes.tolist(), verdict.unresolvable.tolist()
    return [(feasible, 0 if feasible else code, hopeless) for feasible, code, hopeless in zip(*columns, strict=True)]


@given(clusters(), crowds(), weights(), st.sampled_from((NodePolicy.BINPACK, NodePolicy.SPREAD)), st.data())
def test_loads_are_the_references_and_scores_follow_them(
    nodes: list[Node], pods: list[Pod], of_load: Weights, policy: NodePolicy, data: st.DataObject
) -> None:
    # More nodes than scores: the same nodes under other names.
    nodes = [*nodes, *(replace(node, name=f"{node.name}-{i}") for i in range(5) for node in nodes)]
    state, cache = reference_state.cluster_state(nodes, pods), make_cache(nodes, pods)
    snapshot = cache.snapshot()
    loads = snapshot.load(of_load)
    for name, of_node in state.items():
        for uuid, position in cache.positions(name).items():
            card = of_node.cards[uuid]
            want = reference.load_of(card.requested, card.capacity, of_load)
            assert loads[position, snapshot.rows[name]] == want
    names = data.draw(st.lists(st.sampled_from(sorted(state)), unique=True, max_size=16))
    order = reference.node_order(state, names, policy)[:MAX_SCORE]
    scores = score_nodes(snapshot, snapshot.rows_of(names), policy)
    assert [(names[place], score) for place, score in scores] == [(n, MAX_SCORE - i) for i, n in enumerate(order)]


def test_the_load_of_a_card_is_computed_once_for_each_container_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again for each container after it: a pod with many would delay all others."""
    computed = 0

    def counted(weights: Weights, used: tuple[Any, ...], capacity: tuple[Any, ...]) -> Any:  # noqa: ANN401 - an array
        nonlocal computed
        computed += len(capacity[0])
        return weighted_load(weights, used, capacity)

    monkeypatch.setattr(greedy, "weighted_load", counted)
    containers, columns = 30, 5
    cache = make_cache([make_node(f"n{at}", [make_device(f"GPU-{at}", slots=50)]) for at in range(columns)])
    snapshot = cache.snapshot()
    verdict = filter_nodes(snapshot, make_pod("p", [app(1)] * containers), snapshot.rows_of(sorted(snapshot.rows)))
    assert verdict.feasible.all()
    assert 0 < computed <= 2 * containers * columns
