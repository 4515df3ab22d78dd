"""The facts of a pod that quota scopes test, read from manifests as the API server reads them.

It exists because a pod's QoS class is not always in its status, and a deadline is not a deletion. It must not know
quotas' numbers. Invariant: an empty field leaves the scope at its default.
"""

import msgspec
import pytest

from accounting.quota_scope import PodScope
from extender.config import Settings
from extender.convert.pod import convert_pod
from extender.wire import core_v1
from tests.extender.objects import Json, asks, container, pod, sidecar

BEST_EFFORT = PodScope(best_effort=True)
TERM = {"topologyKey": "zone", "labelSelector": {}}
ELSEWHERE = TERM | {"namespaces": ["other"]}
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def scope(spec: Json | None = None, *, containers: list[Json] | None = None, status: Json | None = None) -> PodScope:
    manifest = pod(containers=containers, status=status)
    manifest["spec"] |= spec or {}
    return convert_pod(msgspec.json.decode(msgspec.json.encode(manifest), type=core_v1.Pod), Settings()).scope


def computing(**quantities: str) -> Json:
    return container("main", {"requests": quantities})


def test_a_pod_that_asks_for_cards_alone_is_best_effort() -> None:
    assert scope() == BEST_EFFORT
    assert scope(containers=[container("main", asks(1, 100))]) == BEST_EFFORT


@pytest.mark.parametrize(
    "containers, inits",
    [
        ([computing(cpu="1m")], []),
        ([computing(memory="1")], []),
        ([container("main", {"limits": {"memory": "1Gi"}})], []),
        ([container("main")], [sidecar("side", {"requests": {"cpu": "1"}})]),
        ([container("main")], [container("init", {"requests": {"cpu": "1"}})]),
    ],
)
def test_cpu_or_memory_anywhere_makes_it_another_class(containers: list[Json], inits: list[Json]) -> None:
    assert scope({"initContainers": inits}, containers=containers) == PodScope()


@pytest.mark.parametrize("containers", [[computing(cpu="0")], [computing(**{"ephemeral-storage": "1Gi"})]])
def test_zero_and_other_resources_do_not(containers: list[Json]) -> None:
    assert scope(containers=containers) == BEST_EFFORT


def test_resources_of_the_pod_as_a_whole_count_alone() -> None:
    assert scope({"resources": {"requests": {"cpu": "1"}}}) == PodScope()
    assert scope({"resources": {"limits": {"cpu": "0"}}}, containers=[computing(cpu="1")]) == BEST_EFFORT


def test_the_status_says_the_class_where_it_has_one() -> None:
    assert scope(status={"phase": "Pending", "qosClass": "Burstable"}) == PodScope()
    assert scope(containers=[computing(cpu="1")], status={"qosClass": "BestEffort"}) == BEST_EFFORT


@pytest.mark.parametrize("deadline, terminating", [(None, False), (0, True), (600, True)])
def test_a_deadline_makes_it_terminating(deadline: int | None, terminating: bool) -> None:
    assert scope({"activeDeadlineSeconds": deadline}) == BEST_EFFORT._replace(terminating=terminating)


def test_a_deletion_does_not_make_it_terminating() -> None:
    manifest = pod()
    manifest["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"
    read = convert_pod(msgspec.json.decode(msgspec.json.encode(manifest), type=core_v1.Pod), Settings())
    assert read.deleting
    assert not read.scope.terminating


def test_the_priority_class_is_its_name() -> None:
    assert scope({"priorityClassName": "high", "priority": 5}).priority_class == "high"
    assert scope({"priority": 5}).priority_class == ""


@pytest.mark.parametrize(
    "affinity, looks_elsewhere",
    [
        ({}, False),
        ({"nodeAffinity": {}}, False),
        ({"podAffinity": {REQUIRED: [TERM]}}, False),
        ({"podAffinity": {REQUIRED: [TERM | {"namespaces": []}]}}, False),
        ({"podAffinity": {REQUIRED: [TERM, ELSEWHERE]}}, True),
        ({"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": ELSEWHERE}]}}, True),
        ({"podAntiAffinity": {REQUIRED: [ELSEWHERE]}}, True),
        ({"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}}, False),
        ({"podAntiAffinity": {REQUIRED: [TERM | {"namespaceSelector": {}}]}}, True),
    ],
)
def test_a_term_that_names_namespaces_looks_elsewhere(affinity: Json, looks_elsewhere: bool) -> None:
    assert scope({"affinity": affinity}).cross_namespace_affinity == looks_elsewhere


def test_equal_scopes_are_one_object() -> None:
    assert scope({"priorityClassName": "a"}) is scope({"priorityClassName": "a"})
