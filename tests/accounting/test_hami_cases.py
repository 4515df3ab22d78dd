"""HAMi's own test cases, run against our rules: parsing, order of cards, accounting, fitting.

Every case of hami_cases.json is run, or its id or group stands in NOT_APPLICABLE with the reason. Where the design
overrules HAMi, the right value stands in RIGHT with the reason, which is also in the test's id.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pytest

from accounting.answers.filter import filter_nodes
from accounting.answers.rejection import CHECKS
from accounting.cards.score import MAX_SCORE, hami_score, node_loads, score_nodes
from accounting.codec import decode_allocation, encode_allocation
from accounting.handshake import judge
from accounting.holdings import DeviceUse, Total, device_uses, pod_total, requested_total
from accounting.lifecycle import InitStatus, inits_over
from accounting.mig_profiles import MigLayout, MigProfile
from accounting.node import Device
from accounting.pod import Container, ContainerKind, DeviceRequest, Pod, UnreadableAllocation
from accounting.pod_record import PodRecord, State, record_pod
from accounting.policy import (
    CardKey,
    NodePolicy,
    Weights,
    card_keys,
    parse_card_policy,
    parse_node_policy,
    parse_weights,
)
from accounting.quota.limits import QuotaCheck, QuotaTable
from accounting.quota.objects import read_quota
from accounting.register import decode_legacy_register, encode_legacy_register, read_register
from accounting.selection import Selection
from accounting.state.snapshot import weighted_load
from accounting.state.tables import card_load
from accounting.status import CODES as STATUS_CODES
from accounting.status import Code, Invalid, ProblemCode
from accounting.topology import read_links
from accounting.vendor import NVIDIA
from extender.convert.allocation_text import mig_text
from extender.live.watching.handshakes import requested_at
from tests.accounting.case_builders import (
    APP,
    INIT,
    Cluster,
    asking,
    card,
    chosen,
    holder,
    long_names,
    memory,
    node,
    numbers,
    pod,
    read_cases,
    request_of,
    rows,
    words,
)
from tests.builders import make_apps

Case = dict[str, Any]
ALL = {case["id"]: case for case in read_cases("hami_cases.json")}

_WIRE = "about requests over HTTP and locks on nodes, of which accounting knows nothing"

#: Case id or group -> why it is not run here.
NOT_APPLICABLE = {
    **dict.fromkeys(
        (f"nvhs-{n}" for n in range(5)), "NVIDIA's plugin does not write the handshake, and it is not read"
    ),
    "q-unknown-dev": "there is one vendor; what it does not know asks for nothing, see wq-other-vendor",
    "q-singleton": "about one object per process, which is a matter of construction",
    "is-sidecar": "restartPolicy is read where manifests are decoded; accounting is told the kind",
    "obs-init-only-no-lock": _WIRE,
    "obs-nil-nodes": _WIRE,
    "obs-big-body": _WIRE,
    "obs-phantom": "filter records nothing that a later filter could drop; refilter-evicts shows it",
}

#: Case id -> why the design overrules HAMi, in words.
OVERRULED = {
    "gr4": "a percentage over 100 is refused",
    "gr5": "a percentage over 100 is refused",
    "gr6": "a percentage over 100 is refused",
    "gr12": "a negative percentage is refused",
    "gr14": "memory over int32 is refused, not ignored",
    "gr15": "memory over int32 is refused, not ignored",
    "gr17": "memory over int32 after the factor is refused, not ignored",
    "gate-0": "without inits a pod is steady from the start",
    "bad-annotation": "an unreadable allocation blocks its card",
    "refilter-evicts": "filter only reads",
    "fd-type": "another vendor's cards are no cards for a pod",
    "fd-slots": "more slots used than there are is over-commitment",
    "nv-nouse": "too few cards on the node comes before what is wrong with them",
    "fq11": "a total is no sum over cards",
    "obs-numa-topology": "numa bind holds under topology aware too",
    "obs-bad-memory-passthrough": "unusable memory is an invalid request on every node",
    "obs-restart": "held is a function of the pod, so a restart books the steady state",
    "obs-flap": "allocatable 0 takes no new pods, on every pass",
}

#: HAMi's reason -> ours.
CODES = {
    "CardNotHealth": Code.DEVICE_UNHEALTHY,
    "CardCordoned": Code.DEVICE_CORDONED,
    "CardTypeMismatch": Code.TYPE_MISMATCH,
    "CardMigTopologyInfeasible": Code.INSUFFICIENT_MEMORY,
    "CardUuidMismatch": Code.UUID_MISMATCH,
    "CardTimeSlicingExhausted": Code.INSUFFICIENT_SLOTS,
    "ExclusiveDeviceAllocateConflict": Code.EXCLUSIVE_CONFLICT,
    "CardInsufficientMemory": Code.INSUFFICIENT_MEMORY,
    "CardInsufficientCore": Code.INSUFFICIENT_CORES,
    "CardComputeUnitsExhausted": Code.INSUFFICIENT_CORES,
    "NumaNotFit": Code.NUMA_MISMATCH,
    "NodeInsufficientDevice": Code.INSUFFICIENT_DEVICES,
    "ModeNotFit": Code.MODE_MISMATCH,
}
#: Not a reason by itself: it counts the cards that were found beside the others' reasons.
_COUNTER = "AllocatedCardsInsufficientRequest"


def _skipped(case: Case) -> bool:
    return case["id"] in NOT_APPLICABLE or case["group"] in NOT_APPLICABLE


def _cases(*groups: str, ids: Iterable[str] = ()) -> list[Any]:
    wanted = set(ids)
    return [
        pytest.param(case, id=words(f"{name} {OVERRULED.get(name, '')}"))
        for name, case in ALL.items()
        if case["group"] in groups and not _skipped(case) and (not wanted or name in wanted)
    ]


def _of(*names: str) -> pytest.MarkDecorator:
    """Give a test its case, or several by turns, and note that it runs them."""
    OWN_TEST.update(names)
    return pytest.mark.parametrize("case", _cases(*{ALL[name]["group"] for name in names}, ids=names))


#: Cases that have a test of their own instead of a row in a table.
OWN_TEST: set[str] = set()


def test_every_case_is_run_or_listed() -> None:
    assert len(ALL) == 247
    tables = (COLLAPSE, GATE, PARSE, ORDER, CARD_SCORE, FIT, DEVICE_FIT, FILTER, HANDSHAKE, WEBHOOK_TOTALS, FIT_TOTALS)
    run = {case.values[0]["id"] for table in (*tables, LIMITS, FILTER_LIMITS) for case in table} | OWN_TEST
    listed = {name for name, case in ALL.items() if _skipped(case)}
    assert run | listed == ALL.keys()
    assert not run & listed
    groups = {case["group"] for case in ALL.values()}
    assert NOT_APPLICABLE.keys() <= ALL.keys() | groups
    assert run >= OVERRULED.keys()


# -- what a pod holds --------------------------------------------------------------------------------------------------

COLLAPSE = _cases("collapse")


def _allocated(case: Case) -> tuple[tuple[Container, ...], Any]:
    listed = case["containers"] or []
    containers = tuple(Container(f"c{place}", ContainerKind(each["kind"])) for place, each in enumerate(listed))
    return containers, rows(*[_rows_of(each) for each in listed])


def _rows_of(each: Case) -> list[tuple[str, int, int]]:
    return [(device["uuid"], device["mem"], device["cores"]) for device in each["devices"]]


def _expected(uses: dict[str, Case] | None) -> dict[str, tuple[int, int, int]]:
    return {uuid: (use["slots"], use["mem"], use["cores"]) for uuid, use in (uses or {}).items()}


@pytest.mark.parametrize("case", COLLAPSE)
def test_what_a_pod_holds_per_card(case: Case) -> None:
    peak, steady = device_uses(*_allocated(case))
    if "expect_peak" in case:
        assert numbers(peak) == _expected(case["expect_peak"])
    if "expect_steady" in case:
        assert numbers(steady) == _expected(case["expect_steady"])


def _record(case: Case, *, inits_done: bool | None = None, terminal: bool = False) -> PodRecord:
    containers, allocation = _allocated(case)
    return record_pod(pod(*containers, node="n", allocation=allocation, inits_over=inits_done, terminal=terminal))


@_of("shrink-flow")
def test_the_shrink_flow_books_the_peak_and_then_the_steady_state(case: Case) -> None:
    cluster = Cluster(node("n", card("GPU0")))
    cluster.cache.add_pod(_record(case))
    booked = case["after_add"]["GPU0"]
    assert cluster.held("GPU0") == (1, booked["mem"], booked["cores"])
    assert cluster.cache.used("team") == Total(1, booked["mem"], booked["cores"])
    cluster.cache.update_pod(_record(case, inits_done=True))
    shrunk = case["after_init_exit0_update"]
    assert cluster.held("GPU0") == (1, shrunk["GPU0"]["mem"], shrunk["GPU0"]["cores"])
    assert cluster.cache.used("team") == Total(1, shrunk["quota_used"]["mem"], shrunk["quota_used"]["cores"])


@_of("usage-init", "usage-2app")
def test_usage_of_a_device(case: Case) -> None:
    cluster = Cluster(node("n", card("GPU0")), pods=[_record(case)])
    slots, mebibytes, cores = cluster.held("GPU0")
    expected = case["expect_device"]
    assert slots == expected["used"]
    assert mebibytes == expected.get("mem", mebibytes)
    assert cores == expected.get("cores", cores)


@_of("terminating")
def test_a_terminating_pod_counts_until_it_is_terminal(case: Case) -> None:
    assert len(case["steps"]) == 3
    case = ALL["usage-2app"]
    cluster = Cluster(node("n", card("GPU0")), pods=[_record(case)])
    # Accounting does not see deletionTimestamp, so that step is another update of the same pod.
    cluster.cache.update_pod(_record(case))
    assert cluster.held("GPU0") == (2, 20_000, 10)
    cluster.cache.update_pod(_record(case, terminal=True))
    assert cluster.held("GPU0") == (0, 0, 0)


@_of("bad-annotation")
def test_a_bad_annotation_blocks_its_card(case: Case) -> None:
    value = case["annotation_value"]
    allocation = decode_allocation(value, make_apps(1), "annotation")
    assert isinstance(allocation, UnreadableAllocation)
    record = record_pod(pod(memory("app", 100), node="n", allocation=allocation))
    assert record.problem is not None
    assert record.problem.code is ProblemCode.UNDECODABLE_ALLOCATION
    cluster = Cluster(node("n", card("uuid")), pods=[record])
    assert cluster.held("uuid") == (0, 0, 0)
    assert cluster.refusal(pod(memory("app", 100)), "n") is Code.DEVICE_BLOCKED


@_of("refilter-evicts")
def test_a_filter_call_leaves_an_earlier_booking_alone(case: Case) -> None:
    cluster = Cluster(node("n", card("GPU0")))
    bound = cluster.bind(pod(memory("app", 100)), "n")
    before = cluster.cache.generation
    cluster.verdict(bound)
    assert cluster.cache.generation == before
    assert cluster.held("GPU0") == (1, 100, 0)


# -- the shrink --------------------------------------------------------------------------------------------------------

GATE = _cases("shrink_gate")


@pytest.mark.parametrize("case", GATE)
def test_the_inits_are_over(case: Case) -> None:
    """The file calls the ordinary init "init" and the sidecar, whose status is under "sc", "sidecar"."""
    inits = [
        InitStatus(case["init_statuses"].get(name) == "exit0") for name in case["init_containers"] if name == "init"
    ]
    over = True if case["id"] in OVERRULED else case["expect_open"]
    assert inits_over(inits) == over


# -- annotations -------------------------------------------------------------------------------------------------------


@_of("dec-two")
def test_two_rows_decode_and_the_row_after_the_last_semicolon_is_none(case: Case) -> None:
    allocation = decode_allocation(case["value"], make_apps(2), "annotation")
    assert not isinstance(allocation, UnreadableAllocation)
    assert [(row.memory, row.cores) for own in allocation for row in own] == [(500, 3), (500, 3)]
    assert len(allocation) + 1 == case["expect_rows"]
    assert encode_allocation(allocation, "NVIDIA") == case["value"]


@_of("dec-bad")
def test_a_device_with_three_fields_is_unreadable(case: Case) -> None:
    assert isinstance(decode_allocation(case["value"], make_apps(1), "annotation"), UnreadableAllocation)


@_of("enc-node-legacy")
def test_the_legacy_register_text(case: Case) -> None:
    (device,) = read_register("n", [case["device"]]).devices
    assert encode_legacy_register([device]) == case["expect"]
    assert read_register("n", decode_legacy_register(case["expect"])).devices == (device,)


@_of("dec-node-legacy-errors")
def test_errors_in_the_legacy_register_text(case: Case) -> None:
    for text, expected in case["expect"].items():
        decoded = decode_legacy_register(text)
        assert decoded == [] if expected == "empty list" else isinstance(decoded, str), text


# -- requests ----------------------------------------------------------------------------------------------------------

PARSE = _cases("request_parse")


@pytest.mark.parametrize("case", PARSE)
def test_a_container_request(case: Case) -> None:
    config = case["config"]
    vendor = replace(
        NVIDIA,
        memory_factor=config["memoryFactor"],
        default_memory_mib=config.get("defaultMemory", 0),
        default_cores=config.get("defaultCores", 0),
    )
    request, invalid = request_of(case["limits"], case["requests"], vendor)
    if case["id"] in OVERRULED:
        assert request is None
        assert len(invalid) == 1
        assert (
            Cluster(node("n", card("A"))).refusal(pod(memory("app", 1), invalid=invalid), "n") is Code.INVALID_REQUEST
        )
        return
    assert invalid == ()
    if isinstance(case["expect"], str):
        assert request is None
        return
    assert request is not None
    found = {
        "nums": request.count,
        "mem": request.memory,
        # HAMi's mark for "no percentage".
        "pct": request.memory_percentage or 101,
        "cores": request.cores,
    }
    assert found == found | case["expect"]


# -- order of cards ----------------------------------------------------------------------------------------------------

ORDER = _cases("device_order")


def _preference(device: Case, keys: tuple[CardKey, ...]) -> tuple[int, ...]:
    """Return the key by which cards are ordered, the higher tuple preferred.

    Ties go by position: NUMA node, then index.
    """
    values = {
        CardKey.HIGH_LOAD: device["score"],
        CardKey.LOW_LOAD: -device["score"],
        CardKey.HIGH_NUMA: device["numa"],
        CardKey.LOW_NUMA: -device["numa"],
        CardKey.FEW_SLOTS: -device["used"],
        CardKey.HIGH_INDEX: device["index"],
    }
    return (*(values[key] for key in keys), device["numa"], device["index"])


@pytest.mark.parametrize("case", ORDER)
def test_which_card_is_preferred(case: Case) -> None:
    keys = card_keys(parse_card_policy(case["policy"]), numa_bind=case["numa_bind"])
    # HAMi takes cards from the end of its list, so those that sort before are less preferred.
    less_preferred = _preference(case["first"], keys) < _preference(case["second"], keys)
    assert less_preferred == case["expect_first_sorts_before"]


# -- scores ------------------------------------------------------------------------------------------------------------

CARD_SCORE = _cases("device_score")
#: Loads are whole numbers of 2^-20; HAMi's scores are floats.
_ROUNDING = 1e-3


@pytest.mark.parametrize("case", CARD_SCORE)
def test_the_load_of_a_card(case: Case) -> None:
    """The request is added to the usage first.

    The choice of cards does not add it: HAMi adds a request only where its type equals the card's registered model, and
    on real nodes these texts always differ ("NVIDIA" and "NVIDIA-Tesla V100-PCIE-32GB").
    """
    device, weights = case["device"], Weights(**case["weights"])
    matching = [request for request in case["requests"] if request["type"] == device["type"]]
    mebibytes = sum(
        device["totalmem"] * request["pct"] // 100 if request["pct"] not in (0, 101) else request["mem"]
        for request in matching
    )
    cores = sum(request["cores"] for request in matching)
    used = device["used"] + len(matching), device["usedmem"] + mebibytes, device["usedcores"] + cores
    capacity = device["count"], device["totalmem"], device["totalcore"]
    load = int(weighted_load(weights, _arrays(used), _arrays(capacity))[0])
    assert hami_score(load) == pytest.approx(case["expect"], abs=_ROUNDING)
    if weights == Weights():
        assert card_load(used, capacity) == load


def _arrays(amounts: tuple[int, int, int]) -> Any:  # noqa: ANN401 - three arrays of one cell
    return tuple(np.array([amount], np.int64) for amount in amounts)


@_of("node-score-25")
def test_the_load_of_a_node_is_that_of_its_sums(case: Case) -> None:
    devices = [
        Device(
            f"GPU-{place}", place, slots=each["count"], memory=each["totalmem"], cores=each["totalcore"], healthy=True
        )
        for place, each in enumerate(case["devices"])
    ]
    uses = [
        DeviceUse(f"GPU-{place}", each["used"], each["usedmem"], each["usedcores"])
        for place, each in enumerate(case["devices"])
    ]
    snapshot = Cluster(node("n", *devices), pods=[holder("n", uses)]).cache.snapshot()
    assert hami_score(int(node_loads(snapshot)[snapshot.rows["n"]])) == pytest.approx(case["expect"], abs=_ROUNDING)


# -- fitting -----------------------------------------------------------------------------------------------------------


def _device(each: Case) -> Device:
    return Device(
        uuid=each["id"],
        index=each["index"],
        slots=each["count"],
        memory=each["totalmem"],
        cores=each["totalcore"],
        type=each["type"],
        numa=each["numa"],
        mode=each["mode"],
        healthy=each["health"],
        layout=_layout(each.get("profiles", ())),
    )


def _layout(profiles: Iterable[Case]) -> MigLayout:
    return tuple(
        MigProfile(
            each["name"],
            each["memoryMB"],
            each["core"],
            each["placements"][0][1],
            tuple((start, size) for start, size in each["placements"]),
        )
        for each in profiles
    )


def _cluster(devices: list[Case], pair_scores: dict[str, dict[str, int]] | None = None) -> Cluster:
    """Return one node with these cards, on which other pods hold what the case says is used."""
    uses = [DeviceUse(each["id"], each["used"], each["usedmem"], each["usedcores"]) for each in devices]
    scores = [{"uuid": uuid, "score": score} for uuid, score in (pair_scores or {}).items()]
    links, problems = read_links("n", scores, [each["id"] for each in devices])
    assert not problems
    with_links = replace(node("n", *map(_device, devices)), links=links)
    return Cluster(with_links, pods=[holder("n", [use for use in uses if any(use[1:])])])


def _asking(kind: str, request: Case | None) -> Container:
    """Return a container with the limits that make HAMi build this request; 0 and 101 percent mean none."""
    if request is None:
        return asking(kind, None)
    limits = {
        "gpu": request["nums"],
        "gpumem": request["mem"],
        "gpumem-percentage": request["pct"] if request["pct"] <= 100 else 0,
        "gpucores": request["cores"],
    }
    return asking(kind, limits)


def _closest(reasons: Iterable[str]) -> Code:
    """Return our code for several of HAMi's reasons: that of the card that came closest."""
    order = (*CHECKS, Code.NUMA_MISMATCH, Code.INSUFFICIENT_DEVICES)
    codes = {CODES[reason] for reason in reasons if reason != _COUNTER}
    return next(code for code in reversed(order) if code in codes)


