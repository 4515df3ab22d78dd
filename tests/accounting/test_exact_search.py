"""A node that has a placement for a pod is never refused, and what filter says bind does.

It exists because the greedy choice can miss a placement when a pod has several containers that ask for cards. Random
cases are in test_fit_against_reference.py: the reference tries every choice. Invariant: only a search that ran out of
steps may leave a node undecided, and it says so.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.answers.filter import filter_nodes
from accounting.cards import exact_fit
from accounting.node import Node
from accounting.pod import Pod
from accounting.selection import Selection
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
    node_of,
    sidecar,
)
from tests.strategies import clusters, crowds, pending_pods


def refusals(nodes: list[Node], pods: list[Pod], pod: Pod) -> dict[str, Code | None]:
    """Return why each node refuses the pod; None if it takes it, and then bind finds cards too."""
    cache = make_cache(nodes, pods)
    snapshot = cache.snapshot()
    names = list(snapshot.rows)
    verdict = filter_nodes(snapshot, pod, snapshot.rows_of(names))
    found = {}
    for name, fits, code in zip(names, verdict.feasible.tolist(), verdict.codes.tolist(), strict=True):
        assert (placement(cache, pod, name) is not None) == fits, name
        found[name] = None if fits else CODES[code]
    return found


def rows_of(nodes: list[Node], pod: Pod) -> list[list[str]]:
    found = placement(make_cache(nodes), pod, nodes[0].name)
    assert found is not None
    return [[row.uuid for row in rows] for rows in found.allocation]


def test_a_sidecar_that_would_take_the_place_of_an_app_takes_another_card() -> None:
    # Spread puts the sidecar on the empty card; then the app finds no room (HAMi's own example).
    pod = make_pod("p", [sidecar(400), app(800)])
    node = make_node(devices=[make_device("GPU-0", memory=500), make_device("GPU-1", index=1, memory=1000)])
    assert refusals([node], [], pod) == {"n1": None}
    assert rows_of([node], pod) == [["GPU-0"], ["GPU-1"]]


def test_two_halves_share_cards_where_a_third_container_wants_whole_ones() -> None:
    pod = make_pod("p", [app(percentage=50, count=2), app(percentage=50, count=2), app(percentage=100, count=2)])
    node = make_node(devices=4)
    assert refusals([node], [], pod) == {"n1": None}
    assert rows_of([node], pod) == [["GPU-3", "GPU-2"], ["GPU-3", "GPU-2"], ["GPU-1", "GPU-0"]]


def test_the_choice_for_a_sidecar_leaves_room_for_the_init_after_it() -> None:
    # The init does not run beside the app, but beside the sidecar.
    pod = make_pod("p", [sidecar(300), init(900), app(900)])
    node = node_of(1000, 300)
    assert refusals([node], [], pod) == {"n1": None}
    assert rows_of([node], pod) == [["GPU-1"], ["GPU-0"], ["GPU-0"]]


def test_an_init_before_the_sidecar_does_not_bind_it() -> None:
    pod = make_pod("p", [init(1000), sidecar(300), app(700)])
    assert refusals([node_of(1000)], [], pod) == {"n1": None}


def test_an_exclusive_container_finds_its_card_whatever_comes_first() -> None:
    pod = make_pod("p", [app(100), app(100), app(100, cores=100)], policies=make_policies("spread"))
    node = node_of(1000, 1000)
    assert refusals([node], [], pod) == {"n1": None}
    assert rows_of([node], pod) == [["GPU-1"], ["GPU-1"], ["GPU-0"]]


def test_a_row_without_cores_counts_only_the_cores_before_it() -> None:
    first, last = [app(10), app(10, cores=100 - 40), app(10, cores=40)], [app(10, cores=60), app(10, cores=40), app(10)]
    assert refusals([node_of(1000)], [], make_pod("p", first)) == {"n1": None}
    assert refusals([node_of(1000)], [], make_pod("p", last)) == {"n1": Code.INSUFFICIENT_CORES}


def test_mutex_takes_a_card_per_container() -> None:
    pod = make_pod("p", [app(100), app(300), app(900)], policies=make_policies("mutex"))
    node = node_of(100, 300, 1000)
    assert refusals([node], [], pod) == {"n1": None}
    assert rows_of([node], pod) == [["GPU-0"], ["GPU-1"], ["GPU-2"]]


def test_slots_of_all_containers_count() -> None:
    node = make_node(devices=[make_device("GPU-0", slots=1), make_device("GPU-1", index=1, slots=2, memory=100)])
    pod = make_pod("p", [app(50), app(50), app(500)])
    assert refusals([node], [], pod) == {"n1": None}
    assert refusals([node], [], make_pod("p", [app(50), app(50), app(50), app(50)])) == {"n1": Code.INSUFFICIENT_SLOTS}


def test_percentages_are_of_each_card() -> None:
    # Half of the large card is more than the small one has.
    pod = make_pod("p", [app(percentage=50), app(900)])
    node = node_of(200, 1000)
    assert refusals([node], [], pod) == {"n1": None}
    assert rows_of([node], pod) == [["GPU-0"], ["GPU-1"]]


def test_numa_bind_holds_in_every_arrangement() -> None:
    bound = Selection(numa_bind=True)
    pod = make_pod("p", [app(500), app(600, count=2), app(600, count=2)], selection=bound)
    node = node_of(1000, 1000, 1000, 1000, 500, 100, numa=1)
    assert refusals([node], [], pod) == {"n1": None}
    # Without the bind 1000, 1000 and 1000, 1000 would do; two of these are on one NUMA node, two on two others.
    apart = node_of(1000, 1000, 1000, 500, 500, 1000, numa=1)
    assert refusals([apart], [], pod) == {"n1": Code.INSUFFICIENT_MEMORY}
    assert refusals([apart], [], make_pod("p", pod.containers)) == {"n1": None}


def test_a_single_container_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_fit, "place_largest_first", None)
    monkeypatch.setattr(exact_fit, "fitting_cards", None)
    for containers in ([app(2000)], [app(2000, count=2)], [init(2000), app(10)], [init(10), app(2000)]):
        assert refusals([node_of(1000, 1000)], [], make_pod("p", containers)) == {"n1": Code.INSUFFICIENT_MEMORY}


def test_out_of_steps_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # 7 + 3 + 2 and 4 + 4 + 4; taking the large ones first does not find it.
    pod = make_pod("p", [app(size) for size in (4, 4, 4, 7, 3, 2)])
    assert refusals([node_of(12, 12)], [], pod) == {"n1": None}
    monkeypatch.setattr(exact_fit, "STEPS", 0)
    assert refusals([node_of(12, 12)], [], pod) == {"n1": Code.SEARCH_LIMIT}
    # It fits nowhere: the necessary test says so without a step.
    pod = make_pod("p", [app(size) for size in (4, 4, 4, 7, 3, 3)])
    assert refusals([node_of(12, 12)], [], pod) == {"n1": Code.INSUFFICIENT_MEMORY}


@given(clusters(), crowds(), pending_pods(), st.sampled_from((0, 1, 5, 20, 100)))
def test_a_limit_only_leaves_nodes_undecided(nodes: list[Node], pods: list[Pod], pod: Pod, steps: int) -> None:
    exact = refusals(nodes, pods, pod)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_fit, "STEPS", steps)
        limited = refusals(nodes, pods, pod)
    for name, code in limited.items():
        assert code in (exact[name], Code.SEARCH_LIMIT)
