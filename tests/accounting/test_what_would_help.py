"""What a node lacks for a pod, and which pods take its room.

They exist because a person acts on these numbers. They must not repeat the arithmetic: filter is the judge. Invariant:
once the reported lack is added, or the reported pods are gone, filter passes the node.
"""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from accounting.answers import Near, filter_nodes, nearest, pods_in_the_way
from accounting.node import Node
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.state.cache import Cache
from tests.builders import app, make_allocation, make_cache, make_device, make_node, make_pod, make_policies
from tests.strategies import NODES, crowds, nodes, pending_pods


def refuses(cache: Cache, pod: Pod, node: str) -> bool:
    snapshot = cache.snapshot()
    return not filter_nodes(snapshot, pod, snapshot.rows_of([node]), cache.own_row(pod.uid)).feasible[0]


def without(cache: Cache, uids: set[str]) -> Cache:
    left = Cache(cache.vendors)
    for node in cache.nodes.values():
        left.add_node(node)
    for record in cache.pods.values():
        if record.uid not in uids:
            left.add_pod(record)
    return left


@given(st.tuples(*map(nodes, NODES)), crowds(), pending_pods(), st.sampled_from(NODES))
def test_without_the_pods_in_the_way_it_fits_and_with_one_of_them_back_it_does_not(
    at_first: tuple[Node, ...], crowd: list[Pod], pod: Pod, node: str
) -> None:
    cache = make_cache(at_first, crowd)
    assume(node in cache.nodes and refuses(cache, pod, node))
    found = pods_in_the_way(cache, pod, node)
    if found is None:
        on_node = {each.uid for each in cache.pods_on(node)}
        assert refuses(without(cache, on_node), pod, node)
        return
    uids = {each.uid for each in found}
    assert uids
    assert not refuses(without(cache, uids), pod, node)
    for uid in uids:
        assert refuses(without(cache, uids - {uid}), pod, node)


@given(
    free=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 90), st.integers(0, 3)), min_size=1, max_size=4),
    memory=st.integers(1, 1000),
    cores=st.integers(1, 99),
)
def test_a_card_that_is_larger_by_what_it_lacks_takes_the_pod(
    free: list[tuple[int, int, int]], memory: int, cores: int
) -> None:
    cards = [make_device(f"GPU-{place}", index=place) for place in range(len(free))]
    rows = [
        [(f"GPU-{place}", (1000 - each[0]) if row == 0 else 0, (99 - each[1]) if row == 0 else 1)]
        for place, each in enumerate(free)
        for row in range(4 - each[2])
    ]
    crowd = [
        make_pod(f"p{number}", [app(1)], node="n1", allocation=make_allocation(each))
        for number, each in enumerate(rows)
    ]
    cache = make_cache([make_node("n1", cards)], crowd)
    pod = make_pod("asking", [app(memory, cores=cores)])
    assume(refuses(cache, pod, "n1") and not any(cache.overcommitted_cards(each.uid) for each in crowd))
    snapshot = cache.snapshot()
    (near,) = nearest(snapshot, pod, snapshot.rows_of(["n1"]), 3)
    (lack,) = near.cards
    known = cache.nodes["n1"].devices[lack.position]
    larger = replace(
        known, slots=known.slots + lack.slots, memory=known.memory + lack.memory, cores=known.cores + lack.cores
    )
    cache.update_node(make_node("n1", [larger if each is known else each for each in cards]))
    assert not refuses(cache, pod, "n1")


def near_of(cache: Cache, pod: Pod, names: list[str], most: int = 3) -> list[Near]:
    snapshot = cache.snapshot()
    return nearest(snapshot, pod, snapshot.rows_of(names), most)


def test_the_nodes_that_lack_least_come_first_and_by_name_where_they_lack_the_same() -> None:
    names = ["d", "c", "b", "a"]
    cache = make_cache([make_node(name) for name in names])
    for name, memory in zip(names, (900, 600, 800, 800), strict=True):
        cache.add_pod(
            record_pod(make_pod(name, [app(1)], node=name, allocation=make_allocation([("GPU-0", memory, 0)])))
        )
    found = near_of(cache, make_pod("asking", [app(500)]), names)
    rows = cache.snapshot().rows
    assert [(near.row, near.cards[0].memory) for near in found] == [
        (rows["c"], 100),
        (rows["a"], 300),
        (rows["b"], 300),
    ]


def test_nodes_that_no_eviction_opens_are_left_out() -> None:
    small, sick = make_node("small", [make_device(memory=100)]), make_node("sick", [make_device(healthy=False)])
    cache = make_cache([small, sick])
    assert near_of(cache, make_pod("asking", [app(500)]), ["small", "sick"]) == []
    assert near_of(cache, make_pod("two", [app(50, count=2)]), ["small", "sick"]) == []


def test_a_card_that_must_be_empty_is_occupied() -> None:
    holder = make_pod("holder", [app(1)], node="n1", allocation=make_allocation([("GPU-0", 10, 0)]))
    cache = make_cache([make_node("n1")], [holder])
    for pod in (
        make_pod("whole", [app(10, cores=100)]),
        make_pod("mutex", [app(10)], policies=make_policies(card="mutex")),
    ):
        (near,) = near_of(cache, pod, ["n1"])
        assert near.cards[0].occupied
        assert [each.name for each in pods_in_the_way(cache, pod, "n1") or ()] == ["holder"]


def test_few_large_pods_are_named_before_many_small_ones() -> None:
    holders = [
        make_pod(name, [app(1)], node="n1", allocation=make_allocation([("GPU-0", memory, 0)]))
        for name, memory in (("a", 50), ("b", 50), ("large", 700))
    ]
    cache = make_cache([make_node("n1")], holders)
    found = pods_in_the_way(cache, make_pod("asking", [app(600)]), "n1")
    assert [each.name for each in found or ()] == ["large"]


def test_asking_changes_nothing() -> None:
    holder = make_pod("holder", [app(1)], node="n1", allocation=make_allocation([("GPU-0", 900, 0)]))
    cache = make_cache([make_node("n1")], [holder])
    before = cache.generation
    near_of(cache, make_pod("asking", [app(500)]), ["n1"])
    pods_in_the_way(cache, make_pod("asking", [app(500)]), "n1")
    assert cache.generation == before
    assert np.array_equal(cache.snapshot().requested.memory[:1, 0], [900])
