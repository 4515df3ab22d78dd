"""Instances of cards in MIG mode under a quota: what they have counts, not what was asked for.

It exists because a profile may be larger than the request, so a namespace could pass its limits by that difference.
Invariants: no placement adds more memory or cores than is left; a node with a placement within what is left accepts the
pod; a refusal for lack of room differs from a refusal by the quota. Brute force over all places says the same.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.answers.allocate import Placement, allocate
from accounting.answers.claims import Claim, Claims, claim_on
from accounting.answers.explain import explain_node
from accounting.answers.filter import feasible_on, filter_nodes
from accounting.holdings import Total, pod_total
from accounting.mig import fit as mig_fit
from accounting.mig_profiles import EVERY_SLICE, MigLayout, MigProfile
from accounting.node import Device
from accounting.pod import Allocation, Container, DeviceRequest, DeviceRow, FurtherRow, Pod
from accounting.pod_record import record_pod
from accounting.quota.limits import UNLIMITED, QuotaCheck, QuotaTable
from accounting.quota.objects import read_quota
from accounting.quota.report import pod_charges
from accounting.reference import state as reference_state
from accounting.status import CODES, Code
from accounting.vendor import NVIDIA
from tests.accounting.case_builders import APP, INIT, SIDECAR, Cluster, card, memory, node, pod
from tests.accounting.test_mig import A100, SMALL, mig_card
from tests.builders import uuids_on

POLICY = "hami.io/gpu-scheduler-policy"
#: As A100, for a card of twice the memory.
A100_80: MigLayout = tuple(each._replace(memory=each.memory * 2) for each in A100)


def limits(**hard: int) -> QuotaTable:
    """A table with these limits on gpumem and gpucores of the namespace of the tests' pods."""
    table = QuotaTable(NVIDIA)
    values = {f"limits.nvidia.com/{name}": str(most) for name, most in hard.items()}
    table.put(read_quota("team", "gpus", values, [NVIDIA]))
    return table


def checked(cluster: Cluster, asked: Pod, **hard: int) -> QuotaCheck:
    return limits(**hard).check(asked, lambda _: cluster.cache.used("team"), mig=cluster.cache.has_mig)


def judged(cluster: Cluster, asked: Pod, *names: str, **hard: int) -> list[Code | None]:
    """Return filter's codes.

    Bind must give cards within the limits exactly where filter accepts, and explain must agree.
    """
    snapshot, check = cluster.cache.snapshot(), checked(cluster, asked, **hard)
    verdict = filter_nodes(snapshot, asked, snapshot.rows_of(names), quota=check)
    codes = [None if fits else CODES[int(code)] for fits, code in zip(verdict.feasible, verdict.codes, strict=True)]
    assert [bool(each) for each in verdict.unresolvable if each] == [True] * codes.count(Code.QUOTA_EXCEEDED)
    for name, code in zip(names, codes, strict=True):
        placement = explain_node(snapshot, asked, name, cluster.cache.positions(name), quota=check)
        if code is not None:
            assert not isinstance(placement, Placement)
            assert placement[0].code is code
            continue
        assert isinstance(placement, Placement)
        used, total = cluster.cache.used("team"), pod_total(asked.containers, placement.allocation)[0]
        assert used.memory + total.memory <= hard.get("gpumem", 10**9)
        assert used.cores + total.cores <= hard.get("gpucores", 10**9)
    return codes


# -- what is left ------------------------------------------------------------------------------------------------------


def test_without_cards_in_mig_mode_certain_memory_needs_no_look_at_the_cards() -> None:
    cluster = Cluster(node("n", card("GPU-a")))
    assert not cluster.cache.has_mig
    assert checked(cluster, pod(memory(APP, 50)), gpumem=100, gpucores=10) == UNLIMITED


def test_with_cards_in_mig_mode_the_cards_decide_about_memory_and_cores() -> None:
    cluster = Cluster(node("n", mig_card()))
    budget = checked(cluster, pod(memory(APP, 50)), gpumem=100, gpucores=10).budget
    assert budget is not None
    assert budget.most == (100, 10)
    assert budget.mib_of_shared_cards is None
    assert budget.of_vendor("DCU") is None
    assert checked(cluster, pod(memory(APP, 50)), gpu=5) == UNLIMITED
    no_mig = pod(memory(APP, 50), annotations={"nvidia.com/vgpu-mode": "hami-core"})
    assert checked(cluster, no_mig, gpumem=100, gpucores=10) == UNLIMITED


