"""Our formula gives the numbers that Kubernetes itself computes for pods with inits and sidecars.

Every case of upstream_cases.json is run, or its kind stands in NOT_APPLICABLE with the reason. The cases are recorded
calls of component-helpers/resource and of the scheduler's, quota's and kubelet's own tests; the formula reads the spec
alone, so cases that differ only by a status or by pod-level resources do not apply.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from accounting.container_resources import ContainerResources, api_charge
from accounting.holdings import Total, peak_and_steady, requested_count, requested_total
from accounting.pod import Container, ContainerKind, DeviceRequest
from accounting.pod_record import record_pod
from accounting.quantity import Quantity, parse_quantity
from accounting.status import Code
from accounting.vendor import NVIDIA
from tests.accounting.case_builders import (
    APP,
    INIT,
    SIDECAR,
    Cluster,
    card,
    holder,
    node,
    pod,
    read_cases,
    words,
)

Case = dict[str, Any]
ALL = {case["id"]: case for case in read_cases("upstream_cases.json")}

#: Kind of case -> why our formula has no such input. `_kind` says which kind a case is.
NOT_APPLICABLE = {
    "status": "in-place resize reads statuses; a GPU cannot be resized, so its number is the spec's at every time",
    "pod level": "spec.resources takes cpu, memory and hugepages only; a GPU cannot be asked for at pod level",
    "dra claim": "quantities of DRA claims are added to cpu, memory and hugepages; plain GPUs have none",
    "filled in": "NonMissingContainerRequests gives containers that ask for nothing a default; a GPU has none",
    "overhead on limits": "overhead joins a limit only where there is one; what a pod holds comes from its containers",
    "single resource": "GetResourceRequest is the kubelet's, for its own preemption; it does not add a lone overhead",
    "deleted": "deletionTimestamp alone changes nothing; the charge ends when the pod is terminal or its object gone",
}
#: How many cases each kind has, so that a new case does not pass unseen under an old reason.
COUNTS = {
    "status": 66,
    "pod level": 19,
    "dra claim": 29,
    "filled in": 4,
    "overhead on limits": 7,
    "single resource": 1,
    "deleted": 1,
}

_LIMITS = ("PodLimits", "AggregateContainerLimits")
_FORMULA = ("PodRequests", "AggregateContainerRequests", *_LIMITS)


def _kind(case: Case) -> str | None:
    """Return the kind of a case that does not apply, else None."""
    options, pod_level = case["options"] or {}, case["podLevel"] or {}
    named = {name for quantities in pod_level.values() for name in quantities or {}}
    if options.get("UseStatusResources"):
        return "status"
    if options.get("UseDRANodeAllocatableResourceClaimStatus") and case.get("status"):
        return "dra claim"
    if not options.get("SkipPodLevelResources") and any(_pod_level_takes(name) for name in named):
        return "pod level"
    if options.get("NonMissingContainerRequests") and case["kind"] == "PodRequests":
        return "filled in"
    if case["kind"] == "PodLimits" and case["overhead"] and not options.get("ExcludeOverhead"):
        return "overhead on limits"
    if case["kind"] == "GetResourceRequest":
        return "single resource"
    if case.get("deletion", {}).get("secondsSinceDeletionTimestamp"):
        return "deleted"
    return None


def _pod_level_takes(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _cases(*kinds: str, keep: Callable[[Case], bool] = lambda _: True) -> list[Any]:
    return [
        pytest.param(case, id=words(name))
        for name, case in ALL.items()
        if case["kind"] in kinds and _kind(case) is None and keep(case)
    ]


def _containers(case: Case) -> Iterator[tuple[ContainerKind, Case]]:
    for each in case["init"] or []:
        # The generated GPU orders mark their sidecars by the flag alone, without a restartPolicy.
        assert each["sidecar"] == (each["restartPolicy"] == "Always" if "restartPolicy" in each else each["sidecar"])
        yield (SIDECAR if each["sidecar"] else INIT), each
    for each in case["containers"] or []:
        yield APP, each


def _nano(quantities: Case | None) -> dict[str, int]:
    return {name: parse_quantity(raw).nano for name, raw in (quantities or {}).items()}


def _totals(case: Case, source: str, *, inits_alone: bool = False) -> tuple[dict[str, int], dict[str, int]]:
    """Return peak and steady per resource name, in nano units."""
    peak, steady = peak_and_steady(
        (kind, [(name, (nano,)) for name, nano in _nano(each.get(source)).items()])
        for kind, each in _containers(case)
        if kind is not APP or not inits_alone
    )
    return _first(peak), _first(steady)


def _first(amounts: dict[str, tuple[int, ...]]) -> dict[str, int]:
    return {name: each[0] for name, each in amounts.items()}


def _with_overhead(case: Case, totals: dict[str, int]) -> dict[str, int]:
    overhead = {} if (case["options"] or {}).get("ExcludeOverhead") else _nano(case["overhead"])
    return {name: totals.get(name, 0) + overhead.get(name, 0) for name in sorted(totals.keys() | overhead.keys())}


def test_every_case_is_run_or_listed() -> None:
    kinds = [kind for case in ALL.values() if (kind := _kind(case)) is not None]
    assert {kind: kinds.count(kind) for kind in NOT_APPLICABLE} == COUNTS
    run = {case.values[0]["id"] for table in (FORMULA, QUOTA, FIT, DEVICES) for case in table}
    assert run == {name for name, case in ALL.items() if _kind(case) is None}
    assert len(ALL) == 343


# -- the formula, over any resource name -------------------------------------------------------------------------------

FORMULA = _cases(*_FORMULA)


@pytest.mark.parametrize("case", FORMULA)
def test_peak_is_what_kubernetes_computes(case: Case) -> None:
    limits = case["kind"] in _LIMITS
    peak, _ = _totals(case, "limits" if limits else "requests")
    total = peak if case["kind"].startswith("Aggregate") or limits else _with_overhead(case, peak)
    assert total == _nano(case["expected"])


@pytest.mark.parametrize("case", [case for case in FORMULA if "single" in case.values[0]])
def test_a_single_resource_rounds_up_as_kubernetes_does(case: Case) -> None:
    name, integer = case["single"]["resource"], case["single"]["int"]
    quantity = Quantity(_with_overhead(case, _totals(case, "requests")[0])[name])
    assert (quantity.milli_value() if name == "cpu" else quantity.value()) == integer


ORDERS = [case for case in FORMULA if "derived" in case.values[0]]


def test_the_orders_are_all_there() -> None:
    assert len(ORDERS) == 104


@pytest.mark.parametrize("case", ORDERS)
def test_every_order_of_inits_and_sidecars_has_its_peak_and_steady(case: Case) -> None:
    gpus = "nvidia.com/gpu"
    peak, steady = _totals(case, "requests")
    derived = case["derived"]
    assert Quantity(steady.get(gpus, 0)).value() == derived["steady"]
    assert Quantity(peak[gpus]).value() == max(derived["init_peak"], derived["steady"])
    before_apps, _ = _totals(case, "requests", inits_alone=True)
    assert Quantity(before_apps.get(gpus, 0)).value() == derived["init_peak"]


@pytest.mark.parametrize("case", ORDERS)
def test_every_order_has_the_same_total_over_devices(case: Case) -> None:
    containers = tuple(
        Container(each["name"], kind, DeviceRequest(parse_quantity(raw).value(), 100, 0, 10))
        for kind, each in _containers(case)
        if (raw := each["requests"].get("nvidia.com/gpu")) is not None
    )
    peak = max(case["derived"]["init_peak"], case["derived"]["steady"])
    steady = case["derived"]["steady"]
    assert requested_total(containers) == (
        Total(peak, 100 * peak, 10 * peak),
        Total(steady, 100 * steady, 10 * steady),
    )


def test_an_order_blind_rule_would_reserve_more() -> None:
    simplified = {name: case for name, case in ALL.items() if "hami_simplified" in case}
    ours = {name: _totals(case, "requests")[0]["nvidia.com/gpumem"] for name, case in simplified.items()}
    rule = {name: parse_quantity(case["hami_simplified"]).nano for name, case in simplified.items()}
    assert {name: rule[name] - nano for name, nano in ours.items()} == {
        "hami/sidecar-before-init": 0,
        "hami/sidecar-after-init": 2 * 10**9,
    }


# -- what the API server charges ---------------------------------------------------------------------------------------


def _extended(name: str) -> bool:
    """Whether a name is an extended resource, as a GPU's is."""
    return "/" in name and not name.startswith("requests.")


