"""Leases and clocks: how long a lease counts, and whose time is trusted.

It exists because a process that was stopped believes that no time has passed, and because clocks of machines differ.
It must not bind anything. Invariant: no test depends on a candidate being quick.
"""

import pytest
from aiohttp import web

from tests.apiserver.server import ApiServer
from tests.live.harness import Kube, eventually
from tests.live.kube_harness import scripted
from tests.live.leader_harness import (
    LEASE_PATH,
    LONG,
    candidate,
    leads,
    wait_rounds,
    write_lease,
)
from tests.virtual_time import passes


async def test_a_process_that_was_stopped_sees_it_at_its_next_instruction() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        assert first.holder.may_write(1)
        first.clock.ahead = LONG.duration_seconds
        # No task has run since: the question itself reads the clock.
        assert (first.leads, first.holder.may_write(0)) == (False, False)


async def test_a_write_must_fit_into_what_is_left_of_the_lease() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        await first.stop()
        left = first.holder._until - first.clock()
        assert first.holder.may_write(left - 1)
        assert not first.holder.may_write(left)
        first.clock.ahead = left - 5
        assert (first.holder.may_write(4), first.holder.may_write(5), first.leads) == (True, False, True)


async def test_a_renewal_whose_answer_was_read_after_a_long_stop_is_counted_from_its_beginning() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        slow = api.faults.add(fault="latency", seconds=0.3, method="PUT", times=1)
        await eventually(lambda: slow.hits == 1)
        first.clock.ahead += 2 * LONG.duration_seconds  # stopped, with the request under way
        api.faults.add(fault="hang", resource="leases")
        await passes(0.5)
        assert not first.leads


@pytest.mark.parametrize("year", [1970, 2099])
async def test_the_times_in_a_lease_are_nobodys_business(year: int) -> None:
    async with ApiServer() as api:
        write_lease(
            api, "other", 1, renewTime=f"{year}-01-01T00:00:00.000000Z", acquireTime=f"{year}-01-01T00:00:00.000000Z"
        )
        async with candidate(api, "a") as first:
            for _ in range(6):
                await passes(0.25)
                write_lease(api, "other", 1, renewTime=f"{year}-01-01T00:00:00.{api.store.version:06}Z")
                assert first.elected == []  # as long as it changes, it holds
            await leads(first)


async def test_a_lease_that_changes_but_shows_the_same_time_holds() -> None:
    async with ApiServer() as api:
        write_lease(api, "other", 1, renewTime="2026-01-01T00:00:00.000000Z")
        async with candidate(api, "a") as first:
            for number in range(6):
                await passes(0.25)
                meta = {"metadata": {"annotations": {"beat": str(number)}}}
                Kube(api).send("PATCH", LEASE_PATH, meta, "application/merge-patch+json")
                assert first.elected == []


async def test_a_lease_without_a_duration_holds_for_the_own_one() -> None:
    async with ApiServer() as api:
        write_lease(api, "other", None)
        async with candidate(api, "a", LONG) as first:
            await wait_rounds(api, 10)
            assert first.elected == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"metadata":{}}', b'{"metadata":{"uid":7},"spec":7}'])
async def test_an_answer_that_is_no_lease_teaches_nothing(body: bytes) -> None:
    asked = 0

    async def handle(_request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(body=body)

    async with ApiServer() as api, scripted(handle) as url:
        api.url, real = url, api.url
        async with candidate(api, "a", LONG) as first:
            await eventually(lambda: asked >= 3)
            assert not first.leads
            assert first.running is not None
            assert not first.running.done()
        api.url = real
