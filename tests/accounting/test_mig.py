"""Cards in MIG mode: which instances a pod gets, what it holds, and what cannot be known.

It exists because instances need places on a card, and sums do not show whether places are free. Invariant: the search
accepts exactly if some choice of places exists, as brute force over all places shows.
"""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.answers.report import node_report, problem_counts, problems
from accounting.codec import decode_allocation, named_instances
from accounting.holdings import device_uses
from accounting.mig_profiles import (
    EVERY_SLICE,
    UNKNOWN,
    MigInstance,
    MigLayout,
    MigProfile,
    most_cores,
    options,
    read_instances,
    read_layout,
)
from accounting.node import Device
from accounting.pod import Container, ContainerKind, DeviceRequest, FurtherRow, Pod
from accounting.pod_record import record_pod
from accounting.register import read_register
from accounting.status import Code, ProblemCode
from tests.accounting.case_builders import APP, INIT, SIDECAR, Cluster, card, memory, node, numbers, pod
from tests.builders import make_apps

A100: MigLayout = (
    MigProfile("1g.5gb", 4864, 15, 1, tuple((start, 1) for start in range(7))),
    MigProfile("2g.10gb", 9984, 29, 2, ((0, 2), (2, 2), (4, 2))),
    MigProfile("3g.20gb", 20_096, 43, 4, ((0, 4), (4, 4))),
    MigProfile("7g.40gb", 40_448, 100, 8, ((0, 8),)),
)


def mig_card(uuid: str = "GPU-a", *, index: int = 0, layout: MigLayout = A100) -> Device:
    """A 40 GB card in MIG mode."""
    return replace(card(uuid, 40_960, index=index), slots=7, cores=most_cores(layout), mode="mig", layout=layout)


def placed(cluster: Cluster, asked: Pod, name: str = "n") -> list[list[tuple[str, str, int]]]:
    """(card, profile, start) of every row."""
    placement = cluster.place(asked, name)
    assert placement is not None
    return [[(row.uuid, *(row.instance or UNKNOWN)[:2]) for row in own] for own in placement.allocation]


# -- what is chosen ----------------------------------------------------------------------------------------------------


def test_the_order_of_places_on_an_empty_card() -> None:
    cluster = Cluster(node("n", mig_card()))
    sizes = (20_000, 9_000, 4_000, 4_000)
    found = [
        cluster.bind(pod(memory("app", mib), name=f"p{at}"), "n").allocation[0][0].instance  # type: ignore[index]
        for at, mib in enumerate(sizes)
    ]
    assert [(each.profile, each.start) for each in found if each is not None] == [
        ("3g.20gb", 4),
        ("2g.10gb", 0),
        ("1g.5gb", 3),
        ("1g.5gb", 2),
    ]


def test_memory_that_equals_a_profile_fits_it_and_cores_count_too() -> None:
    cluster = Cluster(node("n", mig_card()))
    assert placed(cluster, pod(memory("app", 4864))) == [[("GPU-a", "1g.5gb", 6)]]
    assert placed(cluster, pod(memory("app", 4865))) == [[("GPU-a", "2g.10gb", 0)]]
    assert placed(cluster, pod(memory("app", 100, cores=30))) == [[("GPU-a", "3g.20gb", 4)]]
    assert placed(cluster, pod(memory("app", 100, cores=100))) == [[("GPU-a", "7g.40gb", 0)]]
    assert cluster.refusal(pod(memory("app", 40_449)), "n") is Code.INSUFFICIENT_MEMORY


def test_more_instances_than_cards_up_to_what_the_card_has() -> None:
    cluster = Cluster(node("n", mig_card(), mig_card("GPU-b", index=1)))
    rows = placed(cluster, pod(memory("app", 4000, count=14)))[0]
    assert sorted(rows) == sorted((uuid, "1g.5gb", start) for uuid in ("GPU-a", "GPU-b") for start in range(7))
    assert cluster.refusal(pod(memory("app", 4000, count=15)), "n") is Code.INSUFFICIENT_MEMORY