FIT = _cases("fit")


@pytest.mark.parametrize("case", FIT)
def test_fitting_a_pod(case: Case) -> None:
    expect, notes = case["expect"], case.get("annotations", {})
    weights = parse_weights(notes.get("hami.io/device-scoring-weights", "slot=1,core=1,memory=1"), "weights")
    if isinstance(weights, Invalid):
        assert expect["error_contains"] in weights.why
        return
    cluster = _cluster(case["devices"], case.get("pair_scores"))
    asked = pod(*[_asking(each["kind"], each["request"]) for each in case["containers"]])
    policies = replace(asked.policies, card=parse_card_policy(case["device_policy"]), weights=weights)
    asked = asked._replace(policies=policies)
    if not expect["fit"]:
        assert cluster.refusal(asked, "n") is _closest([expect["reason"].rpartition(" ")[2]])
        return
    snapshot = cluster.cache.snapshot()
    placement = cluster.place(asked, "n")
    assert placement is not None
    assert placement.allocation == rows(*[[tuple(row.values()) for row in own] for own in expect["rows"]])
    assert encode_allocation(placement.allocation, "NVIDIA") == expect["annotation_value"]
    if "node_score_before_pod" in expect:
        score = hami_score(int(node_loads(snapshot)[snapshot.rows["n"]]))
        assert score == pytest.approx(expect["node_score_before_pod"], abs=_ROUNDING)
    for uuid, usage in expect.get("final_usage", {}).items():
        assert numbers(placement.peak)[uuid][1] == usage["mem"]


