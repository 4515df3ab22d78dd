"""What is in a demand, what is left out of it and why; and that nothing is missing from it.

It exists because a memory whose key lacks a field that decides answers would give one pod the answer of another. It
must not look into a memory. Invariants: every field of a pod is either in the demand or listed here with the reason why
not; for every field in it there are two pods that differ in nothing else and get different answers.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.answers import Claims, Placement, Verdict, Verdicts, filter_nodes, place_beside
from accounting.demand import ContainerDemand, Demand, QuotaKey
from accounting.holdings import requested_count, requested_total
from accounting.pod import Container, ContainerKind, DeviceRequest, Pod, Preempting, UnreadableAllocation
from accounting.pod_info import PodInfo
from accounting.pod_record import record_pod
from accounting.policy import CardKey, CardPolicy, NodePolicy, Policies, Weights
from accounting.quota_scope import PodScope
from accounting.selection import Selection
from accounting.state.cache import Cache
from accounting.status import Invalid
from tests.builders import app, ask, init, make_allocation, make_device, make_node, make_pod
from tests.strategies import pending_pods

ONE, TWO = "NVIDIA", "DCU"
WRONG = Invalid("spec.containers[a]", "-1", "must not be negative")

#: Fields of `Pod` that are not in the demand -> why a memory that is keyed by it does not need them.
LEFT_OUT = {
    "uid": "who asks decides only whose booking and claim are left out; both are judged apart, and never kept",
    "namespace": "decides by quotas alone: `QuotaKey`; under a budget no verdict is kept",
    "name": "decides nothing",
    "node": "what the pod holds, not what it asks; its own booking is judged apart",
    "terminal": "what the pod holds",
    "deleting": "bind asks before it judges",
    "inits_over": "what the pod holds",
    "allocation": "what the pod holds",
    "api_charge": "the API server judges its own charge",
    "scope": "decides by quotas alone: `QuotaKey`",
    "cpu_milli": "decides about scores alone: `packing.shape.Shape` and the replay's kind have it",
    "ignored": "means nothing",
    "allocation_text": "stands for the allocation in stores",
    "info": "decides who is a victim, and for whom room is kept: that room is in the key of a placement by itself",
    "started": "decides who is a victim",
    "preempting": "decides for whom room is kept: that room is in the key of a placement by itself",
    "nominated": "decides for whom room is kept: that room is in the key of a placement by itself",
    "raw": "judged apart on every answer, after what is kept of the cards; see `answers.raw`",
}
IN_DEMAND = {"containers", "invalid", "selection", "policies", "further_selections"}


def both(request: DeviceRequest | None, *further: DeviceRequest, kind: ContainerKind = ContainerKind.APP) -> Pod:
    """A pod with one container that may ask for cards of two vendors."""
    pod = make_pod("p", [Container("a", kind, request, further)])
    return pod._replace(further_selections=tuple(Selection(vendor=each.vendor) for each in further))


def selecting(count: int = 2, **fields_: Any) -> Pod:  # noqa: ANN401 - the fields of a Selection
    return make_pod("p", [app(10, count=count)], selection=Selection(**fields_))


def choosing(card: CardPolicy, weights: Weights | None = None) -> Pod:
    return make_pod("p", [app(1)], policies=Policies(card=card, weights=weights or Weights()))


#: By field: two pods that differ in nothing else, and get different answers from the cluster of `make_cluster`.
PAIRS: dict[str, tuple[Pod, Pod]] = {
    "Container.kind": (
        make_pod("p", [init(60), app(60)]),
        make_pod("p", [replace(init(60), kind=ContainerKind.SIDECAR), app(60)]),
    ),
    "Container.request": (make_pod("p", [app(10)]), make_pod("p", [app(999)])),
    "Container.further_requests": (
        both(ask(1, 10), DeviceRequest(1, 10, 0, 0, vendor=TWO)),
        both(ask(1, 10), DeviceRequest(1, 999, 0, 0, vendor=TWO)),
    ),
    "DeviceRequest.count": (make_pod("p", [app(10)]), make_pod("p", [app(10, count=9)])),
    "DeviceRequest.memory": (make_pod("p", [app(10)]), make_pod("p", [app(101)])),
    "DeviceRequest.memory_percentage": (make_pod("p", [app(percentage=10)]), make_pod("p", [app(percentage=95)])),
    "DeviceRequest.cores": (make_pod("p", [app(10)]), make_pod("p", [app(10, cores=96)])),
    "DeviceRequest.vendor": (both(ask(1, 10)), both(ask(1, 10)._replace(vendor=TWO))),
    "DeviceRequest.one_size": (both(ask(1, 9)), both(ask(1, 9)._replace(one_size=True))),
    "Pod.invalid": (make_pod("p", [app(10)]), make_pod("p", [app(10)], invalid=(WRONG,))),
    "Selection.use_uuids": (selecting(), selecting(use_uuids=frozenset({"n0-0"}))),
    "Selection.nouse_uuids": (selecting(), selecting(nouse_uuids=frozenset({"n0-0", "n0-1"}))),
    "Selection.use_types": (selecting(), selecting(use_types=(("t4",),))),
    "Selection.nouse_types": (selecting(), selecting(nouse_types=(("a10",),))),
    "Selection.modes": (selecting(), selecting(modes="mps")),
    "Selection.numa_bind": (selecting(count=3), selecting(count=3, numa_bind=True)),
    "Selection.vendor": (make_pod("p", [app(10)]), make_pod("p", [app(10)], selection=Selection(vendor=TWO))),
    "CardPolicy.keys": (choosing(CardPolicy((CardKey.HIGH_LOAD,))), choosing(CardPolicy((CardKey.LOW_LOAD,)))),
    "CardPolicy.mutex": (choosing(CardPolicy()), choosing(CardPolicy(mutex=True))),
    "CardPolicy.chained": (
        choosing(CardPolicy((CardKey.LOW_LOAD,))),
        choosing(CardPolicy((CardKey.LOW_LOAD,), chained=True)),
    ),
    "CardPolicy.linked": (choosing(CardPolicy()), choosing(CardPolicy(linked=True))),
    "Policies.weights": (
        choosing(CardPolicy((CardKey.HIGH_LOAD,)), Weights(0, 1, 0)),
        choosing(CardPolicy((CardKey.HIGH_LOAD,)), Weights(0, 0, 1)),
    ),
}
#: Fields that change no answer of those memories, but are part of a field that does.
HARMLESS = {
    "Container.name": "decides nothing; `ContainerDemand` has none",
    "Container.misread": "decides how rows that it holds are read; such a pod is invalid, and gets none",
    "DeviceRequest.whole": "says that the percentage stands for a whole card; tells people, decides nothing",
    "Policies.node": "decides about scores, which are kept by no demand",
    "Policies.card": "its fields are listed",
    "Weights.slot": "see Policies.weights",
    "Weights.core": "see Policies.weights",
    "Weights.memory": "see Policies.weights",
}


def make_cluster() -> Cache:
    """A cluster large enough to keep verdicts: cards of two vendors, two of them partly taken, with links."""
    cache = Cache((ONE, TWO))
    for number in range(40):
        name = f"n{number}"
        model = "NVIDIA A10" if number % 2 else "Tesla T4"
        cards = [
            make_device(f"{name}-{at}", index=5 - at, memory=100, cores=100, slots=4, numa=at % 2, model=model)
            for at in range(3)
        ]
        others = [replace(make_device(f"{name}-d{at}", index=at, memory=50, slots=4), vendor=TWO) for at in range(2)]
        links = [(f"{name}-0", f"{name}-1", 100), (f"{name}-0", f"{name}-2", 0), (f"{name}-1", f"{name}-2", 50)]
        cache.add_node(make_node(name, [*cards, *others], links=links))
    for number in (0, 1):
        for at, (memory, cores) in enumerate(((30, 10), (10, 30), (7, 5))):
            rows = make_allocation([(f"n{number}-{at}", memory, cores)])
            cache.add_pod(record_pod(make_pod(f"h{number}-{at}", [app(memory)], node=f"n{number}", allocation=rows)))
    return cache


class Answers(NamedTuple):
    """Everything that is kept by demand: filter's verdict on every node, and the cards on two of them."""

    feasible: list[bool]
    codes: list[int]
    unresolvable: list[bool]
    placed: list[Placement | None]


