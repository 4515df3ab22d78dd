"""Kubernetes objects become accounting values, even if parts of them are missing, null or odd.

It exists because only conversion knows both sides. It must not judge what accounting makes of the values. Invariant:
what decodes is always converted, and the value names what cannot be used.
"""

import json

import msgspec
import pytest

from accounting.node import Node
from accounting.pod import ContainerKind, DeviceRequest, Pod, UnreadableAllocation
from accounting.policy import CardKey, NodePolicy, Weights
from accounting.quota.objects import Quota
from extender.config import Settings
from extender.convert.node import convert_node, convert_quota
from extender.convert.pod import convert_pod
from extender.wire import core_v1
from tests.extender.nesting import NESTED_ANNOTATION, SAID
from tests.extender.objects import (
    CORDON,
    CORES,
    COUNT,
    MEMORY,
    PERCENTAGE,
    REGISTER,
    Json,
    asks,
    card,
    container,
    node,
    pod,
    quota,
    rows,
    sidecar,
)

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def read(value: Json) -> Pod:
    return convert_pod(msgspec.json.decode(json.dumps(value), type=core_v1.Pod), Settings())


def read_node(value: Json) -> Node:
    return convert_node(core_v1.decode_node(json.dumps(value).encode()), Settings())


def read_quota(value: Json) -> Quota:
    return convert_quota(msgspec.json.decode(json.dumps(value), type=core_v1.ResourceQuota), Settings())


def request(resources: Json) -> DeviceRequest | None:
    return read(pod("p", [container("main", resources)])).containers[0].request


def test_init_containers_come_first_and_both_lists_keep_their_order() -> None:
    inits = [container("b"), sidecar("a"), container("c")]
    read_pod = read(pod("p", [container("z"), container("y")], inits=inits))
    assert [(each.name, each.kind) for each in read_pod.containers] == [
        ("b", INIT),
        ("a", SIDECAR),
        ("c", INIT),
        ("z", APP),
        ("y", APP),
    ]


@pytest.mark.parametrize("policy", ["always", "OnFailure", "Never", "", "Always ", None])
def test_only_exactly_always_makes_a_sidecar(policy: str | None) -> None:
    assert read(pod("p", inits=[container("i", restartPolicy=policy)])).containers[0].kind is INIT


def test_restart_policy_of_an_app_makes_no_sidecar() -> None:
    assert read(pod("p", [container("a", restartPolicy="Always")])).containers[0].kind is APP


@pytest.mark.parametrize(
    "resources, expected",
    [
        pytest.param(asks(2, 100, 30), DeviceRequest(2, 100, 0, 30), id="count, memory and cores"),
        pytest.param(asks(1, percentage=50), DeviceRequest(1, 0, 50, 0), id="a percentage"),
        pytest.param(asks(1), DeviceRequest(1, 0, 100, 0, whole=True), id="the whole card"),
        pytest.param({"limits": {COUNT: "1", MEMORY: "1k"}}, DeviceRequest(1, 1000, 0, 0), id="limits alone"),
        pytest.param({"requests": {COUNT: "1", MEMORY: "8"}}, DeviceRequest(1, 8, 0, 0), id="requests alone"),
        pytest.param({"limits": {COUNT: 1, MEMORY: 8.0}}, DeviceRequest(1, 8, 0, 0), id="numbers"),
        pytest.param({"limits": {COUNT: "1000m"}}, DeviceRequest(1, 0, 100, 0, whole=True), id="thousandths"),
        pytest.param({"limits": {COUNT: "0", MEMORY: "5"}}, None, id="count zero"),
        pytest.param({"limits": {MEMORY: "5"}}, None, id="no count"),
        pytest.param({"limits": {"cpu": "1"}}, None, id="nothing of the vendor"),
        pytest.param({"limits": None, "requests": None}, None, id="null maps"),
        pytest.param({"limits": {COUNT: None}}, None, id="a null quantity"),
        pytest.param(None, None, id="null resources"),
    ],
)
def test_requests_are_read_from_limits_then_requests(resources: Json, expected: DeviceRequest | None) -> None:
    read_pod = read(pod("p", [{"name": "main", "resources": resources}]))
    assert (read_pod.containers[0].request, read_pod.invalid) == (expected, ())


def test_every_request_that_cannot_be_used_is_named() -> None:
    bad = [container("a", asks("-1", "x")), container("b", asks(1, percentage="101")), container("c", asks(1))]
    read_pod = read(pod("p", bad, inits=[container("i", asks("1", "16Gi"))]))
    assert [(each.field, each.value) for each in read_pod.invalid] == [
        (f"spec.initContainers[i].resources.limits[{MEMORY}]", "16Gi"),
        (f"spec.containers[a].resources.limits[{COUNT}]", "-1"),
        (f"spec.containers[a].resources.limits[{MEMORY}]", "x"),
        (f"spec.containers[b].resources.limits[{PERCENTAGE}]", "101"),
    ]
    assert [bool(each.request) for each in read_pod.containers] == [False, False, False, True]