def test_seven_instances_do_not_over_commit_a_cards_cores() -> None:
    cluster = Cluster(node("n", mig_card()))
    bound = cluster.bind(pod(memory("app", 4000, count=7)), "n")
    assert numbers(record_pod(bound).held) == {"GPU-a": (7, 7 * 4864, 105)}
    assert problems(cluster.cache) == []
    assert cluster.refusal(pod(memory("app", 1), name="q"), "n") is Code.INSUFFICIENT_SLOTS


def test_b10_places_of_one_pod_never_overlap_an_inits_and_an_apps_neither() -> None:
    cluster = Cluster(node("n", mig_card()))
    asked = pod(memory(INIT, 4000), memory(SIDECAR, 4000), memory(APP, 20_000))
    bound = cluster.bind(asked, "n")
    assert isinstance(bound.allocation, tuple)
    bits = [row.instance.bits for own in bound.allocation for row in own if row.instance is not None]
    assert len(bits) == 3
    assert sum(bits) == bits[0] | bits[1] | bits[2]
    # An init cannot use the place of the app, for the kubelet admits both at once.
    assert cluster.refusal(pod(memory(INIT, 40_000), memory(APP, 20_000), name="q"), "n") is Code.INSUFFICIENT_MEMORY


def test_the_search_steps_back_where_the_first_choice_leaves_no_place() -> None:
    # 3g prefers place 4, and 4g needs that place.
    layout = (
        MigProfile("3g.20gb", 20_096, 43, 4, ((0, 4), (4, 4))),
        MigProfile("4g.20gb", 20_352, 58, 4, ((4, 4),)),
    )
    cluster = Cluster(node("n", mig_card(layout=layout)))
    rows = placed(cluster, pod(memory(APP, 20_000), memory(APP, 20_300)))
    assert rows == [[("GPU-a", "3g.20gb", 0)], [("GPU-a", "4g.20gb", 4)]]


def test_a_node_with_both_kinds_of_cards_takes_what_only_both_together_can() -> None:
    cluster = Cluster(node("n", card("GPU-s", 1000, index=1, mode="hami-core"), mig_card()))
    assert placed(cluster, pod(memory("app", 900))) == [[("GPU-s", "", 0)]]
    rows = placed(cluster, pod(memory(APP, 30_000), memory(APP, 900)))
    assert rows[0] == [("GPU-a", "7g.40gb", 0)]
    assert rows[1] == [("GPU-s", "", 0)]
    only_mig = pod(memory("app", 900), annotations={"nvidia.com/vgpu-mode": "mig"})
    assert placed(cluster, only_mig)[0][0][0] == "GPU-a"
    no_mig = pod(memory("app", 9000), annotations={"nvidia.com/vgpu-mode": "hami-core"})
    assert cluster.refusal(no_mig, "n") is Code.INSUFFICIENT_MEMORY


def test_a_card_in_mig_mode_without_profiles_takes_nothing_beside_one_that_has_some() -> None:
    bare = card("GPU-x", 24_000, index=1, mode="mig")
    cluster = Cluster(node("n", bare, mig_card()))
    only = {"nvidia.com/use-gpuuuid": "GPU-x"}
    # The other card fails at a later test, by its UUID, so its reason stands for the node.
    assert cluster.refusal(pod(memory("app", 100), annotations=only), "n") is Code.UUID_MISMATCH
    alone = Cluster(node("n", bare), node("m", mig_card()))
    assert alone.refusal(pod(memory("app", 100)), "n") is Code.MODE_MISMATCH
    assert placed(cluster, pod(memory("app", 100, count=7)))[0] == [("GPU-a", "1g.5gb", at) for at in range(6, -1, -1)]
    assert cluster.refusal(pod(memory("app", 100, count=8)), "n") is Code.INSUFFICIENT_MEMORY