def _charge(case: Case, name: str) -> int | None:
    """Return `api_charge` of one resource name; None if the pod does not name it."""
    vendor = NVIDIA if name in NVIDIA.resources else replace(NVIDIA, count_resource=name)
    containers = [
        (kind, ContainerResources(each.get("limits") or {}, each.get("requests") or {}))
        for kind, each in _containers(case)
    ]
    overhead = {} if (case["options"] or {}).get("ExcludeOverhead") else case["overhead"] or {}
    return dict(api_charge(containers, overhead, vendor)).get(name)


def _charged_names(case: Case) -> set[str]:
    """Return the extended names in a pod's spec, without those of statuses and pod-level resources."""
    lists = [each.get(source) or {} for _, each in _containers(case) for source in ("requests", "limits")]
    return {name for quantities in [*lists, case["overhead"] or {}] for name in quantities if _extended(name)}


#: Where the charge is not the library's number: the right value and why.
CHARGED_OTHERWISE = {
    "oracle/edge/only-limits-not-defaulted": (2, "the API server copies limits to requests before anything is charged"),
    "oracle/edge/overhead-gpu-limits-only-if-limit": (1, "quota charges requests, and overhead is one"),
    "oracle/edge/infeasible-missing-status-drops-gpu-in-1.37": (3, "a GPU cannot be resized, so the spec stands"),
    "oracle/edge/podlevel-status-infeasible-gpu": (2, "a GPU cannot be resized, so the spec stands"),
    "oracle/edge/podlevel-status-infeasible-gpu-lost": (2, "a GPU cannot be resized, so the spec stands"),
}
GPU_CHARGES = [
    pytest.param(case, name, id=words(f"{identity} {CHARGED_OTHERWISE.get(identity, ('', ''))[1]} {name}"))
    for identity, case in ALL.items()
    if case["kind"] in _FORMULA
    for name in sorted(_charged_names(case))
]


