"""Each fault once: what the client sees, and whether the write took effect.

Invariant: waits take virtual time, so a busy machine changes no outcome.
"""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import PODS, Client, Stream
from tests.virtual_time import passes


async def annotation(client: Client) -> str | None:
    return ((await client.ok("GET", f"{PODS}/a"))["metadata"].get("annotations") or {}).get("k")


@pytest.mark.parametrize("after, written", [(False, None), (True, "v")])
@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_status(server: ApiServer, client: Client, code: int, after: bool, written: str | None) -> None:
    await client.create()
    rule = server.faults.add(fault="status", code=code, after=after, verb="patch", times=1, retry_after_seconds=7)
    async with client.session.patch(
        f"{PODS}/a",
        data=b'{"metadata":{"annotations":{"k":"v"}}}',
        headers={"Content-Type": "application/merge-patch+json"},
    ) as response:
        assert (response.status, response.headers["Retry-After"]) == (code, "7")
        status = await response.json()
        assert (status["kind"], status["code"], status["details"]["retryAfterSeconds"]) == ("Status", code, 7)
    assert await annotation(client) == written
    assert rule.hits == 1
    await client.annotate("a", k="w")


@pytest.mark.parametrize("after, written", [(False, None), (True, "v")])
async def test_reset(server: ApiServer, client: Client, after: bool, written: str | None) -> None:
    await client.create()
    server.faults.add(fault="reset", after=after, verb="patch", times=1)
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await client.annotate("a", k="v")
    assert await annotation(client) == written


async def test_latency_before_the_write(server: ApiServer, client: Client) -> None:
    await client.create()
    server.faults.add(fault="latency", seconds=0.3, verb="patch", times=1)
    late = asyncio.create_task(client.annotate("a", k="v"))
    await passes(0.05)
    assert await annotation(client) is None
    await late
    assert await annotation(client) == "v"


async def test_latency_after_the_write(server: ApiServer, client: Client) -> None:
    await client.create()
    server.faults.add(fault="latency", seconds=0.3, after=True, verb="patch", times=1)
    late = asyncio.create_task(client.annotate("a", k="v"))
    await passes(0.05)
    assert (await annotation(client), late.done()) == ("v", False)
    await late


