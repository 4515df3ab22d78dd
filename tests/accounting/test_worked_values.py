"""Worked values: the design's own examples and the faults that users reported elsewhere, as scenarios.

Each test is named after what it shows; the number in the name (A01 ...) is the report's. The tests go through the
cache, filter and allocate, as a scheduler would. They must not use the reference: the numbers are written by hand.
"""

import pytest

from accounting.codec import decode_allocation
from accounting.holdings import Total, device_uses, requested_total
from accounting.lifecycle import InitStatus, inits_over
from accounting.pod import Allocation, Container, DeviceRequest, UnreadableAllocation
from accounting.pod_record import PodRecord, State, record_pod
from accounting.selection import Selection, parse_types
from accounting.status import Code, ProblemCode
from tests.accounting.case_builders import (
    APP,
    INIT,
    SIDECAR,
    Cluster,
    asking,
    card,
    chosen,
    holder,
    memory,
    node,
    numbers,
    pod,
    request_of,
    rows,
)
from tests.builders import make_apps

ONE_CARD = node("n", card("A", 24))
#: Kinds and sizes of the containers in spec order; peak; steady.
WORKED = {
    "init 20, app 10": ("i20 a10", 20, 10),
    "init 30, app 4": ("i30 a4", 30, 4),
    "init 10 three times, app 10": ("i10 i10 i10 a10", 10, 10),
    "sidecar 10, app 10": ("s10 a10", 20, 20),
    "sidecar 2, init 20, app 10": ("s2 i20 a10", 22, 12),
    "init 20, sidecar 2, app 10": ("i20 s2 a10", 20, 12),
    "sidecar 100, init 200, app 100": ("s100 i200 a100", 300, 200),
    "init 200, sidecar 100, app 100": ("i200 s100 a100", 200, 200),
    "sidecar 2, init 5, sidecar 3, init 7, app 4": ("s2 i5 s3 i7 a4", 12, 9),
    "an init of its own": ("i8", 8, 0),
}
_KINDS = {"i": INIT, "s": SIDECAR, "a": APP}


def containers(text: str, cores: int = 0) -> list[Container]:
    """Read "s2 i20 a10": a sidecar of 2, an init of 20, an app of 10, each on one card."""
    return [memory(_KINDS[word[0]], int(word[1:]), cores) for word in text.split()]


def on_one_card(text: str) -> tuple[tuple[Container, ...], Allocation]:
    """Return the containers, and an allocation of all of them on card A."""
    own = containers(text)
    return tuple(own), rows(*[[("A", int(word[1:]), 0)] for word in text.split()])


@pytest.mark.parametrize("text, peak, steady", list(WORKED.values()), ids=list(WORKED))
class TestTheTable:
    """Every row of the table, by each way that computes the number."""

    def test_per_card(self, text: str, peak: int, steady: int) -> None:
        at_peak, later = device_uses(*on_one_card(text))
        assert [use.memory for use in at_peak] == [peak]
        assert [use.memory for use in later] == ([steady] if steady else [])

    def test_as_a_total_before_cards_are_chosen(self, text: str, peak: int, steady: int) -> None:
        own = tuple(containers(text))
        assert [total.memory for total in requested_total(own)] == [peak, steady]

    def test_in_the_states_of_a_pod(self, text: str, peak: int, steady: int) -> None:
        own, allocation = on_one_card(text)
        waiting = pod(*own, node="n", allocation=allocation, inits_over=False)
        held = [
            (record.state, sum(use.memory for use in record.held), record.held_total.memory)
            for record in map(record_pod, (waiting, waiting._replace(inits_over=True), waiting._replace(terminal=True)))
        ]
        assert held == [(State.PEAK, peak, peak), (State.STEADY, steady, steady), (State.RELEASED, 0, 0)]

    def test_by_fitting(self, text: str, peak: int, steady: int) -> None:
        asked = pod(*containers(text), annotations={"hami.io/gpu-scheduler-policy": "binpack"})
        assert Cluster(node("n", card("A", peak))).refusal(asked, "n") is None
        assert Cluster(node("n", card("A", peak - 1))).refusal(asked, "n") is Code.INSUFFICIENT_MEMORY
        # Packed, all containers go to one card though there are two.
        cluster = Cluster(node("n", card("A", peak), card("B", peak + 1, index=1)))
        placement = cluster.place(asked, "n")
        assert placement is not None
        assert [use.memory for use in placement.peak] == [peak]


def test_init_on_card_x_and_app_on_card_y_are_never_merged() -> None:
    own = (memory("init", 20), memory("app", 10))
    peak, steady = device_uses(own, rows([("X", 20, 0)], [("Y", 10, 0)]))
    assert numbers(peak) == {"X": (1, 20, 0), "Y": (1, 10, 0)}
    assert numbers(steady) == {"Y": (1, 10, 0)}


