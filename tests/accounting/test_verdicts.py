"""Verdicts that are kept and updated instead of being computed anew.

They exist because what is remembered wrongly stays wrong. They must not look into what is kept. Invariant: whatever has
changed between two questions, the answer is that of a process that remembers nothing.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.answers import verdicts as module
from accounting.answers.filter import filter_nodes
from accounting.answers.verdicts import Judge, Verdict, Verdicts
from accounting.demand import Demand
from accounting.node import Node
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.state.cache import Cache
from accounting.state.snapshot import Snapshot, View
from accounting.state.tables import Rows
from tests.builders import app, make_allocation, make_devices, make_node, make_pod
from tests.strategies import NODES, bound_pods, nodes, pending_pods

UIDS = ("p0", "p1", "p2", "p3")
Event = tuple[str, Pod | None]
events = st.lists(
    st.sampled_from(UIDS).flatmap(lambda uid: st.tuples(st.just(uid), st.none() | bound_pods(uid))), max_size=4
)


def same(one: Verdict, other: Verdict) -> bool:
    """Whether two verdicts say the same; the code of a node that fits means nothing."""
    refused = ~one.feasible
    return (
        np.array_equal(one.feasible, other.feasible)
        and np.array_equal(one.codes[refused], other.codes[refused])
        and np.array_equal(one.unresolvable, other.unresolvable)
    )


def happen(cache: Cache, uid: str, pod: Pod | None) -> None:
    if pod is None:
        cache.remove_pod(uid)
    else:
        cache.update_pod(record_pod(pod))


@given(
    at_first=st.tuples(*map(nodes, NODES)),
    pods=st.lists(pending_pods(), min_size=1, max_size=3),
    rounds=st.lists(events, min_size=2, max_size=5),
    node=st.sampled_from(NODES).flatmap(nodes),
    changes_at=st.integers(0, 9),
)
def test_what_is_remembered_is_what_would_be_said_anew(
    at_first: tuple[Node, ...], pods: list[Pod], rounds: list[list[Event]], node: Node, changes_at: int
) -> None:
    cache, remembered = Cache(), Verdicts()
    for each in at_first:
        cache.add_node(each)
    for number, round_ in enumerate(rounds):
        if number == changes_at:
            cache.update_node(node)
        for uid, bound in round_:
            happen(cache, uid, bound)
        snapshot = cache.snapshot()
        rows = snapshot.rows_of([*NODES, "nowhere"] * 12)
        for pod in pods:
            again = filter_nodes(snapshot, pod, rows, verdicts=remembered)
            assert same(again, filter_nodes(snapshot, pod, rows))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how many rows each judging had."""
    found: Counter[int] = Counter()
    real = Verdicts.on_every_row

    def on_every_row(self: Verdicts, snapshot: Snapshot, demand: Demand, judge: Judge) -> Verdict:
        def counting(view: View, rows: Rows) -> Verdict:
            found[len(rows)] += 1
            return judge(view, rows)

        return real(self, snapshot, demand, counting)

    monkeypatch.setattr(Verdicts, "on_every_row", on_every_row)
    return found


def many(count: int = 40) -> tuple[Cache, list[str]]:
    cache, names = Cache(), [f"n{number}" for number in range(count)]
    for name in names:
        cache.add_node(make_node(name))
    return cache, names


def bound(name: str, node: str) -> Pod:
    return make_pod(name, [app(10)], node=node, allocation=make_allocation([("GPU-0", 10, 0)]))


def test_only_nodes_that_changed_are_judged_again(judged: Counter[int]) -> None:
    cache, names = many()
    remembered, columns = Verdicts(), cache.snapshot().columns
    for uid in range(6):
        if uid in (2, 4):
            cache.update_pod(record_pod(bound(f"holder{uid}", f"n{uid}")))
        snapshot = cache.snapshot()
        filter_nodes(snapshot, make_pod(f"p{uid}", [app(10)]), snapshot.rows_of(names), verdicts=remembered)
    # The answer to a demand's first question is not kept.
    assert judged == {columns: 2, 1: 2}


def test_another_demand_and_another_node_are_judged_everywhere(judged: Counter[int]) -> None:
    cache, names = many()
    remembered = Verdicts()

    def ask(pod: Pod) -> None:
        snapshot = cache.snapshot()
        filter_nodes(snapshot, pod, snapshot.rows_of(names), verdicts=remembered)

    for _ in range(3):
        ask(make_pod("p", [app(10)]))
    ask(make_pod("q", [app(11)]))
    cache.add_node(make_node("n0", make_devices(1, memory=77)))
    ask(make_pod("r", [app(10)]))
    assert judged == {cache.snapshot().columns: 4}


def test_demands_are_forgotten_oldest_first(judged: Counter[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 2)
    cache, names = many()
    remembered, snapshot = Verdicts(), cache.snapshot()
    for memory in (1, 1, 2, 2, 1, 3, 3, 1, 2, 2):
        filter_nodes(snapshot, make_pod("p", [app(memory)]), snapshot.rows_of(names), verdicts=remembered)
    # Each of the three twice, and 2 again, whose verdict was dropped for that on 3.
    assert judged.total() == 7


def test_what_was_answered_does_not_change_later() -> None:
    cache, names = many()
    remembered = Verdicts()
    asked = make_pod("p", [app(10)])
    first = filter_nodes(cache.snapshot(), asked, cache.snapshot().rows_of(names), verdicts=remembered)
    kept = replace(first, feasible=first.feasible.copy())
    whole = make_pod("w", [app(10, cores=100)], node="n3", allocation=make_allocation([("GPU-0", 10, 100)]))
    cache.update_pod(record_pod(whole))
    filter_nodes(cache.snapshot(), asked, cache.snapshot().rows_of(names), verdicts=remembered)
    assert same(first, kept)
