"""The reflector's lists: failing pages, objects that cannot be used, lists on demand, and the event loop.

It exists because a list can take usage away, and on a big cluster can hold up the event loop. It must not test what
objects mean. Invariant: at the end of every test the sink has what the API server has.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from extender.kube.client import KubeClient
from extender.kube.listing import ListSettings
from extender.kube.reflector import Reflector
from tests.apiserver.server import ApiServer
from tests.extender.objects import pod
from tests.live.harness import Kube, eventually
from tests.live.kube_harness import (
    PODS,
    QUICK,
    NotingSink,
    client_of,
    lists,
    load,
    reflecting,
    same,
    scripted,
    stored,
)

# -- lists that fail ------------------------------------------------------------------------------------------------


async def test_a_page_that_fails_is_asked_for_again_and_the_others_are_not() -> None:
    async with ApiServer() as api:
        load(api, 12)
        api.faults.add(fault="status", code=503, verb="list", skip=1, times=1)
        api.faults.add(fault="reset", verb="list", skip=3, times=1)
        api.faults.add(fault="status", code=429, verb="list", skip=5, times=1)
        sink = NotingSink()
        async with reflecting(api.url, sink):
            await eventually(same(api, sink))
            assert lists(api) == 4 + 3
            assert len(sink.history) == 12


async def test_a_page_that_keeps_failing_ends_the_list_and_the_next_one_begins_anew() -> None:
    async with ApiServer() as api:
        load(api, 6)
        api.faults.add(fault="status", code=500, verb="list", skip=1, times=4)
        sink = NotingSink()
        async with reflecting(api.url, sink) as reflector:
            await eventually(same(api, sink))
            assert reflector.state.failures == 1
            assert lists(api) == 1 + 4 + 2


class _CompactingClient(KubeClient):
    """A client whose API server forgets its history between two pages."""

    after_page: Callable[[], None]

    async def request(self, method: str, path: str, **more: object) -> object:  # type: ignore[override]
        answer = await super().request(method, path, **more)  # type: ignore[arg-type]
        self.after_page()
        return answer


async def test_pages_that_expire_in_the_middle_start_the_list_anew() -> None:
    async with ApiServer() as api:
        load(api, 6)
        sink, kube = NotingSink(), Kube(api)
        pages = 0

        def after_page() -> None:
            nonlocal pages
            pages += 1
            if pages == 1:
                kube.delete_pod("p5")
                kube.create(pod("a-first"))
                api.compact()

        async with client_of(api.url) as plain:
            client = _CompactingClient(plain._connection)
            client.after_page = after_page
            running = asyncio.create_task(Reflector(client, PODS, sink, QUICK).run())
            await eventually(same(api, sink))
            assert "a-first" in sink.lists[0]
            assert len(sink.lists) == 1  # a list of which half was from before is no list
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_retry_after_is_kept() -> None:
    times: list[float] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        times.append(asyncio.get_running_loop().time())
        return web.json_response({"message": "slow down"}, status=429, headers={"Retry-After": "1"})

    async with scripted(handle) as url, reflecting(url, NotingSink()):
        await eventually(lambda: len(times) >= 2)
    assert times[1] - times[0] >= 1.0


async def test_a_retry_after_of_an_hour_is_not() -> None:
    async with ApiServer() as api:
        load(api, 1)
        api.faults.add(fault="status", code=429, retry_after_seconds=3600, times=1)
        sink = NotingSink()
        async with reflecting(api.url, sink, replace(QUICK, retry_after_limit_seconds=0.05)):
            await eventually(same(api, sink))


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"items":[]}', b'{"metadata":{},"items":[]}', b"[]"])
async def test_an_answer_that_is_no_list_is_a_failure(body: bytes) -> None:
    asked = 0

    async def handle(_request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(body=body)

    sink = NotingSink()
    async with scripted(handle) as url, reflecting(url, sink) as reflector:
        await eventually(lambda: asked >= 3)
        assert (reflector.state.synced, sink.lists) == (False, [])


async def test_health_shows_since_when_nothing_works() -> None:
    async with ApiServer() as api:
        load(api, 1)
        refused = api.faults.add(fault="status", code=403, resource="pods")
        sink = NotingSink()
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: refused.hits >= 3)
            since = reflector.state.failing_since
            assert since is not None
            await eventually(lambda: refused.hits >= 5)
            assert reflector.state.failing_since == since
            api.faults.clear()
            await eventually(same(api, sink))
            assert reflector.state.failing_since is None


async def test_an_api_server_that_comes_late_and_one_that_goes_and_comes_back() -> None:
    api = ApiServer()
    await api.start()
    port = int(api.url.rpartition(":")[2])
    await api.stop()
    sink = NotingSink()
    async with reflecting(api.url, sink) as reflector:
        await eventually(lambda: reflector.state.failures >= 2)
        for number in range(2):
            api = ApiServer(seed=number)
            load(api, 2 + number)
            await api.start(port=port)
            await eventually(same(api, sink))
            await api.stop()


# -- objects that cannot be taken -----------------------------------------------------------------------------------


async def test_an_object_whose_handling_has_a_bug_does_not_stop_the_others() -> None:
    async with ApiServer() as api:
        load(api, 5)
        sink, kube = NotingSink(breaks_on=frozenset({"p1", "bad"})), Kube(api)
        with capture_logs() as logs:
            async with reflecting(api.url, sink) as reflector:
                await eventually(lambda: sorted(sink.objects) == ["p0", "p2", "p3", "p4"])
                await eventually(lambda: api.watches == 1)
                kube.create(pod("bad"))
                kube.create(pod("good"))
                await eventually(lambda: "good" in sink.objects)
                assert (lists(api), reflector.state.undecodable) == (2, 2)
        assert sum("exc_info" in entry for entry in logs) == 2


async def test_a_list_with_an_illegible_object_takes_nothing_away() -> None:
    async with ApiServer() as api:
        load(api, 4)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: api.watches == 1)
            api.faults.add(fault="drop", event="DELETED")
            kube.delete_pod("p0")
            sink.illegible = frozenset({"p1"})
            await reflector.list_again()
            # p1 is still known, as it may be the illegible object.
            assert sorted(sink.objects) == ["p0", "p1", "p2", "p3"]
            sink.illegible = frozenset()
            await reflector.list_again()
            assert sorted(sink.objects) == ["p1", "p2", "p3"]


# -- lists on demand ------------------------------------------------------------------------------------------------


async def test_a_list_on_demand_begins_after_the_demand() -> None:
    async with ApiServer() as api:
        load(api, 5)
        sink, kube = NotingSink(), Kube(api)
        api.faults.add(fault="drop", resource="pods")
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: reflector.state.synced)
            for number in range(3):
                kube.create(pod(f"unseen-{number}"))
                await reflector.list_again()
                assert sink.objects == stored(api)


async def test_a_list_on_demand_does_not_count_one_that_is_under_way() -> None:
    async with ApiServer() as api:
        load(api, 6)
        slow = api.faults.add(fault="latency", seconds=0.3, verb="list", nth=1)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: slow.hits == 1)
            kube.create(pod("new"))
            await asyncio.wait_for(reflector.list_again(), 10)
            assert sink.objects == stored(api)


async def test_a_list_on_demand_waits_until_one_succeeds() -> None:
    async with ApiServer() as api:
        load(api, 3)
        sink = NotingSink()
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: reflector.state.synced)
            refused = api.faults.add(fault="status", code=500, verb="list")
            listing = asyncio.create_task(reflector.list_again())
            await eventually(lambda: refused.hits >= 3)
            assert not listing.done()
            api.faults.clear()
            await asyncio.wait_for(listing, 10)


async def test_a_demand_that_is_given_up_leaves_the_reflector_running() -> None:
    async with ApiServer() as api:
        load(api, 3)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: reflector.state.synced)
            hung = api.faults.add(fault="hang", verb="list", times=1)
            listing = asyncio.create_task(reflector.list_again())
            await eventually(lambda: hung.hits == 1)
            listing.cancel()
            kube.create(pod("new"))
            # The running list hangs until its time is over; another demand does not wait for it.
            await asyncio.wait_for(reflector.list_again(), 10)
            assert sink.objects == stored(api)
            await eventually(lambda: api.watches == 1)
            kube.delete_pod("new")
            await eventually(same(api, sink))
            assert reflector._waiting == []


async def test_demands_at_the_same_time_share_a_list() -> None:
    async with ApiServer() as api:
        load(api, 3)
        async with reflecting(api.url, NotingSink()) as reflector:
            await eventually(lambda: reflector.state.synced)
            before = lists(api)
            await asyncio.gather(*(reflector.list_again() for _ in range(20)))
            assert lists(api) == before + 1


async def test_what_was_learned_after_the_list_began_is_not_taken_away_by_it() -> None:
    async with ApiServer() as api:
        load(api, 3)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink, known=lambda: set(sink.objects)) as reflector:
            await eventually(lambda: api.watches == 1)
            # The finished answer comes late; meanwhile the extender binds a pod that is newer than the list.
            slow = api.faults.add(fault="latency", seconds=0.3, after=True, verb="list", times=1)
            api.faults.add(fault="drop", resource="pods", verb="watch")
            listing = asyncio.create_task(reflector.list_again())
            await eventually(lambda: slow.hits == 1)
            made = kube.create(pod("bound-by-us"))
            sink.objects["bound-by-us"] = int(made["metadata"]["resourceVersion"])
            await listing
            assert "bound-by-us" in sink.objects
            kube.delete_pod("bound-by-us")
            await reflector.list_again()
            assert sink.objects == stored(api)


# -- the event loop -------------------------------------------------------------------------------------------------


@pytest.mark.real_time
async def test_others_have_their_turn_in_the_middle_of_a_page_and_of_a_burst() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def be_slow(_name: str) -> None:
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass

    async with ApiServer() as api:
        load(api, 100)
        sink, kube = NotingSink(on_change=be_slow), Kube(api)
        lists_of_one_page = replace(QUICK, lists=ListSettings(page_size=500))
        counting = asyncio.create_task(count_turns())
        async with reflecting(api.url, sink, lists_of_one_page):
            await eventually(lambda: bool(sink.history))
            turns = 0
            await eventually(same(api, sink))
            assert turns >= 20  # 100 objects of 2 ms, and nobody else waits for much more than 5 ms
            await eventually(lambda: api.watches == 1)
            for number in range(100):
                kube.create(pod(f"new-{number}"))
            await eventually(lambda: len(sink.objects) > 100)
            turns = 0
            await eventually(same(api, sink))
            assert turns >= 20
        counting.cancel()