def answers(cache: Cache, pod: Pod, verdicts: Verdicts | None, claims: Claims) -> Answers:
    snapshot = cache.snapshot()
    rows = np.arange(snapshot.columns)
    said: Verdict = filter_nodes(snapshot, pod, rows, verdicts=verdicts)
    codes = np.where(said.feasible, 0, said.codes).tolist()
    placed = [place_beside(cache, snapshot, pod, node, claims) for node in ("n0", "n2")]
    return Answers(said.feasible.tolist(), codes, said.unresolvable.tolist(), placed)


@pytest.mark.parametrize("field", PAIRS)
def test_each_field_of_the_demand_decides_and_no_memory_takes_one_pod_for_the_other(field: str) -> None:
    """This fails if the field is left out of the demand: the second pod then gets the answer kept for the first."""
    for one, other in (PAIRS[field], PAIRS[field][::-1]):
        cache, verdicts, claims = make_cluster(), Verdicts(), Claims()
        first = [answers(cache, one, verdicts, claims) for _ in range(3)]
        anew = answers(make_cluster(), other, None, Claims())
        assert answers(cache, other, verdicts, claims) == anew
        assert first[-1] != anew
        assert first[0] == first[1] == first[2]


def test_every_field_of_a_pod_is_in_the_demand_or_left_out_for_a_reason() -> None:
    assert set(Pod._fields) == IN_DEMAND | LEFT_OUT.keys()
    assert not IN_DEMAND & LEFT_OUT.keys()
    parts = {
        "Container": [each.name for each in fields(Container)],
        "DeviceRequest": DeviceRequest._fields,
        "Selection": [each.name for each in fields(Selection)],
        "Policies": [each.name for each in fields(Policies)],
        "CardPolicy": [each.name for each in fields(CardPolicy)],
        "Weights": [each.name for each in fields(Weights)],
    }
    named = {f"{part}.{name}" for part, names in parts.items() for name in names}
    assert named == (PAIRS.keys() | HARMLESS.keys()) - {"Pod.invalid"}
    assert ContainerDemand._fields == ("kind", "request", "further_requests")