@_of("fi-multitype")
def test_one_container_gets_a_card_of_each_vendor_that_it_asks(case: Case) -> None:
    ours = {"mockA": "NVIDIA", "mockB": "DCU"}
    uuids = {ours[key]: own[0][0] for key, own in case["expect"]["rows_per_type"].items()}
    cluster = Cluster(node("n", *[card(uuid, vendor=key) for key, uuid in uuids.items()]), vendors=tuple(uuids))
    first, second = (DeviceRequest(1, 10, 0, 0, vendor=key) for key in uuids)
    asked = pod(Container("main", APP, first, (second,)))._replace(
        further_selections=(Selection(vendor=second.vendor),)
    )
    placement = cluster.place(asked, "n")
    assert placement is not None
    ((one, two),) = placement.allocation
    assert {one.vendor: one.uuid, two.vendor: two.uuid} == uuids


@_of("fi-unknown-type", "fd-type")
def test_another_vendors_cards_are_no_cards(case: Case) -> None:
    assert not case["expect"]["fit"]
    cluster = Cluster(node("n", card("A")), vendors=("NVIDIA", "test"))
    request = DeviceRequest(1, 1024, 0, 1, vendor=case["request"]["type"])
    asked = pod(Container("main", APP, request))._replace(selection=Selection(vendor=request.vendor))
    assert cluster.refusal(asked, "n") is Code.NO_DEVICES


