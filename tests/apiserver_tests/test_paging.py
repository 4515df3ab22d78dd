"""Lists in pages show one moment, whatever is written; and how a list that has expired ends.

Invariant: what is expected was read through the API, in one piece, before the writes.
"""

from random import Random
from typing import Any

import pytest

from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import PODS, Client


def contents(items: list[Any]) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


async def write_at_random(client: Client, rng: Random, names: list[str]) -> None:
    name = rng.choice(names)
    status, _ = await client.send("GET", f"{PODS}/{name}")
    if status == 404:
        await client.create(name)
    elif rng.random() < 0.4:
        await client.ok("DELETE", f"{PODS}/{name}")
    else:
        await client.annotate(name, n=str(rng.random()))


@pytest.mark.parametrize("seed", range(3))
async def test_pages_are_consistent_under_writes(client: Client, seed: int) -> None:
    rng, names = Random(seed), [f"p{i:02}" for i in range(30)]
    for name in rng.sample(names, 20):
        await client.create(name)
    whole = await client.ok("GET", PODS)
    page = await client.ok("GET", f"{PODS}?limit=3")
    assert page["metadata"]["resourceVersion"] == whole["metadata"]["resourceVersion"]
    found, remaining = list(page["items"]), [page["metadata"]["remainingItemCount"]]
    while token := page["metadata"].get("continue"):
        for _ in range(rng.randrange(4)):
            await write_at_random(client, rng, names)
        page = await client.ok("GET", f"{PODS}?limit=3&continue={token}")
        assert page["metadata"]["resourceVersion"] == whole["metadata"]["resourceVersion"]
        found.extend(page["items"])
        remaining.append(page["metadata"].get("remainingItemCount", 0))
    assert found == whole["items"]
    assert remaining == [17, 14, 11, 8, 5, 2, 0]


async def test_every_past_version_can_be_listed(client: Client) -> None:
    rng, names, past = Random(7), [f"p{i}" for i in range(6)], []
    for _ in range(40):
        await write_at_random(client, rng, names)
        now = await client.ok("GET", PODS)
        past.append((now["metadata"]["resourceVersion"], contents(now["items"])))
    rng.shuffle(past)
    for version, then in past:
        answer = await client.ok("GET", f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert contents(answer["items"]) == then


async def test_an_expired_token_is_410_and_offers_to_go_on(server: ApiServer, client: Client) -> None:
    for name in "abcd":
        await client.create(name)
    token = (await client.ok("GET", f"{PODS}?limit=2"))["metadata"]["continue"]
    await client.ok("DELETE", f"{PODS}/d")
    await client.create("e")
    server.compact()
    status, answer = await client.send("GET", f"{PODS}?limit=2&continue={token}")
    assert (status, answer["kind"], answer["reason"], answer["code"]) == (410, "Status", "Expired", 410)
    rest = await client.ok("GET", f"{PODS}?limit=2&continue={answer['metadata']['continue']}")
    assert list(contents(rest["items"])) == ["c", "e"]


async def test_a_token_expires_when_the_history_runs_over(client: Client, server: ApiServer) -> None:
    server.store.tables[next(iter(server.store.tables))].history.limit = 5
    for name in "abc":
        await client.create(name)
    token = (await client.ok("GET", f"{PODS}?limit=1"))["metadata"]["continue"]
    for number in range(5):
        await client.annotate("a", n=str(number))
    assert (await client.send("GET", f"{PODS}?limit=1&continue={token}"))[0] == 200
    await client.annotate("a", n="5")
    assert (await client.send("GET", f"{PODS}?limit=1&continue={token}"))[0] == 410


async def test_a_version_before_the_history_is_410(server: ApiServer, client: Client) -> None:
    version = (await client.create())["metadata"]["resourceVersion"]
    await client.annotate("a", n="1")
    server.compact()
    path = f"{PODS}?resourceVersion={version}"
    assert (await client.send("GET", f"{path}&resourceVersionMatch=Exact"))[0] == 410
    assert (await client.send("GET", f"{path}&limit=1"))[0] == 410
    assert (await client.send("GET", path))[0] == 200


async def test_a_namespace_is_cut_out_where_names_sort_badly(client: Client) -> None:
    for namespace in ("a", "a-b", "a.b", "b"):
        body = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await client.ok("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    for namespace in ("a", "a-b", "a.b", "b"):
        items = (await client.ok("GET", f"/api/v1/namespaces/{namespace}/pods?limit=5"))["items"]
        assert [item["metadata"]["namespace"] for item in items] == [namespace]
    assert len((await client.ok("GET", "/api/v1/pods"))["items"]) == 4