def test_numa_bind_holds_for_instances_too() -> None:
    cards = mig_card("GPU-a"), replace(mig_card("GPU-b", index=1), numa=1)
    cluster = Cluster(node("n", *cards))
    bind = {"nvidia.com/numa-bind": "true"}
    rows = placed(cluster, pod(memory("app", 20_000, count=2), annotations=bind))[0]
    assert len({uuid for uuid, _, _ in rows}) == 1
    assert cluster.refusal(pod(memory("app", 20_000, count=3), annotations=bind), "n") is not None
    assert len(placed(cluster, pod(memory("app", 20_000, count=3)))[0]) == 3


def test_a_percentage_is_of_the_registered_memory() -> None:
    cluster = Cluster(node("n", mig_card()))
    asked = Container("main", APP, DeviceRequest(1, 0, 25, 0))
    assert placed(cluster, pod(asked)) == [[("GPU-a", "3g.20gb", 4)]]
    whole = Container("main", APP, DeviceRequest(1, 0, 100, 0, whole=True))
    assert cluster.refusal(pod(whole), "n") is Code.INSUFFICIENT_MEMORY


# -- what is held ------------------------------------------------------------------------------------------------------


def holding(name: str, *instances: MigInstance | None, kind: ContainerKind = APP, over: bool = True) -> Pod:
    """A pod with one container per instance on GPU-a."""
    rows = tuple((FurtherRow.of("GPU-a", 4864, 15, "NVIDIA", each),) for each in instances)
    containers = [memory(kind, 4000) for _ in instances]
    return pod(*containers, name=name, node="n", allocation=rows, inits_over=over)


def test_places_are_given_back_when_the_pod_ends() -> None:
    cluster = Cluster(node("n", mig_card()))
    bound = cluster.bind(pod(memory("app", 40_000), name="all"), "n")
    assert cluster.refusal(pod(memory("app", 1)), "n") is not None
    cluster.cache.remove_pod(bound.uid)
    assert cluster.refusal(pod(memory("app", 40_000)), "n") is None
    assert cluster.held("GPU-a") == (0, 0, 0)


def test_a_finished_inits_place_stays_and_its_numbers_go() -> None:
    started = holding("p", MigInstance("1g.5gb", 6, 1), kind=INIT, over=False)
    cluster = Cluster(node("n", mig_card()), pods=[record_pod(started)])
    assert cluster.held("GPU-a") == (1, 4864, 15)
    cluster.cache.update_pod(record_pod(started._replace(inits_over=True)))
    assert cluster.held("GPU-a") == (0, 0, 0)
    assert placed(cluster, pod(memory("app", 4000), name="q")) == [[("GPU-a", "1g.5gb", 5)]]


@pytest.mark.parametrize(
    "instance", [None, UNKNOWN, MigInstance("9g.80gb", 0, 1), MigInstance("2g.10gb", 1, 2)], ids=str
)
def test_a33_an_instance_that_cannot_be_told_holds_the_whole_card_and_warns(instance: MigInstance | None) -> None:
    record = record_pod(holding("p", instance))
    cluster = Cluster(node("n", mig_card(), mig_card("GPU-b", index=1)), pods=[record])
    assert cluster.held("GPU-a") == (1, 4864, 15)
    (problem,) = problems(cluster.cache)
    assert (problem.code, problem.object) == (ProblemCode.UNDECODABLE_ALLOCATION, "pod team/p")
    assert "GPU-a" in problem.message
    assert problem_counts(cluster.cache)[problem.code] == 1
    only_a = {"nvidia.com/use-gpuuuid": "GPU-a"}
    assert cluster.refusal(pod(memory("app", 1), name="q", annotations=only_a), "n") is Code.INSUFFICIENT_MEMORY
    assert placed(cluster, pod(memory("app", 1), name="q"))[0][0][0] == "GPU-b"
    cluster.cache.remove_pod(record.uid)
    assert problems(cluster.cache) == []
    assert cluster.refusal(pod(memory("app", 1), name="q", annotations=only_a), "n") is None