def test_explain_says_that_an_instance_may_add_more_than_is_asked() -> None:
    asked = pod(memory(APP, 50))
    table = limits(gpumem=100, gpucores=10)
    charges = pod_charges(table.limits_of("team"), asked, NVIDIA, mig=True)
    assert [(each.adds, each.at_least) for each in charges] == [(0, True), (50, True)]
    assert all("mig mode" in each.differs[0] for each in charges)
    assert not any(each.at_least for each in pod_charges(table.limits_of("team"), asked, NVIDIA))


# -- filter, bind and explain ------------------------------------------------------------------------------------------


def test_the_profile_counts_and_not_what_was_asked() -> None:
    cluster = Cluster(node("n", mig_card()))
    asked = pod(memory(APP, 4000))
    assert judged(cluster, asked, "n", gpumem=4864) == [None]
    assert judged(cluster, asked, "n", gpumem=4863) == [Code.QUOTA_EXCEEDED]
    # The pod asks for no cores, and the instance has 15.
    assert judged(cluster, asked, "n", gpucores=15) == [None]
    assert judged(cluster, asked, "n", gpucores=14) == [Code.QUOTA_EXCEEDED]


def test_what_is_charged_already_counts() -> None:
    cluster = Cluster(node("n", mig_card()))
    cluster.bind(pod(memory(APP, 4000), name="first"), "n")
    asked = pod(memory(APP, 4000))
    assert judged(cluster, asked, "n", gpumem=9728) == [None]
    assert judged(cluster, asked, "n", gpumem=9727) == [Code.QUOTA_EXCEEDED]
    assert judged(cluster, asked, "n", gpucores=29) == [Code.QUOTA_EXCEEDED]


def test_a_shared_card_has_what_is_asked_and_takes_the_pod() -> None:
    cluster = Cluster(
        node("n", mig_card(), card("GPU-s", 5000, index=1, mode="hami-core")), node("m", mig_card("GPU-m"))
    )
    asked = pod(memory(APP, 4000))
    assert judged(cluster, asked, "n", "m", gpumem=4000, gpucores=0) == [None, Code.QUOTA_EXCEEDED]
    # A shared card gives a container one row, so its other row is an instance.
    two = pod(memory(APP, 4000, count=2))
    assert judged(cluster, two, "n", "m", gpumem=8864) == [None, Code.QUOTA_EXCEEDED]
    assert judged(cluster, two, "n", "m", gpumem=8863) == [Code.QUOTA_EXCEEDED] * 2


@pytest.mark.parametrize("policy", ["spread", "binpack"])
def test_of_two_cards_the_one_with_the_smaller_profile_is_taken(policy: str) -> None:
    large = replace(mig_card("GPU-l", index=1, layout=A100_80), memory=81_920)
    cluster = Cluster(node("n", mig_card(), large), node("large", replace(large, uuid="GPU-x")))
    asked = pod(memory(APP, 4000), annotations={POLICY: policy})
    assert judged(cluster, asked, "n", "large", gpumem=4864) == [None, Code.QUOTA_EXCEEDED]
    assert judged(cluster, asked, "n", "large", gpumem=9728) == [None, None]


def test_a_smaller_profile_that_is_taken_leaves_the_larger_one_which_the_quota_refuses() -> None:
    layout = (MigProfile("1g", 5000, 15, 1, ((0, 1),)), MigProfile("2g", 10_000, 29, 2, ((2, 2),)))
    cluster = Cluster(node("n", mig_card(layout=layout)))
    cluster.bind(pod(memory(APP, 4000), name="first"), "n")
    asked = pod(memory(APP, 4000))
    assert judged(cluster, asked, "n", gpumem=15_000) == [None]
    assert judged(cluster, asked, "n", gpumem=14_999) == [Code.QUOTA_EXCEEDED]
    cluster.bind(pod(memory(APP, 9000), name="second"), "n")
    # Now there is no place either, which has nothing to do with the quota.
    assert judged(cluster, asked, "n", gpumem=19_000) == [Code.INSUFFICIENT_MEMORY]