def test_init_and_app_land_on_one_card_though_each_has_its_own() -> None:
    cluster = Cluster(node("n", card("X", 20), card("Y", 20, index=1)))
    placement = cluster.place(pod(*containers("i20 a10")), "n")
    assert chosen(placement) == [["Y"], ["Y"]]
    assert placement is not None
    assert numbers(placement.peak) == {"Y": (1, 20, 0)}


def test_init_goes_elsewhere_only_where_one_card_cannot_hold_both() -> None:
    cluster = Cluster(node("n", card("X", 20), card("Y", 10, index=1)))
    placement = cluster.place(pod(*containers("i20 a10")), "n")
    assert placement is not None
    # The app goes first and takes the last of two equally empty cards; the init then fits only on the other.
    assert numbers(placement.peak) == {"X": (1, 20, 0), "Y": (1, 10, 0)}
    full = Cluster(node("n", card("X", 20), card("Y", 10, index=1)), pods=[_holding("X", 5)])
    assert full.refusal(pod(*containers("i20 a10")), "n") is Code.INSUFFICIENT_MEMORY


def _holding(uuid: str, mebibytes: int) -> PodRecord:
    own = pod(memory("app", mebibytes), name="other", node="n", allocation=rows([(uuid, mebibytes, 0)]))
    return record_pod(own)


def test_dimensions_peak_in_different_phases() -> None:
    own = (memory("init", 20), memory("sidecar", 2), memory("app", 10))
    allocation = rows([("A", 20, 5)], [("A", 2, 30)], [("A", 10, 40)])
    peak, steady = device_uses(own, allocation)
    assert numbers(peak) == {"A": (2, 20, 70)}
    assert numbers(steady) == {"A": (2, 12, 70)}


# -- A.1 inits, sidecars, slots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10_000, 7168])
def test_a01_inits_do_not_add_up_so_a_second_pod_runs(size: int) -> None:
    two = node("two", card("A", 16_000), card("B", 16_000, index=1))
    three = node("three", *[card(f"C{index}", 16_000, index=index) for index in range(3)])
    for each in (two, three):
        cluster = Cluster(each)
        for number in (1, 2):
            own = [memory("init", size)] * 3 + [memory("app", size)]
            bound = cluster.bind(pod(*own, name=f"p{number}"), each.name)
            assert sum(use.memory for use in record_pod(bound).held) == size
        assert cluster.cache.used("team").memory == 2 * size


def test_a02_what_the_init_needed_is_free_after_it() -> None:
    cluster = Cluster(ONE_CARD)
    first = cluster.bind(pod(*containers("i20 a10"), name="first"), "n")
    second = pod(*containers("a12"), name="second")
    assert cluster.held("A") == (1, 20, 0)
    assert cluster.refusal(second, "n") is Code.INSUFFICIENT_MEMORY
    cluster.cache.update_pod(record_pod(first._replace(inits_over=True)))
    assert cluster.held("A") == (1, 10, 0)
    cluster.bind(second, "n")
    assert cluster.held("A") == (2, 22, 0)


def test_a05_a_sidecar_adds_to_the_app() -> None:
    cluster = Cluster(ONE_CARD)
    cluster.bind(pod(*containers("s10 a10")), "n")
    assert cluster.held("A") == (2, 20, 0)
    assert cluster.refusal(pod(*containers("a12"), name="second"), "n") is Code.INSUFFICIENT_MEMORY
    other = Cluster(node("n", card("A")))
    other.bind(pod(*containers("s4000 a4000")), "n")
    assert other.held("A") == (2, 8000, 0)


def test_a06_the_shrink_does_not_wait_for_the_sidecar() -> None:
    cluster = Cluster(ONE_CARD)
    bound = cluster.bind(pod(*containers("s2 i20 a10")), "n")
    assert cluster.held("A") == (2, 22, 0)
    # The statuses hold one entry for the init; the sidecar, which never ends, has none.
    cluster.cache.update_pod(record_pod(bound._replace(inits_over=inits_over([InitStatus(succeeded=True)]))))
    assert cluster.held("A") == (2, 12, 0)


def test_a07_a_sidecar_between_two_restarts_changes_nothing() -> None:
    cluster = Cluster(ONE_CARD)
    bound = cluster.bind(pod(*containers("s2 i20 a10")), "n")
    running = inits_over([InitStatus(succeeded=False)])
    for _ in ("running", "terminated with exit code 0", "running"):
        cluster.cache.update_pod(record_pod(bound._replace(inits_over=running)))
        assert cluster.held("A") == (2, 22, 0)


