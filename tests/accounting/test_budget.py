"""Pods whose memory depends on their cards, under a quota: refused only where no choice of cards keeps it.

It exists because a quota judges all containers of a pod together: HAMi judged one by one, with rows out of place
(hami_facts B1). It must not know how cards are searched. Invariant: filter agrees with the slow reference, which tries
all choices; what allocate gives fits and keeps the budget.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounting.answers.allocate import Placement
from accounting.answers.explain import explain_node
from accounting.answers.filter import filter_nodes
from accounting.holdings import pod_total
from accounting.node import Node
from accounting.pod import Container, ContainerKind, Pod
from accounting.quota.limits import Budget, Left, Limit, QuotaCheck
from accounting.reference import fit as reference
from accounting.reference import quota as quota_reference
from accounting.reference import state as reference_state
from accounting.state.cache import Cache
from accounting.status import Code
from tests.asking import placement, refusal
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
from tests.strategies import nodes, pending_pods

LIMIT = Limit("default", "gpus", "nvidia.com/gpumem", 20_000, (), enforced_by_api=False)
MIXED = [make_device("GPU-small", memory=16_384), make_device("GPU-large", index=1, memory=49_152)]


def budget(mib: int) -> Budget:
    return Budget("NVIDIA", Left(mib, LIMIT, LIMIT.hard - mib))


def judged(cache: Cache, pod: Pod, mib: int, name: str = "n1") -> Code | None:
    return refusal(cache, pod, name, QuotaCheck((), budget(mib)))


def placed(cache: Cache, pod: Pod, mib: int, name: str = "n1") -> Placement | None:
    return placement(cache, pod, name, budget(mib))


def memory_of(pod: Pod, placement: Placement | None) -> int:
    assert placement is not None
    return pod_total(pod.containers, placement.allocation)[0].memory


def test_a54_half_of_the_small_card_keeps_the_quota_and_half_of_the_large_one_does_not() -> None:
    asking = make_pod("p", [app(percentage=50)])
    small, large = make_node("small", MIXED[:1]), make_node("large", MIXED[1:])
    cache = make_cache([small, large])
    assert judged(cache, asking, 20_000, "small") is None
    assert judged(cache, asking, 20_000, "large") is Code.QUOTA_EXCEEDED
    assert memory_of(asking, placed(cache, asking, 20_000, "small")) == 8_192
    assert placed(cache, asking, 20_000, "large") is None


@pytest.mark.parametrize("policy", ["spread", "binpack"])
def test_a54_on_a_node_with_both_the_card_that_keeps_it_is_taken(policy: str) -> None:
    asking = make_pod("p", [app(percentage=50)], policies=make_policies(policy))
    cache = make_cache([make_node(devices=MIXED)])
    placement = placed(cache, asking, 20_000)
    assert placement is not None
    assert [use.uuid for use in placement.peak] == ["GPU-small"]
    # Without a budget the policy alone decides: among equal loads it takes the higher index.
    assert judged(cache, asking, 24_576) is None
    assert memory_of(asking, placed(cache, asking, 24_576)) == 24_576
    assert judged(cache, asking, 8_191) is Code.QUOTA_EXCEEDED


def test_the_reason_names_the_quota_and_its_numbers() -> None:
    asking = make_pod("p", [app(percentage=50)])
    cache = make_cache([make_node(devices=MIXED[1:])])
    check = QuotaCheck((), budget(20_000))
    reasons = explain_node(cache.snapshot(), asking, "n1", cache.positions("n1"), quota=check)
    assert not isinstance(reasons, Placement)
    (reason,) = reasons
    assert reason.code is Code.QUOTA_EXCEEDED
    assert all(text in reason.message for text in ("default/gpus", "nvidia.com/gpumem", "20000", "24576"))


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param([init(100), app(percentage=50), app(percentage=50)], id="an init before two apps"),
        pytest.param([sidecar(percentage=50), app(percentage=50)], id="a sidecar and an app"),
        pytest.param([app(percentage=50), app(percentage=50)], id="two apps"),
        pytest.param([app(count=2, percentage=50)], id="one app on two cards"),
    ],
)
def test_b1_every_container_counts_in_its_true_position(containers: Sequence[Container]) -> None:
    cache = make_cache([node_of(16_000, 16_000)])
    asking = make_pod("p", containers)
    assert judged(cache, asking, 15_999) is Code.QUOTA_EXCEEDED
    assert judged(cache, asking, 16_000) is None


def test_a10_an_init_without_a_request_changes_nothing() -> None:
    cache = make_cache([node_of(40_000)])
    two = [app(percentage=40), app(percentage=40)]
    idle = Container("idle", ContainerKind.INIT)
    for containers in (two, [idle, *two]):
        assert judged(cache, make_pod("p", containers), 24_000) is Code.QUOTA_EXCEEDED
        assert judged(cache, make_pod("p", containers), 32_000) is None


def test_inits_do_not_add_up() -> None:
    cache = make_cache([node_of(1000, 1000)])
    asking = make_pod("p", [init(), init(), app(percentage=10)])
    assert judged(cache, asking, 1000) is None
    assert judged(cache, asking, 999) is Code.QUOTA_EXCEEDED
    assert judged(cache, make_pod("p", [sidecar(percentage=1), init()]), 1009) is Code.QUOTA_EXCEEDED


@pytest.mark.parametrize("whole", [app(cores=100), init(cores=100)])
def test_neither_the_policy_nor_the_smallest_cards_but_another_choice_keeps_it(whole: Container) -> None:
    # The whole card must be unused; the smallest card for the sidecar would be the only one small enough.
    cache = make_cache([node_of(1000, 1100, 3000)])
    asking = make_pod("p", [sidecar(percentage=10), whole])
    assert judged(cache, asking, 1110) is None
    assert memory_of(asking, placed(cache, asking, 1110)) <= 1110
    assert judged(cache, asking, 1109) is Code.QUOTA_EXCEEDED


def test_a_budget_below_zero_takes_nothing() -> None:
    cache = make_cache([node_of(1000)])
    asking = make_pod("p", [app()])
    assert judged(cache, asking, -5) is Code.QUOTA_EXCEEDED
    assert placed(cache, asking, -5) is None


def test_a_node_that_does_not_fit_by_itself_says_why() -> None:
    cache = make_cache([node_of(1000)])
    assert judged(cache, make_pod("p", [app(count=2)]), 10) is Code.INSUFFICIENT_DEVICES


def test_equal_nodes_are_searched_once_and_all_get_the_same_answer() -> None:
    names = [f"n{at}" for at in range(500)]
    sizes = (1000, 1100, 3000)
    cache = make_cache(
        [make_node(n, [make_device(f"{n}-{i}", index=i, memory=s) for i, s in enumerate(sizes)]) for n in names]
    )
    asking = make_pod("p", [sidecar(percentage=10), app(cores=100)])
    snapshot = cache.snapshot()
    for mib, fits in ((1110, True), (1109, False)):
        verdict = filter_nodes(snapshot, asking, snapshot.rows_of(names), quota=QuotaCheck((), budget(mib)))
        assert verdict.feasible.all() == fits
        assert verdict.feasible.any() == fits


def test_rows_that_want_a_card_alone_are_on_different_cards_which_needs_no_search() -> None:
    cache = make_cache([node_of(*(1000 + at for at in range(16)))])
    asking = make_pod("p", [sidecar(count=4, cores=100), app(count=4, cores=100), app(count=4, cores=100)])
    # The twelve smallest cards add up to 12066.
    assert judged(cache, asking, 12_065) is Code.QUOTA_EXCEEDED
    assert judged(cache, asking, 12_066) is None
    assert memory_of(asking, placed(cache, asking, 12_066)) == 12_066


def test_a_search_that_is_cut_off_says_so() -> None:
    cache = make_cache([node_of(*(1000 + 100 * at for at in range(16)))])
    asking = make_pod("p", [sidecar(count=4, percentage=10), app(count=4, cores=100), app(count=4, cores=100)])
    # The apps take the eight smallest cards, 10800 together, and the sidecar a tenth of the next four, 780.
    assert judged(cache, asking, 11_259) is Code.QUOTA_EXCEEDED
    assert judged(cache, asking, 11_579) is Code.SEARCH_LIMIT
    assert placed(cache, asking, 11_579) is None
    assert judged(cache, asking, 11_580) is None
    assert memory_of(asking, placed(cache, asking, 11_580)) == 11_580


@st.composite
def sharing_pods(draw: st.DrawFn) -> Pod:
    """Draw pods that mostly ask for percentages and whole cards."""
    pod = draw(pending_pods())
    share = st.sampled_from((0, 0, 10, 33, 50, 100))
    containers = []
    for container in pod.containers[:5]:
        percent = draw(share) if container.request else 0
        request = container.request
        if request is not None and percent:
            request = request._replace(memory=0, memory_percentage=percent, count=min(request.count, 2))
        containers.append(replace(container, request=request))
    return pod._replace(containers=tuple(containers))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(nodes("n1"), sharing_pods(), st.integers(-1, 60))
def test_yes_and_no_are_those_of_the_reference(node: Node, pod: Pod, mib: int) -> None:
    cache = make_cache([node])
    state = reference_state.node_state(node, [])
    want = quota_reference.code_within(state, pod, mib) if pod.asks and not pod.invalid else None
    if not pod.asks or pod.invalid:
        return
    have, found = judged(cache, pod, mib), placed(cache, pod, mib)
    assert have == want
    assert (found is not None) == (want is None)
    if found is None:
        return
    assert memory_of(pod, found) <= mib
    rows = reference.fit(state, pod)
    assert not isinstance(rows, Code)
    if reference_state.total_holding(pod._replace(allocation=rows)).peak.memory <= mib:
        assert found.allocation == rows
    else:
        first = next(quota_reference.placements_within(state, pod, mib))
        for container, own, expected in zip(pod.containers, found.allocation, first, strict=True):
            if container.kind is not ContainerKind.INIT:
                assert own == expected


@settings(max_examples=30)
@given(nodes("n1"), sharing_pods())
def test_a_budget_that_is_nowhere_near_changes_nothing(node: Node, pod: Pod) -> None:
    cache = make_cache([node])
    snapshot, rows = cache.snapshot(), cache.snapshot().rows_of(["n1"])
    free = filter_nodes(snapshot, pod, rows)
    kept = filter_nodes(snapshot, pod, rows, quota=QuotaCheck((), budget(10**9)))
    assert np.array_equal(free.codes, kept.codes)
    assert np.array_equal(free.feasible, kept.feasible)
    assert placed(cache, pod, 10**9) == placement(cache, pod)
