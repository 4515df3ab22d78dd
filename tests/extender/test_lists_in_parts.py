"""Parts of the lists over HTTP: pages, fields, filters, entity tags, compression; and the document that describes them.

They exist because nobody can use a list of 10,000 nodes as a whole. They must not know how pages are made. Invariant:
put together, the parts are the whole list.
"""

import asyncio
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from extender.reports import shapes
from extender.server.openapi import OPERATIONS, openapi
from tests.extender.dra import gpu, resource_claim, resource_slice, result
from tests.extender.objects import asks, bound, card, container, node, phased, pod, quota
from tests.extender.serving import Client, serving

OBJECTS = [
    *(node(f"n{number}", 2) for number in range(5)),
    *(bound(f"p{number}", "n1", "GPU-n1-0", 10, namespace=f"team-{number % 2}") for number in range(5)),
    bound("other", "n2", "GPU-n2-0", 100),
    pod("waits", [container("main", asks(1, 5000))]),
    quota({"limits.nvidia.com/gpumem": "9000"}),
]


LISTS = ("nodes", "pods", "claims", "holds", "verify", "quotas", "decisions", "usage", "usage/records")
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


async def pages(client: Client, path: str, limit: int) -> list[Any]:
    """Return all pages of a list, by following the links from each to the next."""
    found = []
    following: str | None = f"{path}{'&' if '?' in path else '?'}limit={limit}"
    async with aiohttp.ClientSession(client.url) as session:
        while following is not None:
            async with session.get(following) as answer:
                assert answer.status == 200
                found.append(await answer.json())
                link = answer.headers.get("Link")
                following = None if link is None else link[1 : link.index(">")]
                assert (link is None) is ("Continue" not in answer.headers)
    return found


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/pods", "/api/v1/pods?namespace=team-0"])
async def test_the_pages_together_are_the_list(path: str) -> None:
    async with serving(*OBJECTS) as client:
        whole = await client.get(path)
        for limit in (1, 2, 3, len(whole), len(whole) + 1):
            found = await pages(client, path, limit)
            assert [entry for page in found for entry in page] == whole
            assert all(len(page) == limit for page in found[:-1])


async def test_a_page_goes_on_behind_an_entry_that_is_gone_by_then() -> None:
    async with serving(*OBJECTS) as client, aiohttp.ClientSession(client.url) as session:
        async with session.get("/api/v1/pods?limit=2") as answer:
            first, token = await answer.json(), answer.headers["Continue"]
        await client.delete(first[1]["pod"].partition("/")[2], first[1]["pod"].partition("/")[0])
        rest = await client.get(f"/api/v1/pods?continue={token}")
        assert [*first[:1], *rest] == await client.get("/api/v1/pods")


@pytest.mark.parametrize("fields", ["", "fields=problems,devices.uuid"])
async def test_the_pages_of_verify_together_are_the_whole(fields: str) -> None:
    async with serving(*OBJECTS, bound("lost", "n1", "GPU-lost", 10), bound("gone", "n9", "GPU-gone")) as client:
        whole = await client.get(f"/api/v1/verify?{fields}")
        assert len(whole["problems"]) == 2
        count = len(whole["devices"]) + len(whole["problems"])
        for limit in (1, 3, len(whole["devices"]), count, count + 1):
            found = await pages(client, f"/api/v1/verify?{fields}", limit)
            assert {name: [each for page in found for each in page[name]] for name in whole} == whole
            assert all(sum(map(len, page.values())) == limit for page in found[:-1])
        async with (
            aiohttp.ClientSession(client.url) as session,
            session.get(f"/api/v1/verify?limit=4&{fields}") as answer,
        ):
            first, token = await answer.json(), answer.headers["Continue"]
        rest = await client.get(f"/api/v1/verify?continue={token}&{fields}")
        assert {name: [*first[name], *rest[name]] for name in whole} == whole


async def test_problems_come_without_cards() -> None:
    async with serving(*OBJECTS, bound("lost", "n1", "GPU-lost", 10)) as client:
        whole = await client.get("/api/v1/verify")
        assert await client.get("/api/v1/verify?fields=problems") == {"problems": whole["problems"]}
        assert await client.get("/api/v1/verify?fields=none") == {}
        (page,) = await pages(client, "/api/v1/verify?fields=problems", 10)
        assert page == {"problems": whole["problems"]}