@pytest.mark.parametrize("case, name", GPU_CHARGES)
def test_the_charge_of_a_gpu_is_what_kubernetes_computes(case: Case, name: str) -> None:
    """Cases with a status or pod-level resources count here too: neither changes a GPU's number."""
    right, _ = CHARGED_OTHERWISE.get(case["id"], (None, ""))
    expected = parse_quantity((case["expected"] or {}).get(name)).value() if right is None else right
    assert _charge(case, name) == expected


def test_every_overruled_charge_is_a_case() -> None:
    assert CHARGED_OTHERWISE.keys() <= {name for name, case in ALL.items() if _charged_names(case)}


QUOTA = _cases("quota-usage")


@pytest.mark.parametrize("case", QUOTA)
def test_quota_usage_is_the_peak_of_requests_and_limits(case: Case) -> None:
    """`pods` and `count/pods` count objects; everything else is the formula, under one or two names."""
    expected = {name: raw for name, raw in case["expected"].items() if name not in ("pods", "count/pods")}
    if case.get("phase") in ("Succeeded", "Failed"):
        record = record_pod(pod(Container("c1", APP, DeviceRequest(3, 100, 0, 0)), terminal=True))
        assert record.held_total == Total()
        assert expected == {}
        return
    requests = _with_overhead(case, _totals(case, "requests")[0])
    limits = _with_overhead(case, _totals(case, "limits")[0])
    usage = {
        f"{prefix}{name}": nano
        for prefix, totals in (("", requests), ("requests.", requests), ("limits.", limits))
        for name, nano in totals.items()
        if f"{prefix}{name}" in expected
    }
    assert usage == _nano(expected)


