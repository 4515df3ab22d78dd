"""Bodies that a real kube-scheduler sent, byte for byte and pretty printed, over real HTTP.

They exist because hand-written bodies lack what Go writes: nulls, whole objects, names in no order. They must not
depend on one another. Invariant: what decodes gets a valid answer, whether the cluster knows the nodes or not, and
asking changes nothing.
"""

import json
import re
from typing import Any

import msgspec
import pytest

from tests.extender.recorded import BARE, FITS, FULL, PAYLOADS, Recorded, recorded
from tests.extender.serving import Answer, Client, serving

FILTER_KEYS = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
ASKING = pytest.mark.parametrize("sent", recorded("filter", "prioritize"))


def places(answer: Answer, sent: Recorded) -> dict[str, str]:
    """Return candidate node -> where filter put it; check the shape, and that every node is in one place only."""
    said = answer.json()
    assert answer.status == 200
    assert said.keys() == FILTER_KEYS
    assert said["Error"] == ""
    if sent.body["NodeNames"] is None:
        assert said["NodeNames"] is None
        assert said["Nodes"].keys() == {"metadata", "items"}
        passed = [item["metadata"]["name"] for item in said["Nodes"]["items"]]
    else:
        assert said["Nodes"] is None
        passed = said["NodeNames"]
    found = [(name, "passed") for name in passed]
    for key in ("FailedNodes", "FailedAndUnresolvableNodes"):
        for name, text in said[key].items():
            found.append((name, key))
            assert re.fullmatch(r"[A-Za-z]+: [^0-9%]+", text)
    assert sorted(name for name, _ in found) == sorted(sent.offered)
    return dict(found)


def raw_items(body: bytes) -> list[bytes]:
    """Return the bytes of every item of `Nodes`."""
    nodes = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["Nodes"]
    items = msgspec.json.decode(nodes, type=dict[str, msgspec.Raw])["items"]
    return [bytes(item) for item in msgspec.json.decode(items, type=list[msgspec.Raw])]


async def node_list(client: Client) -> bytes:
    return (await client.send("GET", "/api/v1/nodes")).body


@ASKING
async def test_every_offered_node_is_in_exactly_one_place_and_the_right_one(sent: Recorded) -> None:
    right = {FITS: "passed", FULL: "FailedNodes", BARE: "FailedAndUnresolvableNodes"}
    async with serving(cluster=sent.cluster()) as client:
        found = places(await client.post("/filter", sent.raw), sent)
    if sent.wanted:
        assert found == {name: right[kind] for name, kind in sent.kinds.items()}
    else:
        assert set(found.values()) == {"passed"}


@ASKING
async def test_nodes_that_the_cluster_does_not_know_are_unresolvable(sent: Recorded) -> None:
    async with serving() as client:
        answer = await client.post("/filter", sent.raw)
        scores = (await client.post("/prioritize", sent.raw)).json()
    if sent.wanted:
        assert set(places(answer, sent).values()) == {"FailedAndUnresolvableNodes"}
        texts = set(answer.json()["FailedAndUnresolvableNodes"].values())
        assert len(texts) == 1
        assert texts.pop().startswith("NodeUnknown: ")
    else:
        assert set(places(answer, sent).values()) == {"passed"}
    assert scores == []


@pytest.mark.parametrize("sent", recorded("filter", "prioritize", having="full"))
async def test_node_objects_come_back_byte_for_byte(sent: Recorded) -> None:
    async with serving(cluster=sent.cluster()) as client:
        answer = await client.post("/filter", sent.raw)
    echoed = raw_items(answer.body)
    assert len(echoed) == len(sent.fitting)
    assert set(echoed) <= set(raw_items(sent.raw))


@ASKING
async def test_at_most_ten_nodes_that_fit_are_scored_and_the_best_one_alone_is_at_ten(sent: Recorded) -> None:
    fitting = sent.fitting if sent.wanted else set()
    async with serving(cluster=sent.cluster()) as client:
        before = await client.post("/prioritize", sent.raw)
        await client.post("/filter", sent.raw)
        after = await client.post("/prioritize", sent.raw)
    assert before.status == 200
    scores = before.json()
    assert [host["Score"] for host in scores] == list(range(10, 0, -1))[: len(fitting)]
    assert all(host.keys() == {"Host", "Score"} for host in scores)
    assert len({host["Host"] for host in scores} & fitting) == len(scores)
    assert after == before