async def test_a_write_lands_after_its_client_gave_up(server: ApiServer, client: Client) -> None:
    await client.create()
    server.faults.add(fault="latency", seconds=0.4, resource="pods/binding", times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.bind("a")
    assert "nodeName" not in (await client.ok("GET", f"{PODS}/a"))["spec"]
    await passes(0.5)
    assert (await client.ok("GET", f"{PODS}/a"))["spec"]["nodeName"] == "n"


@pytest.mark.parametrize("after, written", [(False, None), (True, "v")])
async def test_hang(server: ApiServer, client: Client, after: bool, written: str | None) -> None:
    await client.create()
    server.faults.add(fault="hang", after=after, verb="patch", times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.annotate("a", k="v")
    assert await annotation(client) == written


async def test_a_list_and_a_watch_can_hang_too(server: ApiServer, client: Client) -> None:
    server.faults.add(fault="hang", verb="list", times=1)
    server.faults.add(fault="hang", verb="watch", times=1)
    for query in ("", "?watch=1"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.session.get(PODS + query)
    async with client.watch(PODS, timeoutSeconds="0.3") as stream:
        assert stream.status == 200


async def test_answers_in_another_order(server: ApiServer, client: Client) -> None:
    await client.create()
    await client.create("b")
    server.faults.add(fault="reorder", size=2, verb="patch", times=2)
    order: list[str] = []

    async def annotate(name: str) -> int:
        answer = await client.annotate(name, k="v")
        order.append(name)
        return int(answer["metadata"]["resourceVersion"])

    first = asyncio.create_task(annotate("a"))
    await passes(0.05)
    second = asyncio.create_task(annotate("b"))
    assert await first < await second
    assert order == ["b", "a"]


async def test_a_reordering_that_finds_no_partner_lets_go(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.apiserver.harm._REORDER_WAIT_SECONDS", 0.05)
    await client.create()
    server.faults.add(fault="reorder", verb="patch", times=1)
    await client.annotate("a", k="v")


async def events(client: Client) -> list[str]:
    """Return the lines of a watch while three pods come and one goes, up to the last pod; a broken end is "broken"."""
    seen: list[str] = []
    async with client.watch(PODS) as stream:
        for name in "abc":
            await client.create(name)
        await client.ok("DELETE", f"{PODS}/b")
        await client.create("z")
        try:
            while "ADDED z" not in seen and (line := await stream.line()):
                try:
                    event = orjson.loads(line)
                    name = event["object"]["metadata"].get("name", event["object"].get("code"))
                    seen.append(f"{event['type']} {name}")
                except orjson.JSONDecodeError:
                    seen.append("half" if not line.endswith(b"\n") else "garbage")
        except aiohttp.ClientError:
            seen.append("broken")
    return seen


ALL = ["ADDED a", "ADDED b", "ADDED c", "MODIFIED b", "DELETED b", "ADDED z"]


@pytest.mark.parametrize(
    "fault, expected",
    [
        ({"fault": "drop", "event": "DELETED"}, [*ALL[:4], "ADDED z"]),
        ({"fault": "drop", "object": "ns/c"}, [*ALL[:2], *ALL[3:]]),
        ({"fault": "duplicate", "nth": 2}, ["ADDED a", "ADDED b", *ALL[1:]]),
        ({"fault": "garbage", "nth": 3}, [*ALL[:2], "garbage", *ALL[2:]]),
        ({"fault": "truncate", "nth": 3}, [*ALL[:2], "broken"]),
        ({"fault": "expire", "nth": 4}, [*ALL[:3], "ERROR 410"]),
        ({"fault": "drop", "resource": "nodes"}, ALL),
    ],
    ids=lambda value: "-".join(str(one) for one in value.values()) if isinstance(value, dict) else "",
)
async def test_faults_of_events(server: ApiServer, client: Client, fault: dict[str, Any], expected: list[str]) -> None:
    server.faults.add(**fault)
    assert await events(client) == expected


async def test_half_a_line_arrives_before_the_break(server: ApiServer, client: Client) -> None:
    await client.create()
    server.faults.add(fault="truncate")
    async with client.watch(PODS) as stream:
        data = await stream.response.content.readany()
        assert data.startswith(b'{"type":"ADDED"')
        assert not data.endswith(b"\n")
        with pytest.raises(aiohttp.ClientError):
            await stream.response.content.readany()


async def test_one_watch_is_delayed_and_the_other_is_not(server: ApiServer, client: Client) -> None:
    async with client.watch(PODS) as first, client.watch(PODS) as second:
        server.faults.add(fault="delay", seconds=0.5, times=1)
        started = asyncio.get_running_loop().time()
        await client.create("a")
        await client.create("b")

        async def both(stream: Stream) -> float:
            assert [await stream.seen(), await stream.seen()] == [("ADDED", "a"), ("ADDED", "b")]
            return asyncio.get_running_loop().time() - started

        quick, slow = sorted(await asyncio.gather(both(first), both(second)))
        assert quick < 0.45 < slow


async def test_cutting_watches(server: ApiServer, client: Client) -> None:
    async with client.watch(PODS) as pods, client.watch("/api/v1/nodes", timeoutSeconds="0.3") as nodes:
        assert server.cut(server.store.tables[next(iter(server.store.tables))].resource) == 1
        with pytest.raises(aiohttp.ClientError):
            await pods.line()
        assert await nodes.line() == b""


async def test_rules_count_skip_and_choose(server: ApiServer, client: Client) -> None:
    rule = server.faults.add(fault="status", code=500, verb="get", nth=2)
    await client.create()
    assert [(await client.send("GET", f"{PODS}/a"))[0] for _ in range(3)] == [200, 500, 200]
    assert (rule.seen, rule.hits) == (3, 1)
    server.faults.clear()
    server.faults.add(fault="status", code=500, method="GET", path=r"/api/v1/namespaces/ns/pods/[ab]", probability=0.5)
    codes = [(await client.send("GET", f"{PODS}/a"))[0] for _ in range(60)]
    assert 10 < codes.count(500) < 50
    assert (await client.send("GET", f"{PODS}/c"))[0] == 404


async def test_an_unknown_fault_is_refused(server: ApiServer) -> None:
    with pytest.raises(ValueError, match="unknown field"):
        server.faults.add(fault="status", cod=500)


async def test_a_partition_of_one_client(server: ApiServer, client: Client) -> None:
    await client.create()
    one, two = {"Authorization": "Bearer replica-a"}, {"Authorization": "Bearer replica-b"}
    async with client.session.get(f"{PODS}?watch=1", headers=one) as stays:
        async with client.session.get(f"{PODS}?watch=1", headers=two) as breaks:
            server.faults.add(fault="hang", client="replica-b")
            assert server.cut(client="replica-b") == 1
            with pytest.raises(aiohttp.ClientError):
                await breaks.read()
        assert (await client.send("GET", f"{PODS}/a", **one))[0] == 200
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.send("GET", f"{PODS}/a", **two)
        assert (await stays.content.readline()).startswith(b'{"type":"ADDED"')


async def test_a_silent_watch(server: ApiServer, client: Client) -> None:
    server.faults.add(fault="delay", seconds=3600)
    async with client.watch(PODS, timeoutSeconds="0.1", allowWatchBookmarks="true") as stream:
        await client.create()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await stream.line()
