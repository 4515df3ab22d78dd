"""Links between cards and NUMA nodes: how they are read, and which cards containers get.

It exists because the best set of cards is not the set of the best cards. The slow reference covers the rest in
test_fit_against_reference.py. Invariant: links change which cards are taken, never whether a pod fits.
"""

from typing import Any

import numpy as np
import pytest

from accounting.answers.filter import filter_nodes
from accounting.cards.linked import choose_linked
from accounting.node import Node
from accounting.pod import Pod
from accounting.reference import fit as reference
from accounting.reference import state as reference_state
from accounting.selection import Selection
from accounting.status import Code, ProblemCode
from accounting.topology import Link, is_single_numa, read_links
from tests.asking import placement, refusal
from tests.builders import (
    app,
    init,
    make_cache,
    make_device,
    make_node,
    make_pod,
    make_policies,
)

AWARE = make_policies("topology-aware")
BOUND = Selection(numa_bind=True)


def eight(*used: int, links: dict[tuple[int, int], int] | None = None, single_numa: bool = False) -> Node:
    """A node with two sockets of four cards each; the used cards have no room for anything."""
    devices = [make_device(f"GPU-{i}", index=i, numa=i // 4, memory=1 if i in used else 1000) for i in range(8)]
    scores = tuple((f"GPU-{a}", f"GPU-{b}", score) for (a, b), score in sorted((links or {}).items()))
    return make_node(devices=devices, single_numa=single_numa, links=scores)


def cards(node: Node, pod: Pod) -> list[list[int]] | None:
    cache = make_cache([node])
    found = placement(cache, pod)
    assert (found is None) == (refusal(cache, pod) is not None)
    if found is None:
        return None
    return [[int(row.uuid.removeprefix("GPU-")) for row in rows] for rows in found.allocation]


# -- NUMA --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["spread", "binpack", "numa", "mutex", "topology-aware", "binpack,numa"])
def test_a_node_with_a_single_numa_policy_takes_no_cards_of_two(policy: str) -> None:
    pod = make_pod("p", [app(10, count=4)], policies=make_policies(policy))
    assert refusal(make_cache([eight(0, 5)]), pod) is None
    assert refusal(make_cache([eight(0, 5, single_numa=True)]), pod) is Code.NUMA_MISMATCH
    assert cards(eight(0, 1, single_numa=True), pod) == [[7, 6, 5, 4]]
    assert sorted(cards(eight(6, 7, single_numa=True), pod)[0]) == [0, 1, 2, 3]  # type: ignore[index]


def test_a_single_numa_policy_is_as_if_the_pod_had_asked() -> None:
    for containers in ([app(10, count=3)], [app(600), app(600, count=3)], [init(10, count=2), app(10, count=3)]):
        free, bound = make_pod("p", containers), make_pod("p", containers, selection=BOUND)
        assert cards(eight(3, 7, single_numa=True), free) == cards(eight(3, 7), bound) is not None


def test_nodes_with_and_without_the_policy_are_judged_side_by_side() -> None:
    nodes = [eight(0, 5), eight(0, 5, single_numa=True), eight(0, single_numa=True)]
    named = [make_node(f"n{i}", each.devices, single_numa=each.single_numa) for i, each in enumerate(nodes)]
    snapshot = make_cache(named).snapshot()
    for containers in ([app(10, count=4)], [app(10), app(10, count=4)], [app(600), app(600, count=4)]):
        verdict = filter_nodes(snapshot, make_pod("p", containers), np.arange(3))
        alone = [refusal(make_cache([node]), make_pod("p", containers)) is None for node in nodes]
        assert verdict.feasible.tolist() == alone


def test_one_card_is_always_of_one_numa_node() -> None:
    assert cards(eight(4, 5, 6, 7, single_numa=True), make_pod("p", [app(10), app(10)])) is not None


@pytest.mark.parametrize(
    "labels, annotations, single",
    [
        ({}, {}, False),
        ({"gpu-extender.io/topology-manager-policy": "single-numa-node"}, {}, True),
        ({}, {"gpu-extender.io/topology-manager-policy": "single-numa-node"}, True),
        ({"gpu-extender.io/topology-manager-policy": "best-effort"}, {}, False),
        ({"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}, {}, True),
        ({"node.koordinator.sh/numa-topology-policy": "Restricted"}, {}, False),
    ],
)
def test_what_a_node_says_of_its_kubelet(labels: dict[str, str], annotations: dict[str, str], *, single: bool) -> None:
    assert is_single_numa(labels, annotations) == single


# -- links -------------------------------------------------------------------------------------------------------------


def test_several_cards_are_the_set_with_the_best_links() -> None:
    links = {(0, 3): 200, (1, 2): 100, (2, 6): 150, (6, 7): 20}
    assert cards(eight(links=links), make_pod("p", [app(10, count=2)], policies=AWARE)) == [[3, 0]]
    # 2-6, 1-2 and 6-7 share cards; 0-3 stands alone.
    assert cards(eight(links=links), make_pod("p", [app(10, count=3)], policies=AWARE)) == [[6, 2, 1]]
    assert cards(eight(0, links=links), make_pod("p", [app(10, count=2)], policies=AWARE)) == [[6, 2]]


def test_one_card_is_the_one_whose_loss_hurts_least() -> None:
    links = {(a, b): 100 for a in range(8) for b in range(a + 1, 8) if 5 not in (a, b)} | {(4, 5): 1}
    assert cards(eight(links=links), make_pod("p", [app(10)], policies=AWARE)) == [[5]]
    # Links to cards that do not fit do not count: without those, each of these is equally good.
    assert cards(eight(0, 1, 2, 3, 4, 5, links=links), make_pod("p", [app(10)], policies=AWARE)) == [[7]]


def test_without_scores_few_numa_nodes_are_preferred() -> None:
    order, numa, none = [3, 0, 1, 2], np.array([0, 1, 0, 1]), np.zeros(4, np.int64)
    # By the policy alone it would be 3 and 0.
    assert choose_linked(order, 2, np.zeros((4, 4), np.int64), numa, none, one_numa=False) == [3, 1]


def test_between_equal_sets_the_first_card_of_the_policy_decides() -> None:
    """A card in use goes last, but the set that has the first card goes first; the reference says so too."""
    devices = [make_device(f"GPU-{i}", index=i, numa=int(i > 3), memory=1000) for i in range(6)]
    node, pod = make_node(devices=devices), make_pod("p", [app(10), app(10, count=2)], policies=AWARE)
    assert cards(node, pod) == [[5], [4, 5]]
    (state,) = reference_state.cluster_state([node], []).values()
    found = reference.fit(state, pod)
    assert not isinstance(found, Code)
    assert [[row.uuid for row in rows] for rows in found] == [["GPU-5"], ["GPU-4", "GPU-5"]]


def test_links_are_ignored_where_the_search_chooses() -> None:
    """By links both sidecars fill the cards of one NUMA node, and the init finds one card; the reference agrees."""
    devices = [make_device(f"GPU-{i}", index=i, numa=i // 2, slots=2, memory=10) for i in range(3)]
    containers = [sidecar(1, count=2), sidecar(1, count=2), init(1, count=2)]
    node, pod = make_node(devices=devices), make_pod("p", containers, policies=make_policies("topology-aware"))
    assert cards(node, pod) == [[1, 2], [0, 2], [0, 1]]
    (state,) = reference_state.cluster_state([node], []).values()
    found = reference.fit(state, pod)
    assert not isinstance(found, Code)
    assert [sorted(row.uuid for row in rows) for rows in found] == [
        ["GPU-1", "GPU-2"],
        ["GPU-0", "GPU-2"],
        ["GPU-0", "GPU-1"],
    ]


def test_all_numa_nodes_are_looked_at_when_cards_must_be_of_one() -> None:
    links = {(0, 1): 200, (4, 5): 100, (3, 4): 300}
    pod = make_pod("p", [app(10, count=2)], policies=AWARE, selection=BOUND)
    assert cards(eight(links=links), pod) == [[1, 0]]
    assert cards(eight(0, links=links), pod) == [[5, 4]]
    # HAMi's case: one card on NUMA node 0, two on NUMA node 1.
    three = make_node(devices=[make_device(f"GPU-{i}", index=i, numa=min(i, 1)) for i in range(3)])
    assert cards(three, pod) == [[2, 1]]


def test_an_init_grows_the_footprint_least_before_links_count() -> None:
    links = {(6, 7): 500}
    pod = make_pod("p", [init(300, count=2), app(200, count=2)], policies=AWARE)
    assert cards(eight(6, links=links), pod) == [[7, 5], [7, 5]]


def test_links_never_decide_whether_a_pod_fits() -> None:
    links = {(0, 1): 500, (1, 2): 500}
    # The best pair takes the only large cards.
    devices = [make_device(f"GPU-{i}", index=i, memory=1000 if i < 2 else 300) for i in range(4)]
    scores: tuple[Link, ...] = tuple((f"GPU-{a}", f"GPU-{b}", score) for (a, b), score in links.items())
    node = make_node(devices=devices, links=scores)
    pod = make_pod("p", [app(300, count=2), app(800, count=2)], policies=AWARE)
    assert cards(node, pod) == [[3, 2], [1, 0]]


def test_very_many_cards_are_not_compared_set_by_set() -> None:
    size = 32
    links = np.zeros((size, size), np.int64)
    links[::2, ::2] = 10
    np.fill_diagonal(links, 0)
    none = np.zeros(size, np.int64)
    chosen = choose_linked(list(range(size)), 16, links, none.astype(np.intp), none, one_numa=False)
    assert chosen == list(range(0, size, 2))


# -- the annotation ----------------------------------------------------------------------------------------------------


def test_scores_of_pairs_are_read() -> None:
    value = [{"uuid": "B", "score": {"A": 30, "C": 5, "gone": 1}}, {"uuid": "A", "score": {"B": 20}}, {"uuid": "C"}]
    # The lower of two directions counts: a pair whose directions disagree has no certain link.
    assert read_links("n", value, "ABC") == ((("A", "B", 20), ("B", "C", 5)), ())


@pytest.mark.parametrize(
    "value, why",
    [
        ({}, "must be a list"),
        ([1], "entry 0: must be an object"),
        ([{"score": {}}], "must have a uuid"),
        ([{"uuid": "A", "score": []}, 7], "entry 1"),
        ([{"uuid": "A", "score": {"B": "x"}}], "'x'"),
        ([{"uuid": "A", "score": {"B": -1}}], "-1"),
        ([{"uuid": "A", "score": {"B": True}}], "True"),
        ([{"uuid": "A", "score": {"B": 2**31}}], str(2**31)),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_the_rest_stands(value: Any, why: str) -> None:  # noqa: ANN401 - any JSON
    good = [{"uuid": "A", "score": {"B": 20}}]
    links, problems = read_links("n", [*value, *good] if isinstance(value, list) else value, "AB")
    assert links == ((("A", "B", 20),) if isinstance(value, list) else ())
    assert all(problem.code is ProblemCode.UNREADABLE_REGISTER and problem.object == "node n" for problem in problems)
    assert any(why in problem.message for problem in problems)