def test_a05_a06_a07_in_one_run() -> None:
    cluster = Cluster(ONE_CARD)
    pair = cluster.bind(pod(*containers("s10 a10"), name="pair"), "n")
    assert cluster.held("A") == (2, 20, 0)
    cluster.cache.remove_pod(pair.uid)
    bound = cluster.bind(pod(*containers("s2 i20 a10")), "n")
    assert cluster.held("A") == (2, 22, 0)
    for done, memory_held in ((False, 22), (True, 12), (False, 22), (True, 12)):
        # The third step: the init runs again, and the peak comes back.
        cluster.cache.update_pod(record_pod(bound._replace(inits_over=inits_over([InitStatus(done)]))))
        assert cluster.held("A") == (2, memory_held, 0)


@pytest.mark.parametrize("text, charge, admitted", [("s100 i200 a100", 300, False), ("i200 s100 a100", 200, True)])
def test_a08_the_order_of_sidecar_and_init_decides(text: str, charge: int, *, admitted: bool) -> None:
    peak, _ = requested_total(tuple(containers(text)))
    assert peak.memory == charge
    assert (peak.memory <= 250) == admitted


def test_a10_an_init_that_asks_for_no_gpu_changes_no_total() -> None:
    apps = [asking("app", {"gpu": 1, "gpumem-percentage": 40})] * 2
    for own in (apps, [asking("init", None), *apps]):
        cluster = Cluster(node("n", card("A", 40_000)))
        bound = record_pod(cluster.bind(pod(*own), "n"))
        assert numbers(bound.held) == {"A": (2, 32_000, 0)}
        assert bound.held_total == Total(2, 32_000, 0)
        assert bound.total_steady == bound.total_peak


def test_a12_two_apps_on_one_card_use_two_slots() -> None:
    cluster = Cluster(node("n", card("A", 40_000)))
    cluster.bind(pod(memory("app", 10_000, 5), memory("app", 10_000, 5)), "n")
    assert cluster.held("A") == (2, 20_000, 10)


@pytest.mark.parametrize(
    "text, slots", [("i1 i1 i1", 1), ("i1 a1", 1), ("s1 a1", 2), ("s1 i1", 2), ("s1 i1 a1", 2), ("i1 s1 a1", 2)]
)
def test_a12_an_init_adds_at_most_one_slot_and_a_sidecar_adds_like_an_app(text: str, slots: int) -> None:
    (use,), _ = device_uses(*on_one_card(text))
    assert use.slots == slots


def test_a14_a_sidecar_counts_in_memory_and_in_number() -> None:
    peak, steady = requested_total((memory("sidecar", 4), memory("app", 4)))
    assert peak == steady == Total(2, 8, 0)


def test_a15_a_sidecar_is_no_plain_init_for_a_quota() -> None:
    peak, _ = requested_total((memory("sidecar", 2), memory("app", 3)))
    assert peak.memory == 5
    assert peak.memory > 4


def test_a17_sidecar_and_app_of_eight_need_sixteen_devices() -> None:
    asked = pod(memory("sidecar", 1, count=8), memory("app", 1, count=8))
    assert requested_total(asked.containers)[0].count == 16
    whole = [card(f"GPU-{index}", index=index, slots=1) for index in range(8)]
    assert Cluster(node("n", *whole)).refusal(asked, "n") is Code.INSUFFICIENT_SLOTS
    # Where cards are shared, the kubelet's count refuses what the cards could hold.
    shared = [card(f"GPU-{index}", index=index) for index in range(8)]
    assert Cluster(node("n", *shared)).refusal(asked, "n") is None
    counted = node("n", *shared, count_allocatable=15)
    assert Cluster(counted).refusal(asked, "n") is Code.INSUFFICIENT_NODE_COUNT


def test_a18_a_finished_pod_that_turns_failed_is_not_released_twice() -> None:
    cards = [card(f"GPU-{index}", index=index, slots=1) for index in range(4)]
    cluster = Cluster(node("n", *cards))
    job = cluster.bind(pod(memory("app", 1), name="job"), "n")
    finished = record_pod(job._replace(terminal=True))
    cluster.cache.update_pod(finished)
    deployment = cluster.bind(pod(memory("app", 1, count=4), name="deployment"), "n")
    assert deployment.node == "n"
    for _ in ("Succeeded again", "Failed after the kubelet's restart"):
        cluster.cache.update_pod(finished)
    cluster.cache.remove_pod(job.uid)
    cluster.cache.remove_pod(job.uid)
    assert [cluster.held(each.uuid) for each in cards] == [(1, 1, 0)] * 4
    assert cluster.cache.used("team") == Total(4, 4, 0)


# -- A.2 annotations ---------------------------------------------------------------------------------------------------


def _decoded(text: str, number: int) -> Allocation:
    allocation = decode_allocation(text, make_apps(number), "annotation")
    assert not isinstance(allocation, UnreadableAllocation)
    return allocation


@pytest.mark.parametrize("nothing", [";", ",,0,0:;"], ids=["a lone semicolon", "a device of zeros"])
def test_a21_only_the_second_of_five_containers_has_a_device(nothing: str) -> None:
    text = nothing + "GPU-a,NVIDIA,3000,30:;" + 3 * nothing
    assert _decoded(text, 5) == rows([], [("GPU-a", 3000, 30)], [], [], [])