def test_equal_requests_of_different_containers_keep_their_own_names() -> None:
    pods = [read(pod("p", [container(name, asks("-1"))])) for name in ("a", "b")]
    assert [each.invalid[0].field for each in pods] == [
        f"spec.containers[{name}].resources.limits[{COUNT}]" for name in ("a", "b")
    ]


def test_the_api_servers_charge_is_the_peak_per_resource_without_the_count() -> None:
    inits = [sidecar("s", asks(1, 2)), container("i", asks(3, 20, 7))]
    charged = read(pod("p", [container("a", asks(2, 10)), container("b", asks("-1"))], inits=inits)).api_charge
    assert dict(charged) == {COUNT: 4, MEMORY: 22, CORES: 7}
    overhead = pod("p", [container("a", asks(2, 10))])
    overhead["spec"]["overhead"] = {COUNT: "1", "cpu": "1"}
    assert dict(read(overhead).api_charge) == {COUNT: 3, MEMORY: 10}


def test_a_pod_without_a_uid_is_known_by_its_name() -> None:
    assert read(pod(uid=None, namespace="a")).uid == "a/p"
    bare = {"metadata": {"name": "p"}, "spec": {"nodeName": ""}}
    assert (read(bare).uid, read(bare).key, read(bare).node) == ("default/p", "default/p", None)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {
            "metadata": dict.fromkeys(("name", "namespace", "uid", "annotations", "labels", "deletionTimestamp")),
            "spec": dict.fromkeys(("nodeName", "initContainers", "containers", "overhead", "priority")),
            "status": dict.fromkeys(("phase", "conditions", "initContainerStatuses")),
        },
        {
            "spec": {
                "initContainers": [dict.fromkeys(("name", "restartPolicy", "restartPolicyRules", "resources"))],
                "containers": [{"resources": dict.fromkeys(("limits", "requests"))}],
            },
            "status": {"initContainerStatuses": [dict.fromkeys(("name", "state")), {"state": {"terminated": None}}]},
        },
    ],
    ids=["empty", "null parts", "null fields", "null in containers and statuses"],
)
def test_nulls_everywhere_ask_for_nothing(value: Json) -> None:
    read_pod = read(value)
    assert (read_pod.name, read_pod.node, read_pod.asks, read_pod.invalid) == ("", None, False, ())
    assert (read_pod.allocation, read_pod.terminal, read_pod.api_charge) == (None, False, ())


def test_an_allocation_is_read_or_said_to_be_unreadable() -> None:
    two = [container("a", asks(1)), container("b")]
    assert read(pod("p", two, allocation=rows([("X", 5, 0)], []))).allocation == ((("X", 5, 0),), ())
    assert read(pod("p", two)).allocation is None
    assert read(pod("p", two, allocation="")).allocation is None
    unreadable = read(pod("p", two, allocation="X,NVIDIA,5,-1:;")).allocation
    assert isinstance(unreadable, UnreadableAllocation)
    assert unreadable.readable_uuids == ("X",)
    assert unreadable.why.field == "metadata.annotations[hami.io/vgpu-devices-allocated]"


def test_policies_and_selections_are_read_from_annotations() -> None:
    read_pod = read(
        pod(
            annotations={
                "hami.io/node-scheduler-policy": "spread",
                "hami.io/gpu-scheduler-policy": "mutex,binpack",
                "hami.io/device-scoring-weights": "slot=1,core=0,memory=3",
                "nvidia.com/use-gpuuuid": "GPU-a, GPU-b,",
                "nvidia.com/nouse-gpuuuid": "GPU-c",
                "nvidia.com/use-gputype": "A100-SXM4,T4",
                "nvidia.com/nouse-gputype": "h100",
                "nvidia.com/numa-bind": "True",
                "nvidia.com/vgpu-mode": "mps",
            }
        )
    )
    policies, selection = read_pod.policies, read_pod.selection
    assert (policies.node, policies.card.mutex, policies.card.keys) == (NodePolicy.SPREAD, True, (CardKey.HIGH_LOAD,))
    assert policies.weights == Weights(slot=1, core=0, memory=3)
    assert (selection.use_uuids, selection.nouse_uuids) == (frozenset({"GPU-a", "GPU-b"}), frozenset({"GPU-c"}))
    assert (selection.use_types, selection.nouse_types) == ((("a100", "sxm4"), ("t4",)), (("h100",),))
    assert (selection.numa_bind, selection.modes, read_pod.invalid) == (True, "mps", ())


