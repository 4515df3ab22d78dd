"""The audit's watches: a break by the API server or the network is made up for, reported or raised, never hidden."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp.http_exceptions import LineTooLong

from tests.apiserver.beside import Beside
from tests.apiserver.server import ApiServer
from tests.e2e.audit import Audit

_SECONDS = 20.0
_PODS = "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def following(server: ApiServer, *, line_bytes: int = 2**22) -> AsyncIterator[Audit]:
    async with aiohttp.ClientSession(server.url, read_bufsize=line_bytes) as session, Beside() as beside:
        audit = Audit(session)
        beside.start(audit.follow())
        yield audit


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


async def create(server: ApiServer, name: str, size: int = 1) -> None:
    spec = {"containers": [{"name": "app", "image": "i"}]}
    body = {"metadata": {"name": name, "annotations": {"filler": "x" * size}}, "spec": spec}
    async with aiohttp.ClientSession(server.url) as session, session.post(_PODS, json=body) as response:
        assert response.status == 201, await response.text()


async def seen(audit: Audit, name: str) -> None:
    await audit.until(lambda: audit.pod(name), f"pod {name} is seen", _SECONDS)


@pytest.mark.parametrize("code", [403, 429, 500, 503])
async def test_a_watch_that_is_refused_goes_on_from_its_version(server: ApiServer, code: int) -> None:
    async with following(server) as audit:
        await create(server, "a")
        await seen(audit, "a")
        rule = server.faults.add(fault="status", code=code, verb="watch", resource="pods", times=2)
        server.cut()
        await create(server, "b")
        await seen(audit, "b")
        assert (rule.hits, audit.gaps) == (2, 0)
        assert sum("ended: ClientResponseError" in line and str(code) in line for line in audit.timeline) == 2


@pytest.mark.parametrize("fault", ["truncate", "expire"])
async def test_what_a_broken_watch_did_not_tell_is_seen_all_the_same(server: ApiServer, fault: str) -> None:
    async with following(server) as audit:
        await create(server, "a")
        await seen(audit, "a")
        server.faults.add(fault=fault, verb="watch", resource="pods", times=1)
        await create(server, "b")
        await seen(audit, "b")
        # Only a version that is too old makes a gap.
        assert audit.gaps == (fault == "expire")


async def test_a_version_that_is_gone_is_a_gap(server: ApiServer) -> None:
    async with following(server) as audit:
        await create(server, "a")
        await seen(audit, "a")
        rule = server.faults.add(fault="status", code=410, verb="watch", resource="pods", times=1)
        server.cut()
        await create(server, "b")
        await seen(audit, "b")
        assert (rule.hits, audit.gaps) == (1, 1)


async def test_what_cannot_be_read_ends_what_goes_on_beside_it(server: ApiServer) -> None:
    """An event may be longer than the longest line. The audit once waited for ever then, and reported nothing."""
    with pytest.raises(ExceptionGroup) as failure:  # noqa: PT012 - the block is broken off
        async with asyncio.timeout(_SECONDS), following(server, line_bytes=1024) as audit:
            await create(server, "a")
            await seen(audit, "a")
            await create(server, "long", size=100_000)
            await asyncio.Event().wait()
    assert failure.group_contains(LineTooLong)