def test_a22_a_leading_semicolon_is_an_empty_container() -> None:
    assert _decoded(";GPU-a,NVIDIA,3000,30:;", 2) == rows([], [("GPU-a", 3000, 30)])


def test_a25_the_second_container_goes_where_there_is_room() -> None:
    cluster = Cluster(node("n", card("one", 10), card("two", 10, index=1)))
    for policy in ("spread", "binpack"):
        notes = {"hami.io/gpu-scheduler-policy": policy}
        first, second = chosen(cluster.place(pod(*containers("a10 a1"), annotations=notes), "n"))
        assert sorted(first + second) == ["one", "two"]


def test_a26_a_first_container_without_a_device_is_valid() -> None:
    cluster = Cluster(node("n", card("A")))
    bound = cluster.bind(pod(asking("app", None), memory("app", 100)), "n")
    assert bound.allocation == rows([], [("A", 100, 0)])
    assert cluster.held("A") == (1, 100, 0)
    assert record_pod(pod(asking("app", None), name="none", node="n", allocation=rows([]))).held == ()


def test_a27_seven_rows_for_eight_containers_concern_that_pod_alone() -> None:
    cluster = Cluster(node("n", card("A")), node("m", card("B")))
    healthy = cluster.bind(pod(memory("app", 100), name="healthy"), "m")
    allocation = decode_allocation("A,NVIDIA,100,0:;" * 7, make_apps(8), "annotation")
    assert not isinstance(allocation, UnreadableAllocation)
    odd = record_pod(pod(*[memory("app", 100)] * 8, name="odd", node="n", allocation=allocation))
    cluster.cache.add_pod(odd)
    assert odd.problem is not None
    assert odd.problem.code is ProblemCode.AMBIGUOUS_ALLOCATION
    assert cluster.held("A") == (7, 700, 0)
    assert cluster.refusal(pod(memory("app", 1)), "n") is None
    assert cluster.refusal(pod(memory("app", 1)), "m") is None
    assert cluster.held("B", "m") == (1, 100, 0)
    assert healthy.uid in cluster.cache.pods


@pytest.mark.parametrize("broken", ["A,NVIDIA,x,30:;", "junk:", "junk:;", "A,NVIDIA,-1,30:;", ""])
def test_a28_the_last_good_value_is_kept(broken: str) -> None:
    cluster = Cluster(node("n", card("A")))
    bound = cluster.bind(pod(memory("app", 8000)), "n")
    other = cluster.bind(pod(memory("app", 1000), name="other"), "n")
    allocation = decode_allocation(broken, make_apps(1), "annotation")
    assert isinstance(allocation, UnreadableAllocation)
    damaged = record_pod(bound._replace(allocation=allocation))
    for _ in ("first", "again"):
        cluster.cache.update_pod(damaged)
        assert cluster.held("A") == (2, 9000, 0)
        assert cluster.cache.used("team").memory == 9000
    problem = cluster.cache.pods[bound.uid].problem
    assert problem is not None
    assert problem.code is ProblemCode.UNDECODABLE_ALLOCATION
    assert cluster.cache.pods[other.uid].problem is None
    assert cluster.refusal(pod(memory("app", 1), name="third"), "n") is None
    # A fresh process has no last good value, so the card is blocked instead.
    fresh = Cluster(node("n", card("A")), pods=[damaged])
    blocked = Code.DEVICE_BLOCKED if "A," in broken else Code.ALLOCATION_UNREADABLE
    assert fresh.refusal(pod(memory("app", 1), name="third"), "n") is blocked


# -- A.7 types, exclusivity, units -------------------------------------------------------------------------------------

SXM, PCIE = "NVIDIA A100-SXM4-80GB", "NVIDIA-Tesla V100-PCIE-32GB"


@pytest.mark.parametrize(
    "wanted, model, matches",
    [
        ("A100", SXM, True),
        ("a100", SXM, True),
        ("A10", SXM, False),
        ("A100-SXM4", SXM, True),
        ("A100-SXM4-80GB", SXM, True),
        ("NVIDIA A100", SXM, True),
        ("nvidia", SXM, True),
        ("SXM4 A100", SXM, False),
        ("A100-80GB", SXM, False),
        ("80GB", SXM, True),
        ("80", SXM, False),
        ("A1000", SXM, False),
        ("H20", "NVIDIA H200", False),
        ("H20", "NVIDIA H20", True),
        ("H200", "NVIDIA H200", True),
        ("A10", "NVIDIA A10", True),
        ("A100,A10", "NVIDIA A10", True),
        (" A100 , A10 ", "NVIDIA A10", True),
        ("V100", PCIE, True),
        ("Tesla V100", PCIE, True),
        ("Tesla-V100-PCIE", PCIE, True),
        ("V100S", PCIE, False),
        ("T4", "Tesla T4", True),
        ("T4", "NVIDIA T400", False),
        ("A100", "", False),
        ("", SXM, True),
        (" , ", SXM, True),
        ("***", SXM, False),
    ],
)
def test_a89_types_match_by_whole_tokens_in_sequence(wanted: str, model: str, *, matches: bool) -> None:
    assert Selection(use_types=parse_types(wanted)).accepts_type(model) == matches
    cluster = Cluster(node("n", card("A", type=model)))
    asked = pod(memory("app", 1), annotations={"nvidia.com/use-gputype": wanted})
    assert cluster.refusal(asked, "n") is (None if matches else Code.TYPE_MISMATCH)