@pytest.mark.parametrize("case", [case for case in QUOTA if "phase" not in case.values[0]])
def test_only_requests_of_an_extended_resource_are_charged(case: Case) -> None:
    names = _charged_names(case)
    charges = {f"requests.{name}": _charge(case, name) for name in names}
    expected = {
        name: parse_quantity(raw).value()
        for name, raw in case["expected"].items()
        if name.startswith("requests.") and "/" in name
    }
    assert charges == expected


# -- fit, by the kubelet's count ---------------------------------------------------------------------------------------

FIT = _cases("fit")


def _units(raw: object, name: str) -> int:
    """Return a quantity as a whole number: cpu in thousandths."""
    quantity = parse_quantity(raw)
    return quantity.milli_value() if name == "cpu" else quantity.value()


def _counting(case: Case, name: str) -> tuple[Container, ...]:
    return tuple(Container(each["name"], kind, _count(_asked(each, name), name)) for kind, each in _containers(case))


def _count(raw: object, name: str) -> DeviceRequest | None:
    return DeviceRequest(_units(raw, name), 1, 0, 0) if raw else None


def _asked(each: Case, name: str) -> object:
    return (each.get("requests") or {}).get(name)


@pytest.mark.parametrize("case", FIT)
def test_fit_by_the_count_of_the_node(case: Case) -> None:
    expected = case["expected"]
    name = expected["resource"]
    requested, used, capacity = (_units(expected[key], name) for key in ("requested", "used", "capacity"))
    asked = pod(*_counting(case, name))
    assert requested_total(asked.containers)[0].count == requested_count(asked.containers) == requested

    # More cards than any pod asks for, so that the count alone decides.
    cards = [card(f"GPU-{index:02}", index=index) for index in range(16)]
    cluster = Cluster(node("n", *cards, count_allocatable=capacity), pods=[holder("n", (), count=used)] if used else [])
    verdict = cluster.verdict(asked, "n")
    assert cluster.refusal(asked, "n") == (None if expected["fits"] else Code.INSUFFICIENT_NODE_COUNT)
    if not expected["fits"]:
        assert bool(verdict.unresolvable[0]) == expected["unresolvable"]


# -- devices, as the kubelet's device manager hands them out -----------------------------------------------------------

DEVICES = _cases("device-allocation")
BY_RESOURCE = [
    pytest.param(case.values[0], name, id=f"{case.id} {name}")
    for case in DEVICES
    for name in case.values[0]["expected"]["distinct_devices"]
]


@pytest.mark.parametrize("case, name", BY_RESOURCE)
def test_the_count_is_the_number_of_devices_that_the_kubelet_holds(case: Case, name: str) -> None:
    containers = _counting(case, name)
    assert requested_total(containers)[0].count == case["expected"]["distinct_devices"][name]


@pytest.mark.parametrize("case, name", BY_RESOURCE)
def test_the_pod_fits_on_exactly_the_devices_that_the_kubelet_needs(case: Case, name: str) -> None:
    need = case["expected"]["distinct_devices"][name]
    assert need == case["pool"][name]
    asked = pod(*_counting(case, name))
    devices = [card(f"GPU-{index}", index=index, slots=1) for index in range(need)]
    placement = Cluster(node("n", *devices)).place(asked, "n")
    assert placement is not None
    assert len(placement.peak) == need
    long_lived = [
        row.uuid
        for container, own in zip(asked.containers, placement.allocation, strict=True)
        if container.kind is not INIT
        for row in own
    ]
    assert len(long_lived) == len(set(long_lived))
    assert Cluster(node("n", *devices[1:])).refusal(asked, "n") is not None