_SEVERAL_VENDORS = ("fi-multitype", "fi-unknown-type", "fd-type")
DEVICE_FIT = [case for case in _cases("device_fit", "container_fit") if case.values[0]["id"] not in _SEVERAL_VENDORS]
#: Where the design gives another answer; OVERRULED has the reasons.
RIGHT_FIT: dict[str, Code | list[str]] = {
    "fd-slots": Code.DEVICE_OVERCOMMITTED,
    "nv-nouse": Code.INSUFFICIENT_DEVICES,
}


@pytest.mark.parametrize("case", DEVICE_FIT)
def test_fitting_a_container(case: Case) -> None:
    expect = case["expect"]
    devices = case.get("devices_in_sorted_order")
    cluster = (
        Cluster(node("n", *[card(f"GPU-{index}", index=index) for index in range(case["devices_on_node"])]))
        if devices is None
        else _cluster(devices, case.get("pair_scores"))
    )
    asked = pod(_asking("app", case["request"]), annotations=case.get("annotations"))
    right = RIGHT_FIT.get(case["id"])
    if expect["fit"]:
        (own,) = chosen(cluster.place(asked, "n"))
        assert own == (right or expect["picked_in_order"])
    else:
        reasons = expect["reason_counts"] if "reason_counts" in expect else [expect["reason"]]
        assert cluster.refusal(asked, "n") is (right or _closest(reasons))


