"""The pod API of an embedded cluster.

It exists because a test or a person plays the API server here: creates pods, moves them through their statuses, deletes
them. It must not depend on kube-scheduler's verbs. Invariant: what is shown follows from the present objects, and a
body that cannot be used changes nothing.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.extender.inside import refusal_inside
from tests.extender.nesting import NESTED, SAID
from tests.extender.objects import (
    COUNT,
    FINISHED,
    MEMORY,
    STARTING,
    STEADY,
    Json,
    asks,
    bound,
    container,
    held,
    node,
    phased,
    pod,
    running,
    status_of,
    terminated,
)
from tests.extender.serving import serving

CARD, OTHER = "GPU-n1-0", "GPU-n1-1"
KEYS = {"pod", "uid", "state", "containers", "peak", "steady", "held", "total", "node"}


async def test_a_created_pod_is_listed_as_it_was_answered() -> None:
    async with serving(node("n1")) as client:
        entry = await client.create(phased())
        assert await client.get("/api/v1/pods") == [entry]
    assert (entry["pod"], entry["uid"], entry["node"], entry["state"]) == ("default/p", "uid-p", "n1", "peak")
    assert entry["containers"] == [
        {"name": "side", "kind": "sidecar", "devices": [{"uuid": CARD, "memory": 2, "cores": 0}]},
        {"name": "init", "kind": "init", "devices": [{"uuid": CARD, "memory": 20, "cores": 0}]},
        {"name": "main", "kind": "app", "devices": [{"uuid": CARD, "memory": 10, "cores": 0}]},
    ]
    assert (entry["peak"], entry["steady"], entry["held"]) == (
        {CARD: held(2, 22)},
        {CARD: held(2, 12)},
        {CARD: held(2, 22)},
    )
    assert entry["total"]["peak"] == {"count": 2, "memory": 22, "cores": 0}
    assert entry["total"]["steady"] == {"count": 2, "memory": 12, "cores": 0}
    assert entry["total"]["uncertain"] == []


async def test_a_pod_steps_from_peak_to_steady_to_released() -> None:
    async with serving(node("n1")) as client:
        await client.create(phased(STARTING))
        assert await client.requested() == {CARD: held(2, 22)}
        entry = await client.create(phased(STEADY), 200)
        assert (entry["state"], entry["held"]) == ("steady", {CARD: held(2, 12)})
        assert await client.requested() == {CARD: held(2, 12)}
        entry = await client.create(phased(STEADY | {"phase": "Succeeded"}), 200)
        assert (entry["state"], entry["held"], entry["peak"]) == ("released", {}, {CARD: held(2, 22)})
        assert await client.requested() == {}


async def test_inits_that_run_again_bring_the_peak_back() -> None:
    async with serving(node("n1")) as client:
        await client.create(phased(STEADY))
        entry = await client.create(phased(status_of("Running", running("side"), running("init"))), 200)
        assert (entry["state"], entry["held"]) == ("peak", {CARD: held(2, 22)})
        assert await client.requested() == {CARD: held(2, 22)}


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(phased(STEADY, node=None, allocation=None), id="neither node nor annotation"),
        pytest.param(phased(STEADY, node=None), id="no node"),
        pytest.param(phased(STEADY, allocation=None), id="no annotation"),
        pytest.param(phased(STEADY, allocation=""), id="an empty annotation"),
    ],
)
async def test_a_replacement_without_node_or_annotation_keeps_the_booking(later: Json) -> None:
    async with serving(node("n1")) as client:
        await client.create(phased())
        entry = await client.create(later, 200)
        assert (entry["node"], entry["state"], entry["held"]) == ("n1", "steady", {CARD: held(2, 12)})
        assert "problem" not in entry


async def test_a_status_posted_for_a_pod_that_was_bound_here_keeps_its_cards() -> None:
    asking = phased(node=None, allocation=None)
    async with serving(node("n1")) as client:
        await client.place(asking, "n1")
        assert await client.requested() == {CARD: held(2, 22)}
        entry = await client.create(asking | {"status": STEADY}, 200)
        assert (entry["state"], entry["held"]) == ("steady", {CARD: held(2, 12)})


async def test_an_annotation_that_turns_unreadable_keeps_the_last_value_and_is_reported() -> None:
    async with serving(node("n1")) as client:
        good = await client.create(phased(STEADY))
        entry = await client.create(phased(STEADY, allocation=f"{CARD},NVIDIA,x,0:;;;"), 200)
        assert (entry["held"], entry["containers"]) == ({CARD: held(2, 12)}, good["containers"])
        assert entry["problem"]["code"] == "UndecodableAllocation"
        assert "x" in entry["problem"]["message"]
        report = await client.get("/api/v1/verify")
        assert [(each["code"], each["object"]) for each in report["problems"]] == [
            ("UndecodableAllocation", "pod default/p")
        ]
        assert (report["devices"][0]["blocked"], report["devices"][0]["requested"]) == ([], held(2, 12))
        assert (await client.filter(pod("q"), "n1"))["NodeNames"] == ["n1"]
        assert "problem" not in await client.create(phased(STEADY), 200)


async def test_an_annotation_that_was_never_readable_blocks_what_it_names() -> None:
    async with serving(node("n1", 2)) as client:
        entry = await client.create(phased(allocation=f"{CARD},NVIDIA,-5,0:;;;"))
        assert (entry["held"], entry["problem"]["code"]) == ({}, "UndecodableAllocation")
        (row,) = await client.get("/api/v1/nodes")
        assert {each["uuid"]: each["blocked"] for each in row["devices"]} == {
            CARD: ["UndecodableAllocation"],
            OTHER: [],
        }
        assert (await client.filter(pod("q", [container("main", asks(2, 1))]), "n1"))["NodeNames"] == []
        assert (await client.filter(pod("q"), "n1"))["NodeNames"] == ["n1"]


async def test_the_annotation_of_a_pending_pod_does_not_become_its_booking() -> None:
    async with serving(node("n1", 2)) as client:
        entry = await client.create(phased(node=None))
        assert (entry["node"], entry["state"], entry["held"]) == (None, "released", {})
        assert [each["devices"] for each in entry["containers"]] == [[], [], []]
        assert await client.requested() == {}
        for late in (f"{OTHER},NVIDIA,x,0:;;;", None):
            entry = await client.create(phased(allocation=late), 200)
            assert (entry["held"], entry["problem"]["code"]) == ({}, "UndecodableAllocation")
        assert await client.requested() == {}


async def test_a_bound_pod_without_an_annotation_blocks_its_node() -> None:
    async with serving(node("n1", 2)) as client:
        entry = await client.create(phased(allocation=None))
        assert (entry["held"], entry["problem"]["code"]) == ({}, "MissingAllocation")
        assert (await client.filter(pod("q"), "n1"))["NodeNames"] == []


async def test_a_pod_cannot_move_to_another_node() -> None:
    async with serving(node("n1"), node("n2")) as client:
        await client.create(phased())
        before = await client.send("GET", "/api/v1/pods")
        answer = await client.post("/api/v1/pods", phased(STEADY, node="n2"))
        assert answer.status == 409
        assert all(text in answer.json()["error"] for text in ("spec.nodeName", "n2", "default/p", "n1"))
        assert await client.send("GET", "/api/v1/pods") == before


async def test_a_bound_pod_cannot_get_other_containers() -> None:
    async with serving(node("n1")) as client:
        await client.create(phased())
        before = await client.send("GET", "/api/v1/pods")
        answer = await client.post("/api/v1/pods", phased(STEADY, inits=[], allocation=None))
        assert answer.status == 409
        assert all(text in answer.json()["error"] for text in ("spec.containers", "1", "default/p", "3"))
        assert await client.send("GET", "/api/v1/pods") == before


async def test_a_new_uid_under_the_same_name_replaces_the_old_pod() -> None:
    async with serving(node("n1"), node("n2")) as client:
        await client.create(phased())
        entry = await client.create(bound("p", "n2", "GPU-n2-0", 7, uid="uid-new"))
        assert await client.get("/api/v1/pods") == [entry]
        assert await client.requested() == {"GPU-n2-0": held(1, 7)}


async def test_a_uid_that_comes_back_under_another_name_is_one_pod() -> None:
    async with serving(node("n1")) as client:
        await client.create(phased())
        await client.create(phased() | {"metadata": phased()["metadata"] | {"name": "renamed"}}, 200)
        assert (await client.pods()).keys() == {"default/renamed"}
        assert (await client.delete("p")).status == 404
        assert (await client.delete("renamed")).status == 200
        assert (await client.delete("p")).status == 404
        assert await client.requested() == {}


async def test_pods_without_a_uid_are_told_apart_by_namespace_and_name() -> None:
    async with serving(node("n1")) as client:
        for namespace in ("a", "b"):
            await client.create(bound("p", "n1", CARD, uid=None, namespace=namespace))
        entry = await client.create(bound("p", "n1", CARD, 300, uid=None, namespace="a"), 200)
        assert entry["uid"]
        assert await client.requested() == {CARD: held(2, 400)}


async def test_deleting_releases_and_a_second_delete_finds_nothing() -> None:
    async with serving(node("n1"), bound("filed", "n1", CARD)) as client:
        await client.create(phased())
        for name in ("p", "filed"):
            answer = await client.delete(name)
            assert (answer.status, answer.json()["deleted"]) == (200, f"default/{name}")
            answer = await client.delete(name)
            assert answer.status == 404
            assert f"default/{name}" in answer.json()["error"]
        assert await client.get("/api/v1/pods") == []
        assert await client.requested() == {}


def bodies() -> list[Any]:
    """Return bodies that are no usable Pod, with what the error must name."""
    named: dict[str, tuple[bytes, list[str]]] = {
        "empty": (b"", ["body", "must be one Pod"]),
        "only blanks": (b"  \n", ["body", "must be one Pod"]),
        "not JSON": (b'{"kind": "Pod",', ["body"]),
        "not YAML": (b"kind: [Pod", ["body"]),
        "binary": (bytes(range(256)), ["body"]),
        "a number": (b"7", ["body", "int"]),
        "a list": (json.dumps([pod()]).encode(), ["body", "array"]),
        "no kind": (json.dumps({"metadata": {"name": "p"}}).encode(), ["kind"]),
        "a node": (json.dumps(node("n9")).encode(), ["body", "must be one Pod"]),
        "two pods": (json.dumps({"kind": "List", "items": [pod("a"), pod("b")]}).encode(), ["2 objects"]),
        "two documents": (b"\n---\n".join(json.dumps(pod(name)).encode() for name in "ab"), ["not JSON"]),
        "no pod in a list": (b'{"kind": "List", "items": []}', ["0 objects"]),
        "nested too deeply": (b'{"kind":"Pod","metadata":%b}' % NESTED, [SAID]),
    }
    changes: dict[str, tuple[str, Any, list[str]]] = {
        "no name": ("metadata", {"name": ""}, ["metadata.name"]),
        "name a number": ("metadata", {"name": 7}, ["metadata.name", "7", "str"]),
        "metadata a list": ("metadata", [], ["metadata", "[]", "object"]),
        "annotation a number": ("metadata", {"name": "p", "annotations": {"a": 17}}, ["metadata.annotations[a]", "17"]),
        "spec a text": ("spec", "none", ["spec", "none", "object"]),
        "no spec": ("spec", None, ["spec.containers"]),
        "no containers": ("spec", {"containers": []}, ["spec.containers", "[]"]),
        "containers null": ("spec", {"containers": None}, ["spec.containers", "[]"]),
        "containers a text": ("spec", {"containers": "main"}, ["spec.containers", "main", "array"]),
        "a container null": ("spec", {"containers": [container("a"), None]}, ["spec.containers[1]", "null"]),
        "resources a list": (
            "spec",
            {"containers": [{"name": "a", "resources": ["x"]}]},
            ["spec.containers[0].resources", "x", "object"],
        ),
        "node name a number": ("spec", {"containers": [container("a")], "nodeName": 5}, ["spec.nodeName", "5"]),
        "status a list": ("status", ["x"], ["status", "x"]),
        "exit code a text": (
            "status",
            {"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": "0"}}}]},
            ["status.initContainerStatuses[0].state.terminated.exitCode", '"0"', "int"],
        ),
    }
    named |= {name: (json.dumps(pod() | {key: value}).encode(), texts) for name, (key, value, texts) in changes.items()}
    return [pytest.param(body, texts, id=name) for name, (body, texts) in named.items()]


@pytest.mark.parametrize("body, texts", bodies())
async def test_a_body_that_cannot_be_used_is_refused_and_changes_nothing(body: bytes, texts: list[str]) -> None:
    async with serving(node("n1"), bound("filed", "n1", CARD)) as client:
        before = [await client.send("GET", f"/api/v1/{name}") for name in ("pods", "nodes", "verify")]
        answer = await client.post("/api/v1/pods", body)
        assert answer.status == 400
        said = answer.json()
        assert said.keys() == {"error"}
        assert "\n" not in said["error"]
        assert [text for text in texts if text not in said["error"]] == []
        assert [await client.send("GET", f"/api/v1/{name}") for name in ("pods", "nodes", "verify")] == before
        await client.create(phased())


async def test_yaml_is_refused() -> None:
    """A YAML map of 1.5 MB takes 2.3 s to read. Files may be YAML: they are read before any request waits."""
    body = b"kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: main}]}\n"
    async with serving(node("n1")) as client:
        answer = await client.post("/api/v1/pods", body)
        assert answer.status == 400
        assert "body: pod: not JSON" in answer.json()["error"]


_QUANTITIES = {
    "beyond floats": (b"1e400", "1E+400"),
    "beyond 64 bits": (b"1" + b"0" * 30, "1" + "0" * 30),
    "a text beyond 64 bits": (b'"1%b"' % (b"0" * 30), "1" + "0" * 30),
    "a negative text beyond 64 bits": (b'"-1%b"' % (b"0" * 30), "-1" + "0" * 30),
    "16Gi": (b'"16Gi"', "write 16384"),
    "a fraction": (b"1.5", "1.5"),
    "too long": (b"1" * 5000, "out of range"),
}


@pytest.mark.parametrize("quantity, said", [pytest.param(*each, id=name) for name, each in _QUANTITIES.items()])
@pytest.mark.parametrize("resource", [COUNT, MEMORY])
async def test_a_quantity_that_cannot_be_used_is_refused_with_a_true_message(
    resource: str, quantity: bytes, said: str
) -> None:
    made = pod(containers=[container("main", {"limits": {COUNT: "1"} | {resource: "HERE"}})])
    async with serving(node("n1")) as client:
        answer = await client.post("/api/v1/pods", json.dumps(made).encode().replace(b'"HERE"', quantity))
        assert answer.status == 400, answer.body
        assert said in answer.json()["error"] or (resource, said) == (COUNT, "write 16384")
        assert await client.get("/api/v1/pods") == []


async def test_the_example_of_an_invalid_pod_is_refused_as_account_refuses_it() -> None:
    path = Path(__file__).parents[2] / "manifests" / "examples" / "pods" / "invalid.yaml"
    said = refusal_inside("account", "-f", path)
    async with serving(node("n1")) as client:
        answer = await client.post("/api/v1/pods", yaml.safe_load(path.read_text()))
    assert (answer.status, f"error: {answer.json()['error']}") == (400, said)


async def test_pods_from_files_are_read_only() -> None:
    async with serving(node("n1"), bound("filed", "n1", CARD), allow_writes=False) as client:
        before = await client.get("/api/v1/pods")
        assert (await client.delete("filed")).status == 403
        for later in (bound("filed", "n1", CARD, 7), bound("filed", "n1", CARD, 7, uid="another")):
            answer = await client.post("/api/v1/pods", later)
            assert answer.status == 403
            assert "--allow-writes" in answer.json()["error"]
        assert await client.get("/api/v1/pods") == before
        await client.create(phased())
        await client.create(phased(STEADY), 200)
        assert (await client.delete("p")).status == 200


_STRANGE: list[tuple[int, dict[str, str]]] = [
    (403, {"Host": "evil.example"}),
    (403, {"Host": "127.0.0.1.evil.example:8888"}),
    (403, {"Host": "10.0.0.1"}),
    (403, {"Origin": "http://evil.example"}),
    (403, {"Origin": "null"}),
    (403, {"Origin": "http://evil.example", "Host": "evil.example"}),
    (415, {"Content-Type": "text/plain"}),
    (415, {"Content-Type": "application/x-www-form-urlencoded"}),
    (415, {"Content-Type": ""}),
]


@pytest.mark.parametrize("status, headers", _STRANGE)
async def test_a_strange_page_can_change_nothing(status: int, headers: dict[str, str]) -> None:
    body, sent = json.dumps(phased()).encode(), {"Content-Type": "application/json"} | headers
    async with serving(node("n1"), bound("filed", "n1", CARD)) as client:
        assert (await client.send("POST", "/api/v1/pods", body, sent)).status == status
        if status == 403:
            assert (await client.send("DELETE", "/api/v1/pods/default/filed", None, headers)).status == 403
        if "Origin" in headers:
            for verb in ("filter", "bind", "prioritize"):
                assert (await client.send("POST", f"/{verb}", b"{}", sent)).status == 403
        assert (await client.pods()).keys() == {"default/filed"}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8888", "LOCALHOST:80"])
async def test_names_of_loopback_are_this_server(host: str) -> None:
    headers = {"Host": host, "Origin": f"http://{host}", "Content-Type": "application/json; charset=utf-8"}
    async with serving(node("n1")) as client:
        answer = await client.send("POST", "/api/v1/pods", json.dumps(phased()).encode(), headers)
        assert answer.status == 201


async def test_a_body_above_the_limit_is_refused() -> None:
    async with serving(node("n1"), max_body_bytes=1024) as client:
        assert (await client.post("/api/v1/pods", b" " * 2000)).status == 413
        assert await client.pods() == {}


async def test_deletion_alone_and_exits_of_sidecars_change_nothing() -> None:
    leaving = phased(STEADY)
    leaving["metadata"]["deletionTimestamp"] = FINISHED
    stopped = status_of("Running", terminated("side"), terminated("init"))
    early = status_of("Running", terminated("side"), running("init"))
    async with serving(node("n1")) as client:
        assert (await client.create(leaving))["held"] == {CARD: held(2, 12)}
        assert (await client.create(phased(stopped), 200))["held"] == {CARD: held(2, 12)}
        assert (await client.create(phased(early), 200))["held"] == {CARD: held(2, 22)}


@pytest.mark.parametrize(
    "field, value",
    [("name", "../../../nodes/n1"), ("name", "P"), ("namespace", "a.b"), ("namespace", "../x"), ("uid", "u\x1b[2J")],
)
async def test_a_name_that_no_api_server_accepts_is_refused_with_field_and_value(field: str, value: str) -> None:
    forged = pod("p") | {"metadata": {"name": "p", "namespace": "default", "uid": "uid-p"} | {field: value}}
    async with serving(node("n1")) as client:
        answer = await client.post("/api/v1/pods", forged)
        assert answer.status == 400
        assert answer.json()["error"].startswith(f"metadata.{field}: {value}: must ")
        assert await client.get("/api/v1/pods") == []
        answer_of_filter = await client.filter(forged, "n1")
        assert (answer_of_filter["NodeNames"], answer_of_filter["Error"]) == ([], "")
        assert list(answer_of_filter["FailedAndUnresolvableNodes"]) == ["n1"]
        assert await client.get("/api/v1/pods") == []
        assert (await client.bind(pod("p") | {"metadata": forged["metadata"]}, "n1")) != ""


async def test_objects_of_files_with_illegal_names_are_problems_and_the_others_count() -> None:
    forged = node("n2") | {"metadata": {"name": "../n2"}}
    async with serving(node("n1"), forged, bound("P", "n1", CARD), bound("p", "n1", CARD, 7)) as client:
        problems = (await client.get("/api/v1/verify"))["problems"]
        assert [each["message"].split(":")[0] for each in problems] == ["metadata.name"] * 2
        assert [each["node"] for each in await client.get("/api/v1/nodes")] == ["n1"]
        assert await client.requested() == {CARD: held(1, 7)}