async def test_quotas_and_decisions_come_in_pages_too() -> None:
    limits = {"limits.nvidia.com/gpumem": "9000", "requests.nvidia.com/gpu": "3"}
    scoped = [quota(limits, "team", name=each.lower(), scopes=[each]) for each in ("NotBestEffort", "BestEffort")]
    async with serving(*OBJECTS, quota(limits, "team"), *scoped) as client:
        for number in range(4):
            await client.filter(pod(f"q{number}"), "n1", "n2")
        for path, count in (("/api/v1/quotas", 7), ("/api/v1/decisions", 4), ("/api/v1/decisions?pod=default/q1", 1)):
            whole = await client.get(path)
            assert len(whole) == count
            for limit in (1, 2, count, count + 1):
                assert [each for page in await pages(client, path, limit) for each in page] == whole
        assert await client.get("/api/v1/decisions?fields=pod&limit=1") == [{"pod": "default/q3"}]


async def test_claims_usage_and_records_come_in_pages_too() -> None:
    claims = [resource_claim(f"c{number}", result(f"gpu-{number}")) for number in range(3)]
    cards = node("x1", [card(f"GPU-x-{number}", number) for number in range(3)])
    slices = resource_slice(*(gpu(f"gpu-{number}", f"GPU-x-{number}") for number in range(3)), node="x1")
    async with serving(*OBJECTS, cards, slices, *claims) as client:
        client.cluster.keep_usage((), lambda: 10**18)
        for path, count in (("claims", 3), ("usage", 3), ("usage/records", 6), ("usage?namespace=team-0", 1)):
            whole = await client.get(f"/api/v1/{path}")
            assert len(whole) == count
            for limit in (1, 2, count, count + 1):
                assert [each for page in await pages(client, f"/api/v1/{path}", limit) for each in page] == whole
        assert await client.get("/api/v1/usage?fields=namespace,held.memory&limit=1") == [
            {"namespace": "default", "held": {"memory": 100}}
        ]
        answer = await client.send("GET", "/api/v1/usage/records?format=csv&limit=1")
        assert (answer.status, answer.json()["error"]) == (400, "format: csv: has neither pages nor fields")


async def test_nodes_with_a_problem_are_those_with_such_a_card() -> None:
    objects = [
        node("n1", [card("GPU-1", health=False), card("GPU-2", 1)]),
        node("n2"),
        node("n3"),
        bound("lost", "n2", "GPU-lost", 10),
        bound("whole", "n3", "GPU-n3-0", 10, cores=100),
        pod("unreadable", node="n3", allocation="GPU-n3-0,NVIDIA,x,0:;"),
    ]
    async with serving(*objects) as client:
        for problem, expected in (
            ("unhealthy", ["n1"]),
            ("orphaned", ["n2"]),
            ("over-committed", ["n2"]),
            ("blocked", ["n3"]),
            ("exclusive", ["n3"]),
            ("cordoned", []),
            ("any", ["n1", "n2", "n3"]),
        ):
            found = await client.get(f"/api/v1/nodes?problem={problem}")
            assert [each["node"] for each in found] == expected, problem
        assert await client.get("/api/v1/nodes?problem=any&model=none") == []
        answer = await client.send("GET", "/api/v1/nodes?problem=red")
    assert (answer.status, answer.json()["error"].partition(": is")[0]) == (400, "problem: red")


async def test_filters_and_fields_leave_what_is_asked_for() -> None:
    async with serving(*OBJECTS) as client:
        pods = await client.get("/api/v1/pods?node=n1&namespace=team-1&fields=pod,total.peak.memory,none")
        assert pods == [{"pod": f"team-1/p{each}", "total": {"peak": {"memory": 10}}} for each in (1, 3)]
        assert [each["node"] for each in await client.get("/api/v1/nodes?node=n3")] == ["n3"]
        assert await client.get("/api/v1/nodes?model=none") == []
        model = (await client.get("/api/v1/nodes"))[0]["devices"][0]["type"]
        assert len(await client.get(f"/api/v1/nodes?model={model.replace(' ', '%20')}&fields=node")) == 5
        (one,) = await client.get("/api/v1/nodes?node=n1&fields=devices.uuid")
        assert one == {"devices": [{"uuid": "GPU-n1-0"}, {"uuid": "GPU-n1-1"}]}


@pytest.mark.parametrize(
    "query, said",
    [
        ("limit=0", "limit: 0"),
        ("limit=x", "limit: x"),
        ("limit=", "limit: (empty)"),
        ("limit=1&limit=2", "limit: 1, 2"),
        ("continue=!!", "continue: !!"),
        ("continue=e30", "continue: e30"),
        ("fields=", "fields: (empty)"),
        ("fields=a..b", "fields: a..b"),
        ("fields=" + ",".join("a" * 60), "fields: 60 names"),
        ("colour=red", "query: colour"),
    ],
)
async def test_parameters_that_cannot_be_used_are_named(query: str, said: str) -> None:
    async with serving(*OBJECTS) as client:
        for path in LISTS:
            answer = await client.send("GET", f"/api/v1/{path}?{query}")
            assert answer.status == 400
            assert answer.json()["error"].startswith(said)