@pytest.mark.parametrize("sent", recorded("prioritize"))
async def test_a_single_node_gets_the_highest_score(sent: Recorded) -> None:
    name = sent.offered[0]
    async with serving(cluster=sent.cluster(FITS)) as client:
        answer = await client.post("/prioritize", sent.body | {"Nodes": None, "NodeNames": [name]})
    assert answer.json() == [{"Host": name, "Score": 10}]


@pytest.mark.parametrize("sent", recorded("filter", "prioritize", having=".raw"))
async def test_lower_case_keys_get_the_same_answer(sent: Recorded) -> None:
    async with serving(cluster=sent.cluster()) as client:
        for verb in ("/filter", "/prioritize"):
            assert await client.post(verb, sent.lower_cased) == await client.post(verb, sent.body)


@ASKING
async def test_asking_twice_gives_the_same_bytes_and_changes_nothing(sent: Recorded) -> None:
    async with serving(cluster=sent.cluster()) as client:
        before = await node_list(client)
        for verb in ("/filter", "/prioritize", "/filter-dryrun"):
            assert await client.post(verb, sent.raw) == await client.post(verb, sent.raw)
        assert await node_list(client) == before


async def test_a_retry_gets_the_answer_of_the_first_attempt() -> None:
    first, retry = Recorded("filter_first_attempt.raw"), Recorded("filter_retry_with_condition.raw")
    async with serving(cluster=first.cluster()) as client:
        answers = [places(await client.post("/filter", each.raw), first) for each in (first, retry)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("suffix", ["raw", "json"])
@pytest.mark.parametrize(
    "filtered, bound",
    [
        pytest.param("filter_plain_cached", "bind_plain", id="plain"),
        pytest.param("filter_plain_full", "bind_plain_full", id="plain with whole nodes"),
        pytest.param("filter_init_sidecar_app_cached", "bind_init_sidecar_app", id="init, sidecar and app"),
    ],
)
async def test_bind_follows_its_filter(filtered: str, bound: str, suffix: str) -> None:
    asked, sent = Recorded(f"{filtered}.{suffix}"), Recorded(f"{bound}.{suffix}")
    async with serving(cluster=asked.cluster(FITS)) as client:
        assert (await client.post("/bind", sent.raw)).json()["Error"] != ""
        await client.post("/filter", asked.raw)
        assert await client.post("/bind", sent.lower_cased) == Answer(200, b'{"Error":""}')
        assert await client.post("/bind", sent.raw) == Answer(200, b'{"Error":""}')
        entry = (await client.pods())[f"{sent.body['PodNamespace']}/{sent.body['PodName']}"]
    assert (entry["uid"], entry["node"]) == (sent.body["PodUID"], sent.body["Node"])
    assert entry["held"]


async def test_a_recorded_pod_holds_its_peak_on_few_cards() -> None:
    # init 4; sidecar 1 + init2 3; sidecar 1 + apps 2 + 1: four whole cards are enough for every phase.
    sent = Recorded("bind_init_sidecar_app.raw")
    asked = Recorded("filter_init_sidecar_app_cached.raw")
    async with serving(cluster=asked.cluster(FITS)) as client:
        await client.post("/filter", asked.raw)
        await client.post("/bind", sent.raw)
        entry = (await client.pods())["default/multi"]
    assert (entry["state"], entry["total"]["peak"]["count"], entry["total"]["steady"]["count"]) == ("peak", 4, 4)
    assert [each["memory"] for each in entry["peak"].values()] == [1000] * 4


@pytest.mark.parametrize("sent", recorded("filter", "prioritize", "bind", "preempt"))
async def test_the_scheduler_prefix_gets_the_same_answer(sent: Recorded) -> None:
    async with serving() as client:
        assert await client.post(f"/scheduler/{sent.verb}", sent.raw) == await client.post(f"/{sent.verb}", sent.raw)


async def test_the_recorded_headers_are_served() -> None:
    headers: dict[str, Any] = json.loads((PAYLOADS / "request_headers.json").read_text(encoding="utf-8"))
    del headers["Host"], headers["Content-Length"]  # the client's own
    sent = Recorded("filter_plain_cached.raw")
    async with serving(cluster=sent.cluster()) as client:
        assert await client.send("POST", "/filter", sent.raw, headers) == await client.post("/filter", sent.raw)
