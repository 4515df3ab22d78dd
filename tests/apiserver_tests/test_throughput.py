"""The server is fast enough for benchmarks, by the CPU time of server and client together.

The limits are far below what the server does: they catch a slowdown by an order of magnitude.
"""

import asyncio
import time
from typing import Any

import aiohttp

from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import PODS, Client, pod
from tests.virtual_time import passes


def big_pods(count: int) -> list[dict[str, Any]]:
    return [pod(f"p{i:05}", namespace="ns", annotations={"filler": "x" * 8_600}) for i in range(count)]


async def test_pages_stream_fast() -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url, read_bufsize=2**20) as session:
        server.load(big_pods(3000))
        size, path = 0, f"{PODS}?limit=500"
        started = time.process_time()
        while path:
            async with session.get(path) as response:
                data = await response.read()
            size += len(data)
            token = data[:400].partition(b'"continue":"')[2].partition(b'"')[0].decode()
            path = f"{PODS}?limit=500&continue={token}" if token else ""
        assert size > 3000 * 8_600
        assert size / (time.process_time() - started) > 20e6


async def test_writes_and_events_keep_pace(server: ApiServer, client: Client) -> None:
    await client.create(annotations={"filler": "x" * 8_600})

    async def watch() -> int:
        seen = 0
        async with client.watch(PODS) as stream:
            while seen < 301:
                await stream.line()
                seen += 1
        return seen

    watchers = [asyncio.create_task(watch()) for _ in range(4)]
    await passes(0.05)
    started = time.process_time()
    for number in range(300):
        await client.annotate("a", n=str(number))
    assert await asyncio.gather(*watchers) == [301] * 4
    assert time.process_time() - started < 5


async def test_a_quiet_watch_costs_nothing(server: ApiServer, client: Client) -> None:
    async with client.watch(PODS):
        before = time.process_time()
        await passes(60)
        assert time.process_time() - before < 0.1