@pytest.mark.parametrize(
    "unwanted, model, refused",
    [
        ("A100", SXM, True),
        ("A10", SXM, False),
        ("H20", "NVIDIA H200", False),
        ("H200,A100", "NVIDIA H200", True),
        ("", SXM, False),
        ("***", SXM, False),
    ],
)
def test_a89_types_are_avoided_by_whole_tokens_too(unwanted: str, model: str, *, refused: bool) -> None:
    cluster = Cluster(node("n", card("A", type=model)))
    asked = pod(
        memory("app", 1),
        annotations={"nvidia.com/nouse-gputype": unwanted, "nvidia.com/use-gputype": "NVIDIA"},
    )
    assert cluster.refusal(asked, "n") is (Code.TYPE_MISMATCH if refused else None)


def test_a92_a_card_taken_with_cores_100_takes_nobody_else() -> None:
    cluster = Cluster(node("n", card("A")))
    cluster.bind(pod(memory("app", 1000, 100), name="first"), "n")
    for cores in (0, 10, 100):
        refusal = cluster.refusal(pod(memory("app", 1000, cores), name="second"), "n")
        assert refusal is Code.EXCLUSIVE_CONFLICT


@pytest.mark.parametrize("cores", [0, 10])
def test_a92_cores_100_need_a_card_that_nobody_uses(cores: int) -> None:
    cluster = Cluster(node("n", card("A")))
    cluster.bind(pod(memory("app", 1000, cores), name="first"), "n")
    refusal = cluster.refusal(pod(memory("app", 1000, 100), name="second"), "n")
    assert refusal is (Code.INSUFFICIENT_CORES if cores else Code.EXCLUSIVE_CONFLICT)


def test_a92_cores_100_are_exclusive_on_a_card_of_any_core_scaling() -> None:
    cluster = Cluster(node("n", card("A", cores=200)))
    cluster.bind(pod(memory("app", 1000, 100), name="first"), "n")
    assert cluster.refusal(pod(memory("app", 1000, 50), name="second"), "n") is Code.EXCLUSIVE_CONFLICT
    shared = Cluster(node("n", card("A", cores=200)))
    shared.bind(pod(memory("app", 1000, 50), name="first"), "n")
    assert shared.refusal(pod(memory("app", 1000, 100), name="second"), "n") is Code.EXCLUSIVE_CONFLICT


def test_a92_an_exclusive_init_gives_the_card_back_with_its_shrink() -> None:
    cluster = Cluster(node("n", card("A")))
    bound = cluster.bind(pod(memory("init", 1000, 100), memory("app", 1000), name="first"), "n")
    second = pod(memory("app", 1000), name="second")
    assert cluster.refusal(second, "n") is Code.EXCLUSIVE_CONFLICT
    cluster.cache.update_pod(record_pod(bound._replace(inits_over=True)))
    assert cluster.refusal(second, "n") is None


def test_a92_sums_that_reach_100_do_not_make_a_card_exclusive() -> None:
    cluster = Cluster(node("n", card("A", cores=200)))
    cluster.bind(pod(memory("app", 1000, 50), name="first"), "n")
    cluster.bind(pod(memory("app", 1000, 50), name="second"), "n")
    assert cluster.refusal(pod(memory("app", 1000, 0), name="third"), "n") is None
    full = Cluster(node("n", card("A")))
    full.bind(pod(memory("app", 1000, 50), name="first"), "n")
    full.bind(pod(memory("app", 1000, 50), name="second"), "n")
    assert full.refusal(pod(memory("app", 1000, 0), name="third"), "n") is Code.INSUFFICIENT_CORES


def test_a94_a_percentage_of_0_is_not_asked_and_means_the_whole_card() -> None:
    cluster = Cluster(node("n", card("A", 32_768)))
    bound = cluster.bind(pod(asking("app", {"gpu": 1, "gpumem-percentage": 0}), name="first"), "n")
    assert bound.allocation == rows([("A", 32_768, 0)])
    assert cluster.refusal(pod(memory("app", 30_000), name="second"), "n") is Code.INSUFFICIENT_MEMORY