def test_overlapping_instances_are_over_commitment() -> None:
    first, second = (holding(name, MigInstance("2g.10gb", 0, 2)) for name in "ab")
    cluster = Cluster(node("n", mig_card()), pods=[record_pod(first), record_pod(second)])
    (report,) = node_report(cluster.cache, "n")
    assert report.overcommitted
    assert [problem.code for problem in problems(cluster.cache)] == [ProblemCode.OVERCOMMITTED]
    assert problem_counts(cluster.cache)[ProblemCode.OVERCOMMITTED] == 1
    assert cluster.cache.overcommitted_cards(first.uid) == ("GPU-a",)
    assert cluster.refusal(pod(memory("app", 1), name="q"), "n") is Code.DEVICE_OVERCOMMITTED
    cluster.cache.remove_pod(second.uid)
    assert problems(cluster.cache) == []
    assert cluster.refusal(pod(memory("app", 1), name="q"), "n") is None


def test_a_mig_annotation_on_a_card_that_is_shared_means_nothing() -> None:
    record = record_pod(holding("p", MigInstance("1g.5gb", 0, 1)))
    cluster = Cluster(node("n", card("GPU-a")), pods=[record])
    assert cluster.refusal(pod(memory("app", 1), name="q"), "n") is None
    assert problems(cluster.cache) == []
    # The card is switched to MIG mode and back while the pod is on it.
    cluster.cache.update_node(node("n", mig_card()))
    assert cluster.refusal(pod(memory("app", 40_000), name="q"), "n") is Code.INSUFFICIENT_MEMORY
    assert cluster.refusal(pod(memory("app", 20_000), name="q"), "n") is None
    cluster.cache.update_node(node("n", card("GPU-a", 40_960)))
    assert cluster.refusal(pod(memory("app", 30_000), name="q"), "n") is None


# -- against brute force -----------------------------------------------------------------------------------------------

SMALL: MigLayout = (
    MigProfile("1g", 5, 15, 1, ((0, 1), (1, 1), (2, 1))),
    MigProfile("2g", 10, 29, 2, ((0, 2), (2, 2))),
    MigProfile("3g", 12, 43, 3, ((1, 3),)),
)
_kinds = st.sampled_from((INIT, SIDECAR, APP))


@st.composite
def asking(draw: st.DrawFn) -> list[Container]:
    kinds = sorted(draw(st.lists(_kinds, min_size=1, max_size=3)), key=lambda kind: kind is APP)
    shares = st.sampled_from((4, 5, 9, 11))
    return [
        Container("", kind, DeviceRequest(draw(st.integers(1, 2)), draw(shares), 0, draw(st.sampled_from((0, 20)))))
        for kind in kinds
    ]


@settings(deadline=None, max_examples=150)
@given(asking(), st.sets(st.integers(0, 3), max_size=2), st.booleans())
def test_the_search_says_yes_exactly_if_places_exist(containers: list[Container], taken: set[int], two: bool) -> None:
    cards = [replace(mig_card(f"GPU-{at}", index=at, layout=SMALL), slots=4, memory=40) for at in range(1 + two)]
    cluster = Cluster(node("n", *cards))
    free = [EVERY_SLICE for _ in cards]
    for at in sorted(taken):
        # Another pod holds a slice of the first card, where a 1g could be.
        if at < 3:
            row = FurtherRow.of("GPU-0", 5, 15, "NVIDIA", MigInstance("1g", at, 1))
            cluster.cache.add_pod(record_pod(pod(memory("app", 4), name=f"t{at}", node="n", allocation=((row,),))))
            free[0] &= ~(1 << at)
    asked = pod(*containers)
    expected = _exists([each.request for each in containers if each.request], free)
    assert (cluster.refusal(asked, "n") is None) == expected
    placement = cluster.place(asked, "n")
    assert (placement is not None) == expected
    if placement is not None:
        cluster.cache.add_pod(record_pod(asked._replace(node="n", allocation=placement.allocation)))
        assert problems(cluster.cache) == []
        held = device_uses(asked.containers, placement.allocation)[0]
        assert all(use.slots <= 4 for use in held)