@pytest.mark.parametrize(
    "path",
    [
        *("/api/v1/nodes", "/api/v1/pods", "/api/v1/pods?limit=2", "/api/v1/quotas"),
        *("/api/v1/verify", "/api/v1/verify?limit=2", "/api/v1/verify?fields=problems"),
        *("/api/v1/usage", "/api/v1/usage?namespace=team-0&limit=1", "/api/v1/claims"),
    ],
)
async def test_what_is_known_is_not_sent_again_until_it_changes(path: str) -> None:
    async with serving(*OBJECTS) as client, aiohttp.ClientSession(client.url) as session:
        async with session.get(path) as answer:
            tag = answer.headers["ETag"]
        known = {"If-None-Match": tag}
        assert (await client.send("GET", path, headers=known)).status == 304
        await client.create(pod("new", [container("main", asks(1, 5000))]))
        assert (await client.send("GET", path, headers=known)).status == 200
        async with session.get(path) as answer:
            known = {"If-None-Match": answer.headers["ETag"]}
        await client.delete("new")
        assert (await client.send("GET", path, headers=known)).status == 200


async def test_decisions_are_not_sent_again_until_there_is_another() -> None:
    async with serving(*OBJECTS) as client, aiohttp.ClientSession(client.url) as session:
        asking = pod("q", [container("main", asks(1, 5000))])
        known: dict[str, str] = {}
        for _ in range(2):
            # The second answer comes from memory, which is counted.
            await client.filter(asking, "n1")
            async with session.get("/api/v1/decisions") as answer:
                known = {"If-None-Match": answer.headers["ETag"]}
            assert (await client.send("GET", "/api/v1/decisions", headers=known)).status == 304
        await client.filter(asking, "n1", "n2")
        assert (await client.send("GET", "/api/v1/decisions", headers=known)).status == 200


@pytest.mark.parametrize("path", [f"/api/v1/{each}{page}" for each in LISTS for page in ("", "?limit=2")])
async def test_lists_are_compressed_for_who_takes_it(path: str) -> None:
    async with serving(*OBJECTS) as client:
        client.cluster.keep_usage((), lambda: 10**18)
        plain = await client.send("GET", path, headers={"Accept-Encoding": "identity"})
        async with (
            aiohttp.ClientSession(client.url, auto_decompress=False) as session,
            session.get(path, headers={"Accept-Encoding": "gzip"}) as answer,
        ):
            assert answer.headers["Content-Encoding"] == "gzip"
            assert json.loads(gzip.decompress(await answer.read())) == plain.json()


async def test_every_answer_has_the_shape_that_the_document_gives_it() -> None:
    async with serving(*OBJECTS) as client:
        client.cluster.keep_usage()
        await client.create(phased())
        asking = pod("q", [container("main", asks(1, 5000))])
        await client.filter(asking, "n1", "n2")
        assert await client.get("/openapi.json") == openapi(embedded=True)
        for operation in OPERATIONS:
            if operation.method == "get" and operation.media == "application/json":
                path = operation.path.format(node="n1", namespace="default", name="p")
                said = (await client.send("GET", path)).body
                assert msgspec.json.decode(said, type=operation.answer) == json.loads(said)
        why = json.loads((await client.post("/api/v1/what-if", asking)).body)
        assert msgspec.convert(why, list[shapes.Why]) == why


async def test_the_document_names_every_path_that_is_served() -> None:
    async with serving() as client:
        served = {(path, method) for path, method in client.served() if path.startswith("/api/")}
    assert served == {(each.path, each.method) for each in OPERATIONS}


async def test_a_generator_of_requests_finds_no_answer_that_the_document_does_not_give(tmp_path: Path) -> None:
    """Schemathesis requests everything that the document describes except the stream, which has no end."""
    async with serving(*OBJECTS) as client:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "schemathesis.cli", "run", f"{client.url}/openapi.json", "--exclude-path", "/api/v1/changes"),
            *("--max-examples", "6", "--seed", "1", "--phases", "examples,coverage,fuzzing", "--no-color"),
            *(
                "--checks",
                "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            ),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    # Every operation was requested, and not all answers were errors.
    assert re.search(r"(\d+) generated, \1 passed", said.decode())