@pytest.mark.parametrize(
    "key, value",
    [
        ("nvidia.com/numa-bind", "maybe"),
        ("hami.io/device-scoring-weights", "slot=-1,core=1,memory=1"),
        ("hami.io/device-scoring-weights", "slot=1"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_invalid_for_a_pod_that_asks(key: str, value: str) -> None:
    (invalid,) = read(pod(annotations={key: value})).invalid
    assert (invalid.field, invalid.value) == (f"metadata.annotations[{key}]", value)
    assert read(pod("p", [container("a")], annotations={key: value})).invalid == ()


def test_a_node_has_its_cards_in_tie_order_its_cordon_and_its_count() -> None:
    cards = [card("GPU-b", 1), card("GPU-a", 0, numa=1), card("GPU-c", 0)]
    read_one = read_node(node("n1", cards, allocatable="30", annotations={CORDON: "GPU-a,GPU-x"}))
    assert (read_one.name, [each.uuid for each in read_one.devices]) == ("n1", ["GPU-c", "GPU-b", "GPU-a"])
    assert read_one.cordoned == {"GPU-a", "GPU-x"}
    assert (read_one.count_allocatable, read_one.problems) == (30, ())


@pytest.mark.parametrize(
    "text, links, problems",
    [
        ('[{"uuid":"GPU-b","score":{"GPU-a":50,"GPU-x":20}}]', (("GPU-a", "GPU-b", 50),), 0),
        ("", (), 0),
        ("{", (), 1),
        ('{"GPU-a":{}}', (), 1),
    ],
)
def test_a_node_has_the_links_between_its_cards(text: str, links: tuple[object, ...], problems: int) -> None:
    cards = [card("GPU-a", 0), card("GPU-b", 1)]
    read_one = read_node(node("n1", cards, annotations={"hami.io/node-nvidia-score": text}))
    assert (read_one.links, len(read_one.problems), len(read_one.devices)) == (links, problems, 2)


def test_a_node_says_that_its_kubelet_keeps_to_one_numa_node() -> None:
    manifest = node("n1", [card("GPU-a", 0)])
    assert not read_node(manifest).single_numa
    manifest["metadata"]["labels"] = {"gpu-extender.io/topology-manager-policy": "single-numa-node"}
    assert read_node(manifest).single_numa


@pytest.mark.parametrize(
    "allocatable, expected",
    [
        pytest.param({}, None, id="absent"),
        pytest.param(None, None, id="null map"),
        pytest.param({COUNT: "0"}, 0, id="plugin gone"),
        pytest.param({COUNT: 8}, 8, id="a number"),
        pytest.param({COUNT: "3k"}, 3000, id="a suffix"),
        pytest.param({COUNT: "9E"}, 2**31 - 1, id="beyond int32"),
        pytest.param({COUNT: "-1"}, 0, id="negative"),
    ],
)
def test_the_allocatable_count(allocatable: Json | None, expected: int | None) -> None:
    assert read_node(node("n1") | {"status": {"allocatable": allocatable}}).count_allocatable == expected


@pytest.mark.parametrize(
    "register, text",
    [
        pytest.param("GPU-1,10,1000:", "is not JSON", id="not JSON"),
        pytest.param("{}", "must be a list", id="an object"),
        pytest.param(NESTED_ANNOTATION, SAID, id="nested too deeply"),
        pytest.param("[1" + "0" * 5000 + "]", "is not JSON", id="a number of 5001 digits"),
        pytest.param('[{"id": "GPU-1", "count": 1%s}]' % ("0" * 300), "count of GPU-1", id="a number of 301 digits"),
        pytest.param('[{"id": "GPU-1", "devmem": 1.5}]', "devmem of GPU-1: 1.5", id="a fraction"),
        pytest.param("[null]", "must be an object", id="a null card"),
    ],
)
def test_a_register_that_cannot_be_read_is_a_problem_and_no_capacity(register: str, text: str) -> None:
    read_one = read_node(node("n1", 0, annotations={REGISTER: register}))
    assert read_one.devices == ()
    (problem,) = read_one.problems
    assert (problem.code, problem.object) == ("UnreadableRegister", "node n1")
    assert text in problem.message


@pytest.mark.parametrize("value", [{}, {"metadata": None, "status": None}, {"metadata": {"annotations": None}}])
def test_a_node_of_nulls_has_no_cards(value: Json) -> None:
    assert read_node(value) == Node("")


def test_quotas_of_both_spellings_and_their_scopes() -> None:
    hard = {"requests.nvidia.com/gpu": "4", "limits.nvidia.com/gpumem": "1k", "cpu": "1", "nvidia.com/gpu": "1"}
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["low", "high"]}
    selector = {"matchExpressions": [expression]}
    read_one = read_quota(quota(hard, namespace="a", name="q", scopes=["BestEffort"], scopeSelector=selector))
    assert (read_one.namespace, read_one.name) == ("a", "q")
    assert [str(requirement) for requirement in read_one.selector] == ["BestEffort", "PriorityClass In high,low"]
    assert read_quota(quota(hard, scopeSelector={"matchExpressions": []})).selector == ()
    assert dict(read_one.hard) == {COUNT: 4, MEMORY: 1000}
    assert [problem.object for problem in read_one.problems] == ["resourcequota a/q"]
    assert dict(read_quota({"metadata": {"name": "q"}, "spec": {"hard": None, "scopes": None}}).hard) == {}