def test_the_search_steps_back_for_the_quota_and_judges_the_later_container_anew() -> None:
    layout = (
        MigProfile("1g.5gb", 5000, 15, 1, ((0, 1), (3, 1))),
        MigProfile("2g", 10_000, 29, 2, ((2, 2),)),
        MigProfile("4g", 20_000, 58, 4, ((4, 4),)),
    )
    cluster = Cluster(node("n", mig_card(layout=layout)))
    asked = pod(memory(APP, 4000), memory(APP, 9000))
    # The 1g takes the highest place that it can, and then only the 4g is left.
    assert judged(cluster, asked, "n", gpumem=25_000) == [None]
    assert judged(cluster, asked, "n", gpumem=15_000) == [None]
    assert judged(cluster, asked, "n", gpumem=14_999) == [Code.QUOTA_EXCEEDED]


def test_inits_count_beside_the_sidecars_before_them_and_not_beside_the_apps() -> None:
    cluster = Cluster(node("n", mig_card()))
    asked = pod(memory(INIT, 9000), memory(SIDECAR, 4000), memory(APP, 4000))
    # Init 9984; sidecar and app 9728.
    assert judged(cluster, asked, "n", gpumem=9984, gpucores=30) == [None]
    assert judged(cluster, asked, "n", gpumem=9983) == [Code.QUOTA_EXCEEDED]
    assert judged(cluster, asked, "n", gpumem=9984, gpucores=29) == [Code.QUOTA_EXCEEDED]


def test_a_percentage_is_kept_within_memory_and_cores() -> None:
    cluster = Cluster(node("n", mig_card()))
    quarter = pod(Container("main", APP, DeviceRequest(1, 0, 20, 0)))
    assert judged(cluster, quarter, "n", gpumem=9984, gpucores=29) == [None]
    assert judged(cluster, quarter, "n", gpumem=9983) == [Code.QUOTA_EXCEEDED]
    assert judged(cluster, quarter, "n", gpumem=9984, gpucores=28) == [Code.QUOTA_EXCEEDED]


def test_the_reason_names_each_limit_that_the_instances_pass() -> None:
    cluster = Cluster(node("n", mig_card()))
    asked = pod(memory(APP, 4000))
    check = checked(cluster, asked, gpumem=4500, gpucores=10)
    reasons = explain_node(cluster.cache.snapshot(), asked, "n", cluster.cache.positions("n"), quota=check)
    assert not isinstance(reasons, Placement)
    text = "quota team/gpus: nvidia.com/{}, used 0, the pod adds {} with the cards that it would get here; of cards {}"
    least = "with which it adds at most {} there are none"
    assert [reason.message for reason in reasons] == [
        text.format("gpumem: hard 4500", "4864 MiB", least.format(4500)),
        text.format("gpucores: hard 10", "15 cores", least.format(10)),
    ]


@pytest.mark.parametrize("counts", [[6, 6], [3] * 4, [1] * 12], ids=str)
@pytest.mark.parametrize("policy", ["spread", "binpack"])
def test_containers_that_share_the_small_places_are_told_without_going_through_all_ways(
    counts: list[int], policy: str
) -> None:
    large = [replace(mig_card(f"GPU-{at}", index=at, layout=A100_80), memory=81_920) for at in range(1, 5)]
    cluster = Cluster(node("n", mig_card(), *large))
    asked = pod(*(memory(APP, 4000, count=count) for count in counts), annotations={POLICY: policy})
    # Seven of the twelve rows find a small place.
    assert judged(cluster, asked, "n", gpumem=7 * 4864 + 5 * 9728) == [None]
    assert judged(cluster, asked, "n", gpumem=7 * 4864 + 5 * 9728 - 1) == [Code.QUOTA_EXCEEDED]