@pytest.mark.parametrize("percentage", [101, 150, 2**32 + 50, -1, "102", "50.5", "1e3", 2**64 + 50, "500m"])
def test_a95_a_percentage_outside_0_to_100_is_refused(percentage: object) -> None:
    request, invalid = request_of({"gpu": 1, "gpumem-percentage": percentage})
    assert request is None
    (why,) = invalid
    assert why.field == "spec.containers[main].resources.limits[nvidia.com/gpumem-percentage]"
    assert why.value == str(percentage)
    assert why.why == "must be an integer between 0 and 100"


@pytest.mark.parametrize("percentage", [1, 50, 100, "5e1", "50000m", 50.0])
def test_a95_a_percentage_up_to_100_is_taken(percentage: object) -> None:
    request, invalid = request_of({"gpu": 1, "gpumem-percentage": percentage})
    assert not invalid
    assert request is not None
    assert request.memory_percentage in (1, 50, 100)


def test_a95_a_count_alone_is_the_whole_card() -> None:
    request, _ = request_of({"gpu": 1})
    assert request == DeviceRequest(1, 0, 100, 0, whole=True)


@pytest.mark.parametrize(
    "written, why",
    [
        ("16Gi", "unit is MiB, write 16384"),
        ("16.0Gi", "unit is MiB, write 16384"),
        ("4Ti", "unit is MiB, write 4194304"),
        (2**31, "unit is MiB, write 2048"),
        (2**31 + 1, "must be an integer number of MiB up to 2147483647"),
        ("1E", "must be an integer number of MiB up to 2147483647"),
        ("1500m", "must be an integer number of MiB"),
        (1.5, "must be an integer number of MiB"),
        (-1, "must not be negative"),
        ("-500m", "must not be negative"),
        ("NaN", "not a quantity"),
        ("", "not a quantity"),
        (True, "not a quantity"),
    ],
)
def test_a96_memory_that_cannot_be_mebibytes_is_refused(written: object, why: str) -> None:
    request, (invalid,) = request_of({"gpu": 1, "gpumem": written})
    assert request is None
    assert (invalid.field, invalid.value, invalid.why) == (
        "spec.containers[main].resources.limits[nvidia.com/gpumem]",
        str(written),
        why,
    )


@pytest.mark.parametrize("written", [16_384, "16384", "16384000m", "1.6384e4", 16_384.0], ids=repr)
def test_a96_memory_in_mebibytes_is_taken_as_it_is_written(written: object) -> None:
    request, invalid = request_of({"gpu": 1, "gpumem": written})
    assert not invalid
    assert request == DeviceRequest(1, 16_384, 0, 0)


def test_a96_count_times_size_does_not_overflow() -> None:
    request, invalid = request_of({"gpu": 2**31 - 1, "gpumem": 2**31 - 1})
    assert not invalid
    assert request is not None
    peak, _ = requested_total((Container("main", APP, request),) * 2)
    assert peak == Total(2 * (2**31 - 1), 2 * (2**31 - 1) ** 2, 0)
    asked = pod(Container("main", APP, request))
    assert Cluster(node("n", card("A"))).refusal(asked, "n") is Code.INSUFFICIENT_DEVICES


def test_a96_pods_that_are_bound_by_force_do_not_wrap_the_nodes_count_around() -> None:
    most = memory("app", 1, count=2**31 - 1)
    lost = [record_pod(pod(most, most, name=name, node="n")) for name in ("a", "b")]
    cluster = Cluster(node("n", card("A"), count_allocatable=10), pods=lost)
    assert cluster.cache.used("team").count == 4 * (2**31 - 1)
    assert cluster.refusal(pod(memory("app", 1)), "n") is Code.INSUFFICIENT_NODE_COUNT
    for record in lost:
        cluster.cache.remove_pod(record.uid)
    assert cluster.refusal(pod(memory("app", 1)), "n") is None


def test_a100_memory_is_per_card_and_not_the_sum() -> None:
    cards = [card(f"GPU-{index}", 81_920, index=index) for index in range(8)]
    cluster = Cluster(node("n", *cards))
    bound = cluster.bind(pod(memory("app", 40_960, count=4)), "n")
    held = record_pod(bound).held
    assert [use.memory for use in held] == [40_960] * 4
    assert cluster.cache.used("team") == Total(4, 4 * 40_960, 0)


