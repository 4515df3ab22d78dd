"""The bounds of a port, small enough to reach each of them at once.

They exist because who pays at a bound decides whether a stranger can lock the API server out. Deadlines are short here
and are waited for by what the server does, not by a clock.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from extender.server.bodies import read_body
from extender.server.bounds import Bounds
from extender.server.connection import Doing
from extender.server.connections import ConnectionCollector
from extender.server.listener import Listener
from tests.live.harness import eventually
from tests.server.hostile import Stream, closed, ended, head, sent, status

_LARGE = 1_000_000


class Port:
    """A listener over an application with three routes."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0
        self.number = 0
        self.listener: Listener
        self._streams: list[Stream] = []

    async def connect(self, peer: str = "127.0.0.2") -> Stream:
        stream = await asyncio.open_connection("127.0.0.1", self.number, local_addr=(peer, 0))
        self._streams.append(stream)
        return stream

    async def close(self) -> None:
        await closed(*(writer for _, writer in self._streams))

    async def until(self, doing: Doing, count: int) -> None:
        """Wait until so many connections do that."""
        opened = self.listener.connections._open
        await eventually(lambda: sum(each.doing is doing for each in opened) == count)

    async def get(self, peer: str = "127.0.0.3") -> int:
        """Return the status of a request from a harmless address."""
        stream = await self.connect(peer)
        stream[1].write(head("/", "", method="GET"))
        return await status(stream)

    async def _short(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _body(self, request: web.Request) -> web.Response:
        return web.Response(text=str(len(await read_body(request, _LARGE))))

    async def _gated(self, _request: web.Request) -> web.Response:
        self.waiting += 1
        await self.gate.wait()
        return web.Response()

    async def _long(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)


@asynccontextmanager
async def port(bounds: Bounds, idle_seconds: float = 120.0) -> AsyncIterator[Port]:
    made = Port()
    app = web.Application()
    app.router.add_get("/", made._short)
    app.router.add_post("/body", made._body)
    app.router.add_get("/gated", made._gated)
    app.router.add_get("/long", made._long)
    made.listener = Listener(app, "test", bounds, idle_seconds=idle_seconds, stop_seconds=0.1)
    made.number = await made.listener.start("127.0.0.1", 0)
    try:
        yield made
    finally:
        made.gate.set()
        await made.close()
        await made.listener.cleanup()


async def test_dribbling_connections_are_dropped() -> None:
    """The server once kept all 200 for good."""
    async with port(Bounds(300, _LARGE, receive_seconds=0.2)) as there:
        heads = [await there.connect() for _ in range(100)]
        bodies = [await there.connect() for _ in range(100)]

        async def dribble(stream: Stream, start: bytes) -> None:
            await sent([stream], start)
            while not stream[1].is_closing():
                await sent([stream], b"x")
                await asyncio.sleep(0.02)

        dribbling = [asyncio.create_task(dribble(each, head("/body", "X: "))) for each in heads]
        dribbling += [asyncio.create_task(dribble(each, head("/body", "Content-Length: 9999", ""))) for each in bodies]
        await ended([*heads, *bodies])
        for task in dribbling:
            task.cancel()
        assert there.listener.connections.dropped["sent a request too slowly"] == 200
        assert (len(there.listener.connections), there.listener.connections.bytes_in_flight) == (0, 0)
        assert await there.get() == 200


async def test_at_the_bound_the_oldest_idle_connection_of_the_greediest_address_gives_way() -> None:
    async with port(Bounds(10, _LARGE)) as there:
        harmless = await there.connect("127.0.0.3")
        greedy = [await there.connect() for _ in range(30)]
        await ended(greedy[:21])
        await there.until(Doing.IDLE, 10)
        assert await there.get("127.0.0.4") == 200
        # The harmless one is the oldest of all and still there.
        harmless[1].write(head("/", "", method="GET"))
        assert await status(harmless) == 200
        assert len(there.listener.connections) == 10


async def test_what_is_being_answered_is_never_dropped() -> None:
    async with port(Bounds(3, _LARGE)) as there:
        busy = [await there.connect() for _ in range(3)]
        await sent(busy, head("/gated", "", method="GET"))
        await there.until(Doing.ANSWERING, 3)
        refused = [await there.connect("127.0.0.3") for _ in range(2)]
        await ended(refused)
        assert there.listener.connections.dropped["refused, all connections are busy"] == 2
        there.gate.set()
        assert [await status(each) for each in busy] == [200] * 3


async def test_who_holds_most_bytes_pays_for_those_of_others() -> None:
    async with port(Bounds(50, 3 * _LARGE)) as there:
        greedy = [await there.connect() for _ in range(5)]
        await sent(greedy, head("/body", f"Content-Length: {_LARGE}", "") + b"x" * (_LARGE - 1))
        harmless = await there.connect("127.0.0.3")
        await sent([harmless], head("/body", f"Content-Length: {_LARGE}", "") + b"x" * _LARGE)
        assert await status(harmless) == 200
        connections = there.listener.connections
        assert connections.bytes_in_flight <= 3 * _LARGE
        assert connections.dropped["held too many bytes"] >= 2
    assert connections.bytes_in_flight == 0


async def test_heads_are_bounded() -> None:
    """Their lines and their number are, so that no head is longer than some ten KiB."""
    async with port(Bounds(10, _LARGE)) as there:
        long, many = await there.connect(), await there.connect()
        await sent([long], head("/", "X: " + "x" * 10_000, "", method="GET"))
        await sent([many], head("/", *(f"X-{number}: x" for number in range(100)), "", method="GET"))
        assert [await status(long), await status(many)] == [400, 400]
        await ended([long, many])
        assert await there.get() == 200


async def test_a_client_that_does_not_read_is_dropped() -> None:
    async with port(Bounds(10, _LARGE, send_seconds=0.1)) as there:
        stream = await there.connect()
        stream[1].write(head("/long", "", method="GET"))
        await there.until(Doing.ANSWERING, 1)
        await eventually(lambda: there.listener.connections.dropped["did not read the answer"] == 1)
        assert len(there.listener.connections) == 0
        assert await there.get() == 200


async def test_a_second_request_before_the_first_answer_ends_the_connection() -> None:
    async with port(Bounds(10, _LARGE)) as there:
        stream = await there.connect()
        await sent([stream], head("/gated", "", method="GET"))
        await there.until(Doing.ANSWERING, 1)
        await sent([stream], head("/", "", method="GET"))
        await ended([stream])
        assert len(there.listener.connections) == 0


async def test_requests_one_after_another_share_a_connection() -> None:
    async with port(Bounds(10, 2 * _LARGE)) as there:
        stream = await there.connect()
        for size in (0, 1, 500_000, _LARGE):
            stream[1].write(head("/body", f"Content-Length: {size}", "") + b"x" * size)
            text = (await stream[0].readuntil(b"\r\n\r\n")).decode()
            assert text.startswith("HTTP/1.1 200")
            assert int(await stream[0].readexactly(len(str(size)))) == size
        assert there.listener.connections.bytes_in_flight == 0


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_above_its_bound_is_refused(*, chunked: bool) -> None:
    async with port(Bounds(10, 4 * _LARGE)) as there:
        stream = await there.connect()
        size = _LARGE + 1
        if chunked:
            await sent([stream], head("/body", "Transfer-Encoding: chunked", "") + b"%x\r\n" % size + b"x" * size)
        else:
            await sent([stream], head("/body", f"Content-Length: {size}", ""))
        assert await status(stream) == 413
        await ended([stream])
        assert there.listener.connections.bytes_in_flight == 0


async def test_an_idle_connection_ends_after_its_time() -> None:
    async with port(Bounds(10, _LARGE), idle_seconds=0.1) as there:
        await ended([await there.connect()])
        assert await there.get() == 200


async def test_the_log_says_once_what_happened_often(capsys: pytest.CaptureFixture[str]) -> None:
    async with port(Bounds(5, _LARGE)) as there:
        await ended([await there.connect() for _ in range(50)][:45])
        dropped = there.listener.connections.dropped["gave way to a new connection"]
        samples = {
            sample.name: sample.value
            for each in ConnectionCollector([there.listener.connections]).collect()
            for sample in each.samples
        }
    assert dropped >= 45
    assert samples["gpu_extender_connections"] == 5
    assert samples["gpu_extender_connections_dropped_total"] == dropped
    assert capsys.readouterr().err.count("gave way") < 10


def test_bounds_leave_descriptors_for_others() -> None:
    wanted = Bounds(512, _LARGE)
    assert wanted.within(100_000, 2).connections == 512
    few = [wanted.within(300, share).connections for share in (2, 4, 8)]
    assert sum(few) + 64 <= 300
    assert wanted.within(10, 4).connections == 1
    assert json.dumps(few) == "[118, 59, 29]"