def test_cores_over_a_hundred_are_booked_as_a_hundred() -> None:
    request = ALL["nv-core120"]["request"]
    placement = _cluster(ALL["nv-core120"]["devices_in_sorted_order"]).place(pod(_asking("app", request)), "n")
    assert placement is not None
    assert placement.allocation == rows([("dev-0", 512, 100)])


FILTER = _cases("filter")


@pytest.mark.parametrize("case", FILTER)
def test_which_node_and_card_a_pod_gets(case: Case) -> None:
    each = case["each_device"]
    nodes, records = [], []
    for name, devices in case["nodes"].items():
        cards = [
            Device(uuid, place, slots=each["count"], memory=each["totalmem"], cores=each["totalcore"])
            for place, uuid in enumerate(devices)
        ]
        nodes.append(node(name, *cards))
        uses = [DeviceUse(uuid, use["used"], use["mem"], use["cores"]) for uuid, use in devices.items() if use]
        records.append(holder(name, uses, name=f"on-{name}"))
    cluster = Cluster(*nodes, pods=records)
    containers = [asking("init", case["init"])] if case["init"] else []
    asked = pod(
        *containers, asking("app", case["app"]), annotations={"hami.io/gpu-scheduler-policy": case["gpu_policy"]}
    )
    assert cluster.verdict(asked, *case["nodes"]).feasible.all()
    snapshot, names = cluster.cache.snapshot(), list(case["nodes"])
    scores = score_nodes(snapshot, snapshot.rows_of(names), parse_node_policy(case["node_policy"]))
    best, score = scores[0]
    assert (names[best], score) == (case["expect_node"], MAX_SCORE)
    first_row = chosen(cluster.place(asked, names[best]))[0]
    assert len(first_row) == 1
    assert first_row[0] in case["expect_first_row_device_one_of"]


HANDSHAKE = _cases("handshake")


@pytest.mark.parametrize("case", HANDSHAKE)
def test_the_handshake_of_a_plugin(case: Case) -> None:
    text = case["annotation"]
    now = int(datetime(2026, 11, 29, tzinfo=UTC).timestamp())
    found = judge(text, requested_at(text), now, case["allocatable"])
    assert (found.healthy, found.ask) == (case["expect"]["healthy"], case["expect"]["refresh"])


# -- totals of the quota cases -----------------------------------------------------------------------------------------

WEBHOOK_TOTALS = _cases("webhook_quota")
FIT_TOTALS = _cases("fit_quota")
LIMITS = [case for case in _cases("quota") if "expect_fit" in case.values[0]]
FILTER_LIMITS = _cases("filter_quota")