@pytest.mark.parametrize("policy", ["binpack", "spread", "numa", "mutex", "binpack,numa", "spread,mutex"])
def test_a102_the_best_card_is_found_among_one_and_among_equals(policy: str) -> None:
    notes = {"hami.io/gpu-scheduler-policy": policy}
    asked = pod(memory("app", 10), annotations=notes)
    assert chosen(Cluster(node("n", card("only"))).place(asked, "n")) == [["only"]]
    equal = Cluster(node("n", *[card(f"GPU-{index}", index=index) for index in range(4)]))
    assert chosen(equal.place(asked, "n")) == [["GPU-3"]]
    # All but the second are too small for the pod.
    cards = [card(f"GPU-{index}", 10 if index == 1 else 9, index=index) for index in range(4)]
    assert chosen(Cluster(node("n", *cards)).place(asked, "n")) == [["GPU-1"]]
    none = Cluster(node("n", *[card(f"GPU-{index}", 9, index=index) for index in range(4)]))
    assert none.place(asked, "n") is None


def test_the_kubelets_count_is_the_peak_for_a_pods_whole_life() -> None:
    own = node("n", card("A"), count_allocatable=3)
    cluster = Cluster(own, pods=[holder("n", (), count=1)])
    bound = cluster.bind(pod(memory("init", 1), memory("init", 1), memory("sidecar", 1), memory("app", 1)), "n")
    cluster.cache.update_pod(record_pod(bound._replace(inits_over=True)))
    assert cluster.refusal(pod(memory("app", 1), name="second"), "n") is Code.INSUFFICIENT_NODE_COUNT
    cluster.cache.remove_pod(bound.uid)
    assert cluster.refusal(pod(memory("app", 1), name="second"), "n") is None


# -- cards that take nobody else (design 2.2) --------------------------------------------------------------------------

#: Rows on card A in spec order, and whether the peak is exclusive, crowded, then the steady state.
MARKS = {
    "nobody takes it whole": ("i 10, s 10, a 10", (False, False), (False, False)),
    "an exclusive app alone": ("a 100", (True, False), (True, False)),
    "an exclusive app after an init": ("i 10, a 100", (True, False), (True, False)),
    "an exclusive app beside a sidecar": ("s 0, a 100", (True, True), (True, True)),
    "two exclusive apps": ("a 100, a 100", (True, True), (True, True)),
    "an exclusive init before an app": ("i 100, a 10", (True, False), (False, False)),
    "an exclusive init after a sidecar": ("s 0, i 100, a 10", (True, True), (False, False)),
    "an exclusive init before a sidecar": ("i 100, s 0, a 10", (True, False), (False, False)),
    "exclusive inits one after another": ("i 100, i 100, a 10", (True, False), (False, False)),
    "sums that reach 100": ("s 50, a 50", (False, False), (False, False)),
}


@pytest.mark.parametrize("text, peak, steady", list(MARKS.values()), ids=list(MARKS))
def test_exclusive_and_crowded_rows(text: str, peak: tuple[bool, bool], steady: tuple[bool, bool]) -> None:
    parts = [part.split() for part in text.split(", ")]
    own = tuple(memory(_KINDS[kind], 10, int(cores)) for kind, cores in parts)
    allocation = rows(*[[("A", 10, int(cores))] for _, cores in parts])
    marks = [tuple((use.exclusive, use.crowded) for use in uses) for uses in device_uses(own, allocation)]
    assert marks == [(peak,), (steady,)]


def test_a_pod_that_crowds_its_own_exclusive_card_is_over_committed_until_the_shrink() -> None:
    """Only another scheduler writes such rows; a card with cores to spare can count them."""
    allocation = rows([("A", 10, 0)], [("A", 10, 100)], [("A", 10, 10)])
    bound = pod(
        memory("sidecar", 10),
        memory("init", 10, 100),
        memory("app", 10, 10),
        name="first",
        node="n",
        allocation=allocation,
    )
    cluster = Cluster(node("n", card("A", cores=200)), pods=[record_pod(bound)])
    second = pod(memory("app", 10), name="second")
    assert cluster.refusal(second, "n") is Code.DEVICE_OVERCOMMITTED
    cluster.cache.update_pod(record_pod(bound._replace(inits_over=True)))
    assert cluster.refusal(second, "n") is None


def test_an_exclusive_holder_beside_another_holder_is_over_committed() -> None:
    taken = record_pod(pod(memory("app", 10, 100), name="a", node="n", allocation=rows([("A", 10, 100)])))
    beside = record_pod(pod(memory("app", 10), name="b", node="n", allocation=rows([("A", 10, 0)])))
    cluster = Cluster(node("n", card("A", cores=200)), pods=[taken, beside])
    assert cluster.refusal(pod(memory("app", 10), name="c"), "n") is Code.DEVICE_OVERCOMMITTED
    cluster.cache.remove_pod(taken.uid)
    assert cluster.refusal(pod(memory("app", 10), name="c"), "n") is None


# -- allocations that are missing or unreadable (design 2.2) -----------------------------------------------------------

JUNK = decode_allocation("A,NVIDIA,x,0:;", make_apps(1), "annotation")