def test_a_limit_that_is_passed_already_refuses_instances_and_not_shared_cards() -> None:
    cluster = Cluster(node("n", mig_card()), node("s", card("GPU-s", 8000)))
    cluster.bind(pod(memory(APP, 4000), name="first"), "n")
    # The instance has 15 cores, and the limit has been lowered since.
    assert judged(cluster, pod(memory(APP, 4000)), "n", "s", gpucores=20) == [Code.QUOTA_EXCEEDED, None]
    check = checked(cluster, pod(memory(APP, 4000)), gpucores=5)
    assert check.budget is not None
    assert check.budget.most == (None, 0)
    snapshot, asked = cluster.cache.snapshot(), pod(memory(APP, 4000))
    assert filter_nodes(snapshot, asked, snapshot.rows_of(["n", "s"]), quota=check).feasible.tolist() == [False, True]


# -- claims and waking -------------------------------------------------------------------------------------------------


def test_a_claim_keeps_the_quota_and_waking_asks_the_same() -> None:
    cluster = Cluster(node("n", mig_card()))
    asked = pod(memory(APP, 4000))
    snapshot = cluster.cache.snapshot()
    for most, fits in ((4864, True), (4863, False)):
        budget = checked(cluster, asked, gpumem=most).budget
        assert budget is not None
        claim = claim_on(cluster.cache, snapshot, asked, "n", Claims(), budget)
        assert isinstance(claim, Claim) == fits
        assert bool(feasible_on(snapshot, asked, snapshot, budget)[0]) == fits


# -- the end of the search ---------------------------------------------------------------------------------------------


def test_what_no_choice_can_keep_is_told_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_fit, "STEPS", 14)
    cluster = Cluster(node("n", mig_card(), mig_card("GPU-b", index=1)))
    asked = pod(memory(APP, 4000, count=14))
    assert judged(cluster, asked, "n", gpumem=14 * 4864) == [None]
    # Within the limit no step is taken; without it 14 steps find the place.
    assert judged(cluster, asked, "n", gpumem=14 * 4864 - 1) == [Code.QUOTA_EXCEEDED]


def test_where_no_steps_are_left_to_tell_why_the_node_refuses_with_the_search_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mig_fit, "STEPS", 13)
    cluster = Cluster(node("n", mig_card(), mig_card("GPU-b", index=1)))
    # For one container alone the answer would need no steps.
    asked = pod(memory(APP, 4000, count=7), memory(APP, 4000, count=7))
    check = checked(cluster, asked, gpumem=14 * 4864 - 1)
    snapshot = cluster.cache.snapshot()
    verdict = filter_nodes(snapshot, asked, snapshot.rows_of(["n"]), quota=check)
    assert CODES[int(verdict.codes[0])] is Code.SEARCH_LIMIT
    assert not verdict.feasible[0]
    assert not verdict.unresolvable[0]


def test_nodes_within_the_quota_are_found_before_it_is_told_why_others_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_fit, "STEPS", 1)
    large = replace(mig_card("GPU-l", layout=A100_80), memory=81_920)
    cluster = Cluster(node("large", large), node("n", mig_card()))
    snapshot, asked = cluster.cache.snapshot(), pod(memory(APP, 4000))
    check = checked(cluster, asked, gpumem=4864)
    assert filter_nodes(snapshot, asked, snapshot.rows_of(["large", "n"]), quota=check).feasible.tolist() == [
        False,
        True,
    ]


# -- against brute force -----------------------------------------------------------------------------------------------

#: Larger profiles at the same places, so that cards differ.
LARGE: MigLayout = tuple(profile._replace(memory=profile.memory + 4, cores=profile.cores + 3) for profile in SMALL)
SHARED_MIB = 10


@st.composite
def asking(draw: st.DrawFn) -> list[Container]:
    kinds = sorted(draw(st.lists(st.sampled_from((INIT, SIDECAR, APP)), min_size=1, max_size=3)), key=APP.__eq__)
    requests = [
        DeviceRequest(draw(st.integers(1, 2)), *draw(st.sampled_from(((4, 0), (5, 0), (9, 0), (0, 25)))), cores)
        for cores in (draw(st.sampled_from((0, 20))) for _ in kinds)
    ]
    return [Container("", kind, request) for kind, request in zip(kinds, requests, strict=True)]


