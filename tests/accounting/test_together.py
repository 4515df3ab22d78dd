"""Ties between cards of a container that wants several: one NUMA node, then one group of links.

test_fit_against_reference.py shows that the choice is the reference's on random nodes.
"""

from itertools import pairwise

import pytest

from accounting.answers import allocate, filter_nodes
from accounting.cards import greedy
from accounting.node import Device
from accounting.pod import Pod
from accounting.reference.fit import fit
from accounting.reference.state import node_state
from accounting.state.cache import Cache
from accounting.topology import Link, link_groups
from tests.builders import (
    app,
    init,
    make_allocation,
    make_cache,
    make_device,
    make_node,
    make_pod,
    make_policies,
    sidecar,
    uuids_on,
)

FULL, IDLE = 1000, 0


def allocated(cache: Cache, pod: Pod) -> list[str]:
    """Return the cards that a pod gets on n1."""
    snapshot = cache.snapshot()
    placement = allocate(snapshot, pod, snapshot.rows["n1"], uuids_on(cache, "n1"))
    assert placement is not None
    return sorted({row.uuid for own in placement.allocation for row in own})


def place(devices: list[Device], held: dict[str, int], policy: str, *, links: tuple[Link, ...] = ()) -> list[str]:
    """Return the cards that a pod of two gets where others hold this much memory."""
    holders = [
        make_pod(f"h-{uuid}", [app(mib)], node="n1", allocation=make_allocation([(uuid, mib, 0)]))
        for uuid, mib in held.items()
        if mib
    ]
    cache = make_cache([make_node("n1", devices, links=links)], holders)
    pod = make_pod("p", [app(10, count=2)], policies=make_policies(policy))
    return allocated(cache, pod)


def cards(*numa: int) -> list[Device]:
    return [make_device(f"GPU-{at}", index=at, numa=number) for at, number in enumerate(numa)]


@pytest.mark.parametrize("policy", ["spread", "binpack", "mutex"])
@pytest.mark.parametrize("first, second", [(0, 1), (1, 0)], ids=["as told", "the NUMA numbers exchanged"])
def test_two_idle_cards_of_one_numa_node_go_before_one_of_each(policy: str, first: int, second: int) -> None:
    four = cards(first, first, second, second)
    assert place(four, {"GPU-2": IDLE, "GPU-3": FULL}, policy) == ["GPU-0", "GPU-1"]


def test_the_policy_goes_before_closeness() -> None:
    four = cards(0, 0, 1, 1)
    # The emptiest cards are one of each node.
    assert place(four, {"GPU-0": 10, "GPU-2": 10}, "spread") == ["GPU-1", "GPU-3"]


def test_between_two_nodes_that_would_do_the_higher_one_is_taken_as_before() -> None:
    assert place(cards(0, 0, 1, 1), {}, "spread") == ["GPU-2", "GPU-3"]


@pytest.mark.parametrize("joined", [("GPU-0", "GPU-2"), ("GPU-1", "GPU-3"), ("GPU-0", "GPU-1")])
def test_of_one_numa_node_cards_that_nvlinks_join_come_first(joined: tuple[str, str]) -> None:
    links = ((*joined, 200),)
    assert place(cards(0, 0, 0, 0), {}, "spread", links=links) == list(joined)


def test_one_numa_node_goes_before_one_group_of_links() -> None:
    links = (("GPU-1", "GPU-2", 200),)
    assert place(cards(0, 0, 1, 1), {}, "spread", links=links) == ["GPU-2", "GPU-3"]
    # Where no NUMA node has two, the group decides.
    assert place(cards(0, 1, 2), {}, "spread", links=(("GPU-0", "GPU-1", 200),)) == ["GPU-0", "GPU-1"]


def test_where_the_best_cards_leave_no_room_cards_are_preferred_one_by_one() -> None:
    """The best card goes first, though another pair has the same loads without it; the reference had it otherwise.

    By closeness the sidecar would take GPU-1 and GPU-3, and leave no unused card for the app.
    """
    devices = [
        make_device("GPU-0", index=0, slots=8, memory=8, cores=50, numa=0),
        make_device("GPU-1", index=1, memory=16, numa=1),
        make_device("GPU-2", index=2, memory=32, cores=200, numa=1),
        make_device("GPU-3", index=3, memory=8, numa=1),
    ]
    held = (("a", 10, 0), ("b", 8, 30))
    holders = [
        make_pod(uid, [app(mib)], node="n1", allocation=make_allocation([("GPU-2", mib, cores)]))
        for uid, mib, cores in held
    ]
    node = make_node("n1", devices)
    parts = [sidecar(8, count=2), init(percentage=100, cores=20), app(5, cores=100), app(2, count=2, cores=10)]
    pod, cache = make_pod("p", parts, policies=make_policies("spread")), make_cache([node], holders)
    snapshot = cache.snapshot()
    placement = allocate(snapshot, pod, snapshot.rows["n1"], uuids_on(cache, "n1"))
    assert placement is not None
    assert {row.uuid for row in placement.allocation[0]} == {"GPU-2", "GPU-3"}
    assert placement.allocation == fit(node_state(node, holders), pod)


def test_filter_does_not_look_at_closeness(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("filter wants no cards")

    monkeypatch.setattr(greedy, "kept_together", refused)
    cache = make_cache([make_node("n1", cards(0, 0, 1, 1))])
    pod = make_pod("p", [app(10, count=2), app(10, count=2)])
    snapshot = cache.snapshot()
    assert filter_nodes(snapshot, pod, snapshot.rows_of(["n1"])).feasible[0]
    with pytest.raises(AssertionError, match="filter wants no cards"):
        allocated(cache, pod)


def test_groups_are_what_nvlinks_join() -> None:
    def scores(number: int, *pairs: tuple[int, int, int]) -> list[list[int]]:
        matrix = [[0] * number for _ in range(number)]
        for a, b, score in pairs:
            matrix[a][b] = matrix[b][a] = score
        return matrix

    assert link_groups(scores(4, (0, 2, 100), (1, 3, 60))) == (0, 1, 0, 3)
    assert link_groups(scores(5, *((a, b, 300) for a, b in pairwise((4, 2, 3))))) == (0, 1, 2, 2, 2)
    assert link_groups(()) == ()


def test_an_init_keeps_to_the_smallest_footprint_first() -> None:
    """It takes the app's card, and beside it the card of the same node."""
    cache = make_cache([make_node("n1", cards(0, 0, 1, 1))], [])
    pod = make_pod("p", [init(10, count=2), app(10)], policies=make_policies("spread"))
    assert allocated(cache, pod) == ["GPU-2", "GPU-3"]
