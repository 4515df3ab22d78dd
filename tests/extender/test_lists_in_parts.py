"""Parts of the lists over real HTTP: pages, fields, filters, tags, compression; and the document that describes them.

They exist because a list of 10,000 nodes is of use to nobody as a whole. They must not know how pages are made.
Invariant: put together, the parts are the whole list.
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
from tests.extender.objects import asks, bound, container, node, phased, pod, quota
from tests.extender.serving import Client, serving

OBJECTS = [
    *(node(f"n{number}", 2) for number in range(5)),
    *(bound(f"p{number}", "n1", "GPU-n1-0", 10, namespace=f"team-{number % 2}") for number in range(5)),
    bound("other", "n2", "GPU-n2-0", 100),
    pod("waits", [container("main", asks(1, 5000))]),
    quota({"limits.nvidia.com/gpumem": "9000"}),
]


_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


async def pages(client: Client, path: str, limit: int) -> list[list[Any]]:
    """All pages of a list, by the links that lead from one to the next."""
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
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            answer = await client.send("GET", f"{path}?{query}")
            assert answer.status == 400
            assert answer.json()["error"].startswith(said)


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/pods", "/api/v1/pods?limit=2", "/api/v1/quotas"])
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


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/pods?limit=2", "/api/v1/verify", "/api/v1/quotas"])
async def test_lists_are_compressed_for_who_takes_it(path: str) -> None:
    async with serving(*OBJECTS) as client:
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
    """Schemathesis asks everything that the document describes but the stream, which has no end."""
    async with serving(*OBJECTS) as client:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "schemathesis.cli", "run", f"{client.url}/openapi.json", "--exclude-path", "/api/v1/changes"),
            *("--max-examples", "15", "--seed", "1", "--phases", "coverage,fuzzing", "--no-color"),
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
    assert re.search(r"(\d+) generated", said.decode())