@pytest.mark.parametrize("case", WEBHOOK_TOTALS)
def test_the_total_that_quota_is_charged(case: Case) -> None:
    containers = tuple(
        Container(
            f"c{place}",
            ContainerKind(each["kind"]),
            DeviceRequest(request["nums"], request["mem"], 0, request["cores"])
            if (request := each.get("request"))
            else request_of(each.get("limits", {}))[0],
        )
        for place, each in enumerate(case["containers"])
    )
    # One case names a vendor that is not enabled: it asks for none of our cards.
    expected = case.get("pod_request", {"mem": 0, "cores": 0})
    peak, _ = requested_total(containers)
    assert (peak.memory, peak.cores) == (expected["mem"], expected["cores"])
    quota = _limited(case["quota"], case.get("memory_factor", 1))
    assert (not quota(pod(*containers)).exceeded) == case["expect_allowed"]


@pytest.mark.parametrize("case", FIT_TOTALS)
def test_the_total_of_a_half_fitted_pod(case: Case) -> None:
    """The total has the rows decided so far, then the container at hand: its picked cards and the candidate."""
    decided = [_rows_of({"devices": own}) for own in case["already_allocated_rows"]]
    at_hand = _rows_of({"devices": [*case["current_container_picked"], case["candidate"]]})
    kinds = [INIT] * case["init_containers"] + [APP] * case["app_containers"]
    allocation = rows(*decided, at_hand)
    containers = tuple(Container("c", kind) for kind in kinds[: len(allocation)])
    if case["id"] == "fq11":
        # HAMi adds 2100 on the init's card to 100 on another card, which the app uses later.
        assert case["hypothetical_pod_mem"] == 2200
        assert pod_total(containers, allocation)[0].memory == 2100
        return
    assert pod_total(containers, allocation)[0].memory == case["hypothetical_pod_mem"]
    assert (pod_total(containers, allocation)[0].memory <= case["limit_mem"]) == case["expect_fit"]


# -- the namespace's limits --------------------------------------------------------------------------------------------


def _limited(limits: Case, factor: int = 1) -> Callable[[Pod], QuotaCheck]:
    """Return the question whether a pod passes these limits: {"mem": {"used", "limit", "set"}, "cores": ...}."""
    keys = {"mem": f"limits.{NVIDIA.memory_resource}", "cores": f"limits.{NVIDIA.cores_resource}"}
    hard = {keys[name]: each["limit"] for name, each in limits.items() if each["set"]}
    used = {name: each["used"] for name, each in limits.items()}
    vendor = replace(NVIDIA, memory_factor=factor)
    table = QuotaTable(vendor)
    table.put(read_quota("team", "q", hard, vendor))
    return partial(table.check, used=lambda _: Total(0, used.get("mem", 0), used.get("cores", 0)))


@pytest.mark.parametrize("case", LIMITS)
def test_a_request_keeps_a_limit_or_not(case: Case) -> None:
    request = case["request"]
    limit = {"mem": {"used": case["used"], "limit": case["limit"], "set": True}} if "limit" in case else case["quota"]
    check = _limited(limit, request.get("memory_factor", 1))
    asked = pod(memory("app", request["mem"], request["cores"]))
    assert (not check(asked).exceeded) == case["expect_fit"]


@_of("q-addrm")
def test_usage_is_added_and_taken_away_once(case: Case) -> None:
    cluster = Cluster(node("n"))
    for step in case["steps"]:
        change, used = step.get("add") or step["rm"], step["used"]
        asked = pod(memory("app", change["mem"], change["cores"]), node="n")
        booked = record_pod(asked._replace(allocation=rows([("A", change["mem"], change["cores"])])))
        if "add" in step:
            cluster.cache.add_pod(booked)
        else:
            cluster.cache.remove_pod(booked.uid)
        assert cluster.cache.used("team")[1:] == (used["mem"], used["cores"])


@_of("q-managed")
def test_which_names_a_quota_may_limit(case: Case) -> None:
    # The case's short name of cores is HAMi's test configuration; ours is gpucores.
    names = {name.replace("gpucore", "gpucores"): limits for name, limits in case["expect"].items()}
    hard = {f"limits.{name}": 1 for name in names}
    assert read_quota("team", "q", hard, NVIDIA).hard.keys() == {name for name, limits in names.items() if limits}


def _hard(limits: Case) -> Case:
    names = {"<mem>": NVIDIA.memory_resource, "<core>": NVIDIA.cores_resource}
    names |= {"mem": f"limits.{NVIDIA.memory_resource}", "cores": f"limits.{NVIDIA.cores_resource}"}
    for short, name in names.items():
        limits = {key.replace(short, name) if key in names or "<" in key else key: v for key, v in limits.items()}
    return limits


@_of("q-adddel", "q-del-nonlimits")
def test_limits_come_and_go_with_their_object(case: Case) -> None:
    table = QuotaTable(NVIDIA)
    table.put(read_quota("team", "q", _hard(case.get("add") or case["existing"]), NVIDIA))
    limits = table.limits("team")
    assert limits.get(NVIDIA.memory_resource, 0) == case["expect_limit"]["mem"]
    assert limits.get(NVIDIA.cores_resource, 0) == case["expect_limit"].get("cores", 0)
    if "after_delete" in case:
        table.remove("team", "q")
        assert table.limits("team") == {}
    else:
        # Another object's keys of other spellings are dropped, and this one's stay.
        table.put(read_quota("team", "other", _hard(dict.fromkeys(case["delete_keys"], 500)), NVIDIA))
        table.remove("team", "other")
        assert table.limits("team") == limits