@settings(deadline=None, max_examples=150)
@given(
    asking(),
    st.lists(st.sampled_from((SMALL, LARGE, ())), min_size=1, max_size=3).filter(any),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 150),
)
def test_yes_and_no_are_those_of_brute_force(
    containers: list[Container], layouts: list[MigLayout], mib: int | None, cores: int | None
) -> None:
    cards = [_device(at, layout) for at, layout in enumerate(layouts)]
    cluster, asked = Cluster(node("n", *cards)), pod(*containers)
    hard = ({} if mib is None else {"gpumem": mib}) | ({} if cores is None else {"gpucores": cores})
    check = checked(cluster, asked, **hard)
    snapshot = cluster.cache.snapshot()
    verdict = filter_nodes(snapshot, asked, snapshot.rows_of(["n"]), quota=check)
    code = None if verdict.feasible[0] else CODES[int(verdict.codes[0])]
    placement = allocate(snapshot, asked, snapshot.rows["n"], uuids_on(cluster.cache, "n"), check.budget)
    assert code is not Code.SEARCH_LIMIT
    every = {(total.memory, total.cores) for total in _totals(asked, cards)}
    within = any((mib is None or total[0] <= mib) and (cores is None or total[1] <= cores) for total in every)
    if check.exceeded:
        assert not within
        return
    assert (code is None) == (placement is not None) == within
    if every and not within:
        assert code is Code.QUOTA_EXCEEDED
    assert (code is Code.QUOTA_EXCEEDED) <= bool(every)
    if placement is not None:
        assert tuple(pod_total(asked.containers, placement.allocation)[0])[1:] in every
        cluster.cache.add_pod(record_pod(asked._replace(node="n", allocation=placement.allocation)))
        used = cluster.cache.used("team")
        assert mib is None or used.memory <= mib
        assert cores is None or used.cores <= cores


def _device(at: int, layout: MigLayout) -> Device:
    if not layout:
        return card(f"GPU-{at}", SHARED_MIB, index=at, mode="hami-core")
    return replace(mig_card(f"GPU-{at}", index=at, layout=layout), slots=6, memory=40)


def _totals(asked: Pod, cards: list[Device]) -> Iterator[Total]:
    """Yield the peak totals of all placements, row by row, except those that overlap or repeat others."""
    requests = [(at, each.request) for at, each in enumerate(asked.containers) if each.request]
    rows = [(at, request) for at, request in requests for _ in range(request.count)]

    def place(number: int, free: list[int], taken: Allocation, last: tuple[int, int]) -> Iterator[Allocation]:
        if number == len(rows):
            yield taken
            return
        at, request = rows[number]
        # Rows of one container are alike, so they are tried in one order only.
        first = last if number and rows[number - 1][0] == at else (-1, -1)
        for where, device in enumerate(cards):
            wanted = device.memory * request.memory_percentage // 100 or request.memory
            for choice, (row, bits) in enumerate(_offers(device, wanted, request.cores)):
                if (where, choice) <= first or bits & ~free[where]:
                    continue
                own = (*taken[:at], (*taken[at], row), *taken[at + 1 :])
                yield from place(
                    number + 1, [*free[:where], free[where] & ~bits, *free[where + 1 :]], own, (where, choice)
                )

    for allocation in place(0, [EVERY_SLICE] * len(cards), ((),) * len(asked.containers), (-1, -1)):
        holding = reference_state.card_holdings(asked._replace(allocation=allocation))
        if all(holding[device.uuid].peak.memory <= device.memory for device in cards if device.uuid in holding):
            total = reference_state.total_holding(asked._replace(allocation=allocation)).peak
            yield Total(0, total.memory, total.cores)


def _offers(device: Device, wanted: int, cores: int) -> Iterator[tuple[DeviceRow, int]]:
    """Yield the rows that a card may give, and the slices that each takes."""
    if not device.layout:
        yield DeviceRow(device.uuid, wanted, cores), 0
    for profile in device.layout:
        if profile.memory >= wanted and profile.cores >= cores:
            for start, size in profile.placements:
                yield FurtherRow(device.uuid, profile.memory, profile.cores), ((1 << size) - 1) << start