def test_a_bound_pod_without_an_allocation_blocks_its_node() -> None:
    record = record_pod(pod(memory("app", 100), name="lost", node="n"))
    assert record.problem is not None
    assert record.problem.code is ProblemCode.MISSING_ALLOCATION
    cluster = Cluster(node("n", card("A")), node("m", card("B")), pods=[record])
    asked = pod(memory("app", 1))
    assert cluster.refusal(asked, "n") is Code.ALLOCATION_UNREADABLE
    assert cluster.refusal(asked, "m") is None
    # Meanwhile the kubelet's count and the quota's charge come from the spec.
    assert cluster.cache.used("team") == Total(1, 100, 0)
    cluster.cache.remove_pod(record.uid)
    assert cluster.refusal(asked, "n") is None


@pytest.mark.parametrize("allocation", [None, JUNK], ids=["missing", "unreadable"])
def test_what_blocks_nothing(allocation: UnreadableAllocation | None) -> None:
    lost = pod(memory("app", 100), name="lost", node="n", allocation=allocation)
    for harmless in (lost._replace(node=None), lost._replace(terminal=True)):
        record = record_pod(harmless)
        assert (record.blocks, record.problem) == (None, None)
        assert Cluster(node("n", card("A")), pods=[record]).refusal(pod(memory("app", 1)), "n") is None
    asks_nothing = record_pod(pod(asking("app", None), name="plain", node="n", allocation=allocation))
    assert asks_nothing.blocks is None


def test_an_unreadable_allocation_blocks_the_cards_that_it_still_names() -> None:
    record = record_pod(pod(memory("app", 100), name="lost", node="n", allocation=JUNK))
    assert record.blocks == ("A",)
    cluster = Cluster(node("n", card("A"), card("B", index=1)), pods=[record])
    assert chosen(cluster.place(pod(memory("app", 1)), "n")) == [["B"]]
    assert cluster.refusal(pod(memory("app", 1, count=2)), "n") is Code.DEVICE_BLOCKED


# -- requests that contradict themselves (design 6.5) ------------------------------------------------------------------

SPEC = "spec.containers[main].resources"


@pytest.mark.parametrize(
    "limits, requests, field, why",
    [
        ({"gpu": -1}, {}, "limits[nvidia.com/gpu]", "must not be negative"),
        ({"gpu": 1.5}, {}, "limits[nvidia.com/gpu]", "must be an integer"),
        ({"gpu": "500m"}, {}, "limits[nvidia.com/gpu]", "must be an integer"),
        ({"gpu": 2**31}, {}, "limits[nvidia.com/gpu]", "is too large"),
        ({"gpu": 1, "gpucores": -1}, {}, "limits[nvidia.com/gpucores]", "must not be negative"),
        ({"gpu": 1, "gpucores": "0.5"}, {}, "limits[nvidia.com/gpucores]", "must be an integer"),
        ({"gpu": 1}, {"gpu": 2}, "requests[nvidia.com/gpu]", "must equal the limit 1"),
        ({"gpu": 1}, {"gpu": "two"}, "requests[nvidia.com/gpu]", "not a quantity"),
        ({}, {"gpu": "two"}, "requests[nvidia.com/gpu]", "not a quantity"),
        # A bad value is named also where no card is asked for, or where the resource that it belongs to is missing.
        ({"gpu": 0, "gpumem": "16Gi"}, {}, "limits[nvidia.com/gpumem]", "unit is MiB, write 16384"),
        ({"gpumem": "16Gi"}, {}, "limits[nvidia.com/gpumem]", "unit is MiB, write 16384"),
    ],
)
def test_a_bad_value_is_named(limits: dict, requests: dict, field: str, why: str) -> None:
    request, (invalid,) = request_of(limits, requests)
    assert request is None
    assert (invalid.field, invalid.why) == (f"{SPEC}.{field}", why)


def test_every_bad_value_of_a_container_is_named_and_a_huge_one_is_not_printed() -> None:
    request, invalid = request_of({"gpu": -1, "gpumem": "16Gi", "gpumem-percentage": 150, "gpucores": 10**5000})
    assert request is None
    assert [each.value for each in invalid] == ["-1", "16Gi", "150", "an integer of very many digits"]


@pytest.mark.parametrize(
    "limits, requests",
    [({"gpu": 0}, {}), ({}, {}), ({"gpumem": 1000}, {}), ({"gpucores": 10}, {}), ({"gpu": "0", "gpumem": 1}, {})],
)
def test_0_is_not_asked_and_memory_alone_asks_for_no_card(limits: dict, requests: dict) -> None:
    assert request_of(limits, requests) == (None, ())


@pytest.mark.parametrize("requests", [{"gpu": 2}, {"gpu": "2"}, {"gpu": "2000m"}], ids=repr)
def test_equal_limits_and_requests_may_be_written_differently(requests: dict) -> None:
    assert request_of({"gpu": 2}, requests) == request_of({"gpu": 2}) == request_of({}, requests)