CHANGED: dict[str, Any] = {
    "uid": "other",
    "namespace": "other",
    "name": "other",
    "node": "n1",
    "terminal": True,
    "deleting": True,
    "inits_over": False,
    "allocation": UnreadableAllocation((), WRONG),
    "api_charge": (("nvidia.com/gpu", 1),),
    "scope": PodScope(terminating=True),
    "cpu_milli": 5,
    "ignored": (WRONG,),
    "allocation_text": "GPU-0",
    "info": PodInfo(priority=7),
    "started": 7,
    "nominated": "n1",
    "preempting": Preempting("n1", 7),
    "raw": (("nvidia.com/GH100_H200_SXM_141GB", 1),),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_changes_no_demand(name: str) -> None:
    pod = make_pod("p", [app(10)])
    changed = pod._replace(**{name: CHANGED[name]})
    assert changed != pod
    assert Demand.of(changed) == Demand.of(pod)
    assert (QuotaKey.of(changed) == QuotaKey.of(pod)) == (name not in ("namespace", "scope"))


@given(pending_pods(), st.sampled_from(NodePolicy))
@settings(max_examples=50)
def test_equal_pods_have_equal_demands_with_equal_hashes(pod: Pod, node: NodePolicy) -> None:
    other = pod._replace(
        uid="other", name="other", containers=tuple(replace(each, name=f"{each.name}-x") for each in pod.containers)
    )
    assert Demand.of(pod) == Demand.of(other)
    assert hash(Demand.of(pod)) == hash(Demand.of(other))
    moved = pod._replace(policies=replace(pod.policies, node=node))
    assert (Demand.of(moved) == Demand.of(pod)) == (node is pod.policies.node)


def test_parts_are_what_is_asked_of_each_vendor() -> None:
    pod = both(ask(1, 10), DeviceRequest(2, 7, 0, 0, vendor=TWO))
    parts: Sequence[Demand] = Demand.of(pod).parts
    assert [part.selection.vendor for part in parts] == [ONE, TWO]
    assert [part.containers[0].request for part in parts] == [ask(1, 10), DeviceRequest(2, 7, 0, 0, vendor=TWO)]
    alone = Demand.of(make_pod("p", [app(1)]))
    assert alone.parts == (alone,)


@given(pending_pods())
def test_the_count_of_a_demand_is_that_of_its_total(pod: Pod) -> None:
    containers = Demand.of(pod).containers
    assert requested_count(containers) == requested_total(containers)[0].count
