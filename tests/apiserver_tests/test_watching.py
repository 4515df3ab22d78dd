"""Watches lose and repeat nothing, send bookmarks, and end with 410 as a status or an event.

Invariant: a watch is judged as a client would: by the state that its events add up to.
"""

import asyncio
from random import Random

import aiohttp
import pytest

from tests.apiserver.resources import PODS as POD_RESOURCE
from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import LEASES, PODS, Client, Data
from tests.virtual_time import passes


async def test_a_start_below_the_history_is_http_410(server: ApiServer, client: Client) -> None:
    version = (await client.create())["metadata"]["resourceVersion"]
    await client.annotate("a", n="1")
    server.compact()
    async with client.watch(PODS, resourceVersion=version) as stream:
        assert (stream.status, (await stream.event())["reason"]) == (410, "Expired")


async def test_a_start_at_the_edge_of_the_history_works(server: ApiServer, client: Client) -> None:
    version = (await client.create())["metadata"]["resourceVersion"]
    server.compact()
    await client.annotate("a", n="1")
    async with client.watch(PODS, resourceVersion=version) as stream:
        assert await stream.seen() == ("MODIFIED", "a")


async def test_a_start_below_the_history_can_be_an_event() -> None:
    async with (
        ApiServer(expired_start_is_event=True) as server,
        aiohttp.ClientSession(server.url) as session,
        Client(session).watch(PODS, resourceVersion="1") as stream,
    ):
        event = await stream.event()
        assert (stream.status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)
        assert await stream.event() is None


async def test_an_open_watch_that_falls_out_gets_an_error_event(server: ApiServer, client: Client) -> None:
    server.faults.add(fault="delay", seconds=0.5, times=1)
    version = (await client.create())["metadata"]["resourceVersion"]
    async with client.watch(PODS, resourceVersion=version) as stream:
        for number in range(3):
            await client.annotate("a", n=str(number))
            if number == 0:
                await passes(0.02)
        server.compact()
        assert await stream.seen() == ("MODIFIED", "a")
        event = await stream.event()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await stream.event() is None


async def test_a_compaction_does_not_end_watches_that_missed_nothing(server: ApiServer, client: Client) -> None:
    version = (await client.create())["metadata"]["resourceVersion"]
    async with client.watch(PODS, resourceVersion=version) as stream:
        await client.ok("POST", LEASES, {"metadata": {"name": "l"}, "spec": {}})
        server.compact()
        await client.annotate("a", n="1")
        assert await stream.seen() == ("MODIFIED", "a")


async def test_loading_ends_open_watches_with_410(server: ApiServer, client: Client) -> None:
    async with client.watch(PODS) as stream:
        body = {"metadata": {"name": "b"}, "spec": {"containers": []}}
        server.load([{"apiVersion": "v1", "kind": "Pod", **body}])
        assert (await stream.event())["object"]["code"] == 410


async def test_bookmarks_move_on_with_what_happens_elsewhere() -> None:
    async with ApiServer(bookmark_seconds=0.05) as server, aiohttp.ClientSession(server.url) as session:
        client = Client(session)
        version = (await client.create())["metadata"]["resourceVersion"]
        async with client.watch(PODS, resourceVersion=version, allowWatchBookmarks="true") as stream:
            event = await stream.event()
            assert event["object"] == {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": version},
                "spec": {"containers": None},
                "status": {},
            }
            lease = await client.ok("POST", LEASES, {"metadata": {"name": "l"}, "spec": {}})
            later = lease["metadata"]["resourceVersion"]
            while event["object"]["metadata"]["resourceVersion"] != later:
                event = await stream.event()
                assert event["type"] == "BOOKMARK"
        async with client.watch(PODS, resourceVersion=later) as stream:
            await client.annotate("a", n="1")
            assert await stream.seen() == ("MODIFIED", "a")


async def test_without_asking_there_are_no_bookmarks() -> None:
    async with (
        ApiServer(bookmark_seconds=0.01) as server,
        aiohttp.ClientSession(server.url) as session,
        Client(session).watch(PODS, timeoutSeconds="0.3") as stream,
    ):
        assert await stream.event() is None


def follow(state: dict[str, Data], event: Data) -> int:
    """Apply an event as a client does; returns its version."""
    meta = event["object"]["metadata"]
    if event["type"] == "DELETED":
        assert meta["name"] in state
        del state[meta["name"]]
    else:
        assert (event["type"] == "MODIFIED") == (meta["name"] in state)
        state[meta["name"]] = event["object"]
    return int(meta["resourceVersion"])


async def write_at_random(client: Client, rng: Random) -> None:
    name = f"p{rng.randrange(8)}"
    status, old = await client.send("GET", f"{PODS}/{name}")
    if status == 404:
        await client.create(name, labels={"on": rng.choice(("yes", "no"))})
    elif rng.random() < 0.3:
        await client.ok("DELETE", f"{PODS}/{name}")
    elif rng.random() < 0.3 and not old["spec"].get("nodeName"):
        await client.bind(name)
    else:
        await client.ok("PATCH", f"{PODS}/{name}", {"metadata": {"labels": {"on": rng.choice(("yes", "no"))}}})
    if status != 404 and old["spec"].get("nodeName"):
        await client.ok("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


@pytest.mark.parametrize("selector", [{}, {"labelSelector": "on=yes"}, {"fieldSelector": "spec.nodeName!="}])
@pytest.mark.parametrize("seed", range(2))
async def test_resumed_watches_lose_and_repeat_nothing(client: Client, selector: dict[str, str], seed: int) -> None:
    rng, resumed = Random(seed), 0
    state: dict[str, Data] = {}
    listed = await client.session.get(PODS, params=selector)
    version = int((await listed.json())["metadata"]["resourceVersion"])

    async def write() -> None:
        for _ in range(120):
            await write_at_random(client, rng)

    writer = asyncio.create_task(write())
    while True:
        done = writer.done()
        async with client.watch(PODS, resourceVersion=str(version), timeoutSeconds="0.3", **selector) as stream:
            resumed += 1
            for _ in range(1000 if done else rng.randrange(12)):
                event = await stream.event()
                if event is None:
                    break
                later = follow(state, event)
                assert later > version
                version = later
        if done:
            break
    await writer
    answer = await client.session.get(PODS, params=selector)
    assert state == {
        item["metadata"]["name"]: {"kind": "Pod", "apiVersion": "v1", **item} for item in (await answer.json())["items"]
    }
    assert resumed > 3


async def test_a_reader_that_does_not_read_holds_up_nobody(server: ApiServer, client: Client) -> None:
    server.store.tables[POD_RESOURCE].history.limit = 5
    version = (await client.create(annotations={"big": "x" * 200_000}))["metadata"]["resourceVersion"]
    host, port = server.url.removeprefix("http://").split(":")
    slow, writer = await asyncio.open_connection(host, int(port), limit=2**10)
    writer.write(f"GET {PODS}?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with client.watch(PODS, resourceVersion=version) as quick:
        for number in range(80):
            await client.annotate("a", n=str(number))
            assert await quick.seen() == ("MODIFIED", "a")
    async with asyncio.timeout(10):
        last = b""
        while b'"code":410' not in last:
            last = last[-100:] + await slow.read(2**16)
    writer.close()


async def test_watches_of_clients_that_left_are_closed(server: ApiServer, client: Client) -> None:
    async with client.watch(PODS):
        assert server.watches == 1
    await passes(0.1)
    assert server.watches == 0