@_of("q-update")
def test_an_update_replaces_all_limits_and_leaves_the_usage(case: Case) -> None:
    table, cluster = QuotaTable(NVIDIA), Cluster(node("n"))
    for step in case["steps"]:
        if "set_used_mem" in step:
            share = rows([("A", step["set_used_mem"], 0)])
            cluster.cache.add_pod(record_pod(pod(memory("app", step["set_used_mem"]), node="n", allocation=share)))
        table.put(read_quota("team", "q", _hard(step.get("add") or step["update_to"]), NVIDIA))
        expected, limits = step.get("expect", {}), table.limits("team")
        assert limits.get(NVIDIA.memory_resource) == expected.get("mem_limit", 1000)
        assert limits.get(NVIDIA.cores_resource, 0) == expected.get("cores_limit", 100 if "add" in step else 0)
        assert cluster.cache.used("team").memory == expected.get("mem_used", 0)


@pytest.mark.parametrize("case", FILTER_LIMITS)
def test_filter_keeps_the_namespace_s_limits(case: Case) -> None:
    sizes = case["devices_totalmem"]
    cards = [card(uuid, size, index=at) for at, (uuid, size) in enumerate(sizes.items())]
    hard = {f"limits.{long_name}": value for long_name, value in long_names(_without("limits ", case)).items()}
    table = QuotaTable(NVIDIA)
    table.put(read_quota("team", "q", hard, NVIDIA))
    asked = pod(asking("app", case["request"]))
    cluster = Cluster(node("node1", *cards))
    snapshot = cluster.cache.snapshot()
    quota = table.check(asked, lambda _: Total())
    verdict = filter_nodes(snapshot, asked, snapshot.rows_of(["node1"]), quota=quota)
    assert bool(verdict.feasible[0]) == ("NodeNames" in case["expect"])
    if not verdict.feasible[0]:
        assert STATUS_CODES[int(verdict.codes[0])] is Code.QUOTA_EXCEEDED


def _without(prefix: str, case: Case) -> Case:
    return {key.removeprefix(prefix): value for key, value in case["quota_hard"].items()}


@_of("obs-quota-pct")
def test_a_percentage_over_the_limit_is_refused_where_its_card_is_known(case: Case) -> None:
    size, limit = case["device_totalmem"], case["quota_limit_mem"]
    check = _limited({"mem": {"used": 0, "limit": limit, "set": True}})
    asked = pod(asking("app", case["request"]))
    quota = check(asked)
    assert (not quota.exceeded) == case["webhook_allows"]
    cluster = Cluster(node("n", card("A", size), card("B", size, index=1)))
    snapshot = cluster.cache.snapshot()
    verdict = filter_nodes(snapshot, asked, snapshot.rows_of(["n"]), quota=quota)
    assert STATUS_CODES[int(verdict.codes[0])] is Code.QUOTA_EXCEEDED
    assert not verdict.feasible[0]


# -- observed on the running scheduler ---------------------------------------------------------------------------------


def _observed(pairs: list[Any]) -> list[Container]:
    """Return containers from [kind, memory] or [kind, limits] pairs; limits without a count mean one card."""
    limits = [({"gpumem": value} if isinstance(value, int) else value) for _, value in pairs]
    return [asking(kind, {"gpu": 1, **own} if own else None) for (kind, _), own in zip(pairs, limits, strict=True)]


@_of("obs-sequence")
def test_a_sequence_of_pods_on_two_cards(case: Case) -> None:
    register = read_register(case["node"], case["devices"])
    assert not register.problems
    assert parse_node_policy(case["default_policies"]["node"]) is NodePolicy.BINPACK
    cluster = Cluster(node(case["node"], *register.devices), node("cpu-node"))
    for each in case["pods"]:
        asked = pod(
            *_observed(each["containers"]),
            name=each["pod"],
            annotations={"hami.io/gpu-scheduler-policy": case["default_policies"]["gpu"]},
        )
        if "failed" in each:
            reason = each["failed"][case["node"]].rpartition(" ")[2]
            assert cluster.refusal(asked, case["node"]) is _closest([reason])
            assert cluster.refusal(asked, "cpu-node") is Code.NO_DEVICES
            assert cluster.refusal(asked, "nowhere") is Code.NODE_UNKNOWN
            continue
        bound = cluster.bind(asked, case["node"])
        assert bound.allocation is not None
        assert not isinstance(bound.allocation, UnreadableAllocation)
        assert encode_allocation(bound.allocation, "NVIDIA") == each["annotation"], each["pod"]
        if "stored" in each:
            assert numbers(record_pod(bound).held) == _expected(each["stored"])


@_of("obs-mig")
def test_two_instances_on_one_card(case: Case) -> None:
    """The profiles are text in the case: name, memory, cores, starts and size."""
    pattern = r"(\S+) (\d+)MB core(\d+) starts? ?([\d,-]+) size(\d)"
    layout = []
    for name, mib, cores, starts, size in re.findall(pattern, case["device"]["profiles"].replace("start0", "start 0")):
        first, dash, last = starts.partition("-")
        every = range(int(first), int(last) + 1) if dash else map(int, starts.split(","))
        layout.append(MigProfile(name, int(mib), int(cores), int(size), tuple((start, int(size)) for start in every)))
    assert [profile.name for profile in layout] == ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"]
    each = case["device"]
    device = card(each["id"], each["devmem"], slots=each["count"], mode="mig", layout=tuple(layout))
    bound = Cluster(node("n", device)).bind(pod(asking("app", case["request"])), "n")
    assert isinstance(bound.allocation, tuple)
    assert encode_allocation(bound.allocation, "NVIDIA") == case["annotation"]
    assert mig_text(bound.allocation) == case["mig_annotation"]
    assert numbers(record_pod(bound).held) == _expected(case["stored"])


