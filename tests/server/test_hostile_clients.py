"""Clients that stop, dribble, send too much or go away, against a process of its own.

They exist because each of these once filled the memory or the file descriptors of the process that leads and binds.
Memory is allowed to grow by the bound of the port and what the interpreter keeps, not by what was sent.
"""

import asyncio
import gzip
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.hostile import Target, closed, connections, ended, head, sent, status, target
from tests.virtual_time import until

_MIB = 2**20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Target]:
    async with target(tmp_path) as made:
        yield made


async def _lives(there: Target) -> None:
    assert (await there.process.get("/livez"))[0] == 200


async def _holds(there: Target, count: int) -> None:
    """Wait until the server has that many bytes of what was sent to the verbs' port."""

    async def arrived() -> bool:
        _, text = await there.process.get("/metrics")
        found = re.search(r'gpu_extender_bytes_in_flight\{port="verbs"\} (\S+)', text)
        return found is not None and float(found[1]) >= count

    await until(arrived)


async def _reviewed(there: Target) -> None:
    """The API server, from another address, still gets its answer."""
    stream = await there.connect(webhooks=True)
    body = b'{"apiVersion":"x"}'
    stream[1].write(head("/validate", f"Content-Length: {len(body)}", "") + body)
    assert await status(stream) == 400
    await closed(stream[1])


async def test_half_sent_reviews_stay_within_the_bound(there: Target) -> None:
    """60 reviews of 16 MB once raised RSS from 60 to 991 MiB for good."""
    before = there.resident_mib
    async with connections(there, 60, webhooks=True) as streams:
        await sent(streams, head("/validate", f"Content-Length: {8 * _MIB}", "") + b"x" * (7 * _MIB))
        await _reviewed(there)
        await _lives(there)
        assert there.resident_mib < before + 120
    assert '"why": "held too many bytes"' in there.process.log


async def test_a_length_above_the_bound_is_refused_before_anything_is_read(there: Target) -> None:
    stream = await there.connect(webhooks=True)
    stream[1].write(head("/mutate", f"Content-Length: {16 * _MIB}", ""))
    assert await status(stream) == 413
    await closed(stream[1])


async def test_compressed_bodies_are_refused_unread(there: Target) -> None:
    """100 unfinished bodies of 15 KB once brought RSS to 3.8 GiB."""
    bomb = gzip.compress(b"\0" * (16 * _MIB))[:-100]
    before, cpu = there.resident_mib, there.cpu_seconds
    async with connections(there, 100, webhooks=True) as streams:
        await sent(
            streams, head("/validate", f"Content-Length: {len(bomb) + 100}", "Content-Encoding: gzip", "") + bomb
        )
        assert [await status(stream) for stream in streams] == [415] * 100
        assert there.resident_mib < before + 80
    await _lives(there)
    # Unpacking 16 MiB takes about 50 ms each; a handshake takes 2.
    assert there.cpu_seconds - cpu < 3


async def test_aborted_bodies_are_freed_at_once_and_told_in_one_line(there: Target) -> None:
    """30 bodies of 15 MB once raised RSS from 106 to 430 MiB for good, and logged a plain traceback each."""
    before = there.resident_mib
    for _ in range(10):
        async with connections(there, 3, webhooks=False) as streams:
            await sent(streams, head("/filter", f"Content-Length: {16 * _MIB}", "") + b"x" * (15 * _MIB))
            await _holds(there, 3 * 15 * _MIB)
        await _lives(there)
    await there.process.answers("/livez", 200)
    assert there.resident_mib < before + 80
    assert await there.process.stop() == 0
    lines = [json.loads(line) for line in there.process.log.splitlines()]
    told = [line for line in lines if line.get("why") == "broken off by the client"]
    assert sum(line["count"] for line in told) == 30
    assert not [line for line in lines if "exception" in line]


async def test_out_of_descriptors_the_other_port_answers_and_nothing_spins(tmp_path: Path) -> None:
    """400 idle connections once made /livez of the other port time out, one core spin and 46 MB of log in 7 s."""
    async with target(tmp_path, descriptors=200) as there:
        async with connections(there, 400, webhooks=True):
            assert there.descriptors < 120
            cpu = there.cpu_seconds
            for _ in range(50):
                await _lives(there)
            await _reviewed(there)
            assert there.cpu_seconds - cpu < 2
        async with connections(there, 400, webhooks=False):
            await _lives(there)
            await _reviewed(there)
            assert there.descriptors < 180
        assert len(there.process.log) < 20_000


async def test_half_a_request_does_not_hold_up_the_end(there: Target) -> None:
    """Half a request was never answered, and once made the exit take 10 s."""
    async with connections(there, 1, webhooks=False) as (body,), connections(there, 1, webhooks=False) as (half,):
        await sent([body], head("/filter", "Content-Length: 100", "") + b"x")
        await sent([half], head("/filter", "Content-Length: 1"))
        async with connections(there, 1, webhooks=True) as (review,):
            await sent([review], head("/validate", "Content-Length: 100", "") + b"x")
            await _lives(there)
            there.process.send(signal.SIGTERM)
            async with asyncio.timeout(9):
                assert [await status(body), await status(review)] == [503, 503]
                await ended([half])
                assert await there.process.end() == 0


async def test_garbage_is_told_in_one_line(there: Target) -> None:
    async with connections(there, 20, webhooks=False) as streams:
        await sent(streams, b"\x16\x03\x01 no HTTP\r\n\r\n")
        await ended(streams)
    await _lives(there)
    assert await there.process.stop() == 0
    lines = [json.loads(line) for line in there.process.log.splitlines()]
    assert sum(line["count"] for line in lines if line.get("why") == "sent no HTTP") == 20
    assert len(lines) < 10