def _exists(requests: list[DeviceRequest], free: list[int]) -> bool:
    """Try every place for every row, one row after another."""
    rows = [request for request in requests for _ in range(request.count)]

    def place(at: int, left: list[int]) -> bool:
        if at == len(rows):
            return True
        for number, profile in product(range(len(left)), SMALL):
            if profile.memory < rows[at].memory or profile.cores < rows[at].cores:
                continue
            for start, size in profile.placements:
                bits = ((1 << size) - 1) << start
                if bits & ~left[number]:
                    continue
                if place(at + 1, [*left[:number], left[number] & ~bits, *left[number + 1 :]]):
                    return True
        return False

    return place(0, free)


# -- registers and annotations -----------------------------------------------------------------------------------------

PROFILE: dict[str, object] = {"name": "2g.10gb", "memoryMB": 9984, "core": 29, "sliceCount": 2}
PROFILE |= {"placements": [{"size": 2}, {"start": 2, "size": 2}]}


def test_profiles_are_read_from_the_register() -> None:
    entry = {"id": "A", "count": 3, "devmem": 40_960, "devcore": 100, "mode": "mig", "health": True}
    (device,) = read_register("n", [entry | {"migProfiles": [PROFILE]}]).devices
    assert device.layout == (MigProfile("2g.10gb", 9984, 29, 2, ((0, 2), (2, 2))),)
    assert (device.slots, device.memory, device.cores) == (3, 40_960, 100)
    assert most_cores(A100) == 105
    assert read_register("n", [entry | {"mode": "hami-core", "migProfiles": [PROFILE]}]).devices[0].layout == ()
    bad = read_register("n", [entry | {"migProfiles": [{"name": ""}]}])
    assert bad.devices == ()
    assert "migProfiles of A: every profile needs a name" in bad.problems[0].message


@pytest.mark.parametrize(
    "value",
    ["x", [1], [{"name": "a", "memoryMB": -1}], [{"name": "a", "placements": [{"start": 7, "size": 2}]}], [{}] * 33],
)
def test_profiles_that_cannot_be_read(value: object) -> None:
    assert isinstance(read_layout(value), str)


INSTANCE: dict[str, object] = {"containerIndex": 0, "deviceIndex": 1, "gpuUUID": "A", "profile": "1g.5gb"}
INSTANCE |= {"placement": {"start": 3, "size": 1}}


def test_instances_are_read_with_and_without_the_plugins_runtime_fields() -> None:
    expected = {(0, 1): ("A", MigInstance("1g.5gb", 3, 1))}
    assert read_instances([INSTANCE]) == expected
    assert read_instances([INSTANCE | {"migUUID": "MIG-1", "gpuInstanceID": 0, "computeInstanceID": 0}]) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"containerIndex": -1},
        {"gpuUUID": ""},
        {"profile": ""},
        {"placement": {"start": 0, "size": 0}},
        {"migUUID": "MIG-1"},
        {"gpuInstanceID": 1, "computeInstanceID": 1},
    ],
    ids=str,
)
def test_one_bad_element_refuses_the_whole_mig_annotation(change: dict[str, object]) -> None:
    assert isinstance(read_instances([INSTANCE | change]), str)
    assert isinstance(read_instances([INSTANCE, INSTANCE]), str)


def test_an_element_for_another_card_is_no_knowledge() -> None:
    named = {(0, 0): ("A", MigInstance("x", 0, 1)), (0, 1): ("A", MigInstance("y", 1, 1))}
    decoded = decode_allocation("B,NVIDIA,1,1:A,NVIDIA,1,1:;", make_apps(1), "field", instances=named)
    assert isinstance(decoded, tuple)
    (own,) = decoded
    assert [row.instance for row in own] == [UNKNOWN, MigInstance("y", 1, 1)]
    # Only known cards can be named.
    (only,) = named_instances((own,))
    assert (only["deviceIndex"], only["placement"]) == (1, {"start": 1, "size": 1})


def test_nothing_is_offered_on_slices_that_are_taken() -> None:
    assert options(A100, 0, 1, 0) == ()
    assert {each.instance.start for each in options(A100, 0b1100, 1, 0)} == {2, 3}