@_of("obs-quota-misaligned", "obs-quota-sidecar", "obs-quota-2app")
def test_the_total_is_over_the_limit_that_the_filter_missed(case: Case) -> None:
    """HAMi's filter admits some of these; the total says that they are over the limit."""
    peak, _ = requested_total(tuple(_observed(case["containers"])))
    assert peak.memory == 16_000
    check = _limited({"mem": {"used": 0, "limit": case["quota_limit_mem"], "set": True}})
    assert check(pod(*_observed(case["containers"]))).exceeded


@_of("obs-numa-topology")
def test_numa_bind_takes_the_cards_of_one_node_whatever_the_policy(case: Case) -> None:
    cluster = Cluster(node("n", *[card(uuid, index=at, numa=at > 0) for at, uuid in enumerate("ABC")]))
    for policy in ("spread", "topology-aware"):
        notes = {"nvidia.com/numa-bind": "true", "hami.io/gpu-scheduler-policy": policy}
        assert chosen(cluster.place(pod(memory("app", 10, count=2), annotations=notes), "n")) == [["C", "B"]]


@_of("obs-bad-memory-passthrough")
def test_memory_in_bytes_is_an_invalid_request(case: Case) -> None:
    request, invalid = request_of(case["request"])
    assert request is None
    assert [each.why for each in invalid] == ["unit is MiB, write 16384"]
    verdict = Cluster(node("n", card("A"))).verdict(pod(memory("app", 1), invalid=invalid), "n", "nowhere")
    assert not verdict.feasible.any()
    assert verdict.unresolvable.all()


@_of("obs-sidecar-exclusive")
def test_an_exclusive_app_beside_its_own_sidecar_finds_too_few_cores(case: Case) -> None:
    cluster = Cluster(node("n", card("A", 1000)))
    refusal = cluster.refusal(pod(*_observed(case["containers"])), "n")
    assert refusal is CODES[case["failed"].rpartition(" ")[2]]


@_of("obs-init-exclusive-reuse")
def test_exclusive_inits_and_app_use_one_card_after_another(case: Case) -> None:
    cluster = Cluster(node("n", card("A", 1000)))
    bound = cluster.bind(pod(*_observed(case["containers"])), "n")
    assert bound.allocation is not None
    assert not isinstance(bound.allocation, UnreadableAllocation)
    assert encode_allocation(bound.allocation, "NVIDIA") == case["annotation"]
    assert numbers(record_pod(bound).held) == _expected(case["stored"])


@_of("obs-slots")
def test_slots_of_sidecars_and_apps_add_up_and_those_of_inits_do_not(case: Case) -> None:
    cluster = Cluster(node("n", card("A", 1000, slots=2)))
    refusal = cluster.refusal(pod(*_observed(case["containers_fail"])), "n")
    assert refusal is CODES[case["failed"].rpartition(" ")[2]]
    bound = cluster.bind(pod(*_observed(case["containers_ok"])), "n")
    assert numbers(record_pod(bound).held) == _expected(case["stored"])


@_of("obs-late-sidecar")
def test_a_sidecar_after_the_init_is_no_part_of_its_peak(case: Case) -> None:
    bound = Cluster(node("n", card("A", 1000)))
    assert numbers(record_pod(bound.bind(pod(*_observed(case["containers"])), "n")).held) == _expected(case["stored"])


@_of("obs-restart")
def test_a_restart_books_the_steady_state_at_once(case: Case) -> None:
    allocation = decode_allocation(case["annotation"], make_apps(2), "annotation")
    assert not isinstance(allocation, UnreadableAllocation)
    started = pod(memory("init", 1), memory("app", 1), node="n", allocation=allocation, inits_over=False)
    running = started._replace(inits_over=True)
    assert numbers(record_pod(started).held) == {"GPU-x": (1, case["after_informer_add"], 0)}
    # A fresh cache, as after a restart, sees the pod as it is now; HAMi would book the peak until the next update.
    fresh = Cluster(node("n", card("GPU-x")), pods=[record_pod(running)])
    assert fresh.held("GPU-x") == (1, case["after_first_update_event"], 0)
    assert record_pod(running).state is State.STEADY


@_of("obs-flap")
def test_a_node_whose_plugin_is_gone_takes_no_new_pods(case: Case) -> None:
    passes = case["register_passes"]
    cluster = Cluster(node("n", card("A"), count_allocatable=10))
    asked = pod(memory("app", 10))
    assert cluster.refusal(asked, "n") is None
    for _ in passes[1:]:
        cluster.cache.update_node(node("n", card("A"), count_allocatable=0))
        assert cluster.refusal(asked, "n") is Code.INSUFFICIENT_NODE_COUNT


@_of("obs-tie")
def test_of_equal_cards_the_last_is_taken(case: Case) -> None:
    for number, picked in zip(case["N"], case["picked_index"], strict=True):
        cluster = Cluster(node("n", *[card(f"GPU-{index:02}", index=index) for index in range(number)]))
        assert chosen(cluster.place(pod(memory("app", 10)), "n")) == [[f"GPU-{picked:02}"]]
