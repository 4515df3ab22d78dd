"""The reflector against everything that a watch and a list can do.

It exists because each of these has left a scheduler with pods that were gone, or without existing ones (user_reports
A.5). It must not test what objects mean. Invariant: at the end of every test the sink has what the API server has, and
the test says by which requests.
"""

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from tests.apiserver.server import ApiServer
from tests.extender.objects import pod
from tests.live.harness import Kube, eventually
from tests.live.kube_harness import (
    QUICK,
    NotingSink,
    empty_list,
    line,
    lists,
    load,
    reflecting,
    same,
    scripted,
    stored,
    watches,
)
from tests.virtual_time import passes

# -- the normal case ------------------------------------------------------------------------------------------------


async def test_a_list_in_pages_and_then_every_change_in_order() -> None:
    async with ApiServer() as api:
        load(api, 7)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink) as reflector:
            await eventually(same(api, sink))
            assert lists(api) == 3  # 7 pods, 3 to a page
            assert [change for change, _ in sink.history] == ["listed"] * 7
            await eventually(lambda: api.watches == 1)
            del sink.history[:]
            kube.create(pod("new"))
            kube.annotate_pod("new", {"a": "b"})
            kube.delete_pod("p3")
            await eventually(same(api, sink))
            # A pod that goes at once is marked first.
            assert sink.history == [("put", "new"), ("put", "new"), ("put", "p3"), ("deleted", "p3")]
            assert (reflector.state.lists, reflector.state.watches, reflector.state.failures) == (1, 1, 0)


async def test_an_empty_cluster_is_a_list_too() -> None:
    async with ApiServer() as api, reflecting(api.url, NotingSink()) as reflector:
        await eventually(lambda: reflector.state.synced)


async def test_a_field_selector_goes_with_lists_and_watches() -> None:
    async with ApiServer() as api:
        load(api, 2)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink, query={"fieldSelector": "status.phase!=Succeeded"}):
            await eventually(same(api, sink))
            await eventually(lambda: api.watches == 1)
            kube.set_status("p0", {"phase": "Succeeded"})
            # For the watch the pod is deleted.
            await eventually(lambda: sorted(sink.objects) == ["p1"])
            assert sink.history[-1] == ("deleted", "p0")


async def test_bookmarks_advance_the_version_and_nothing_else() -> None:
    async with ApiServer(bookmark_seconds=0.05) as api:
        load(api, 1)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: api.watches == 1)
            for number in range(3):
                kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}})
            await eventually(lambda: reflector._version == str(api.store.version))
            api.compact()
            api.cut()
            await eventually(lambda: watches(api) == 2 and api.watches == 1)
            kube.create(pod("late"))
            await eventually(same(api, sink))
            # Without the bookmark the second watch would have begun below the history.
            assert lists(api) == 1
            assert sink.history == [("listed", "p0"), ("put", "late")]


async def test_events_that_come_twice_change_nothing() -> None:
    async with ApiServer() as api:
        api.faults.add(fault="duplicate", resource="pods")
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink):
            await eventually(lambda: api.watches == 1)
            kube.create(pod("p"))
            kube.delete_pod("p")
            kube.create(pod("q"))
            await eventually(same(api, sink))
            assert sorted(sink.objects) == ["q"]


# -- watches that end -----------------------------------------------------------------------------------------------


async def test_a_broken_connection_resumes_where_it_was() -> None:
    async with ApiServer() as api:
        load(api, 2)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink):
            for number in range(3):
                await eventually(lambda: api.watches == 1)
                api.cut()
                kube.create(pod(f"during-{number}"))
                await eventually(same(api, sink))
            await eventually(lambda: watches(api) >= 4)
            assert lists(api) == 1


@pytest.mark.parametrize("as_event", [True, False], ids=["an ERROR event", "HTTP 410"])
async def test_a_version_that_is_too_old_means_a_new_list(as_event: bool) -> None:
    async with ApiServer(expired_start_is_event=as_event) as api:
        load(api, 4)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink):
            await eventually(lambda: api.watches == 1)
            api.faults.add(fault="status", code=503, verb="watch", times=1)
            api.cut()
            kube.delete_pod("p0")
            kube.create(pod("new"))
            api.compact()
            await eventually(same(api, sink))
            assert lists(api) == 4
            assert ("vanished", "p0") in sink.history


async def test_a_watch_that_falls_behind_the_history_lists_again() -> None:
    async with ApiServer() as api:
        load(api, 2)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink):
            await eventually(lambda: api.watches == 1)
            api.faults.add(fault="expire", resource="pods", times=1)
            kube.delete_pod("p1")
            await eventually(same(api, sink))
            assert lists(api) == 2


async def test_a70_a_deletion_that_the_watch_lost_is_found_by_the_next_list() -> None:
    async with ApiServer() as api:
        load(api, 2)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink) as reflector:
            await eventually(lambda: api.watches == 1)
            lost = api.faults.add(fault="drop", event="DELETED", object="*/p1")
            kube.delete_pod("p1")
            await eventually(lambda: lost.hits == 1)
            kube.create(pod("marker"))
            await eventually(lambda: "marker" in sink.objects)
            assert "p1" in sink.objects  # nothing has shown the deletion
            await reflector.list_again()
            assert sink.objects == stored(api)
            assert sink.history[-1] == ("vanished", "p1")


async def test_the_same_name_with_a_new_uid_is_told_by_the_watch() -> None:
    async with ApiServer() as api:
        load(api, 1)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink):
            await eventually(lambda: api.watches == 1)
            kube.recreate(pod("p0"))
            await eventually(same(api, sink))
            assert sink.history[-2:] == [("deleted", "p0"), ("put", "p0")]


@pytest.mark.parametrize("fault", ["truncate", "garbage"])
async def test_a_line_that_is_no_json_loses_nothing(fault: str) -> None:
    async with ApiServer() as api:
        load(api, 2)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink):
            await eventually(lambda: api.watches == 1)
            api.faults.add(fault=fault, resource="pods", times=1)
            kube.delete_pod("p0")
            kube.create(pod("new"))
            await eventually(same(api, sink))


async def test_a_silent_watch_counts_as_broken() -> None:
    async with ApiServer() as api:
        load(api, 1)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink, replace(QUICK, inactivity_seconds=0.4)):
            await eventually(lambda: api.watches == 1)
            # The connection stands, but nothing comes over it.
            held = api.faults.add(fault="delay", seconds=60, resource="pods", times=1)
            kube.create(pod("new"))
            await eventually(lambda: held.hits == 1)
            await eventually(same(api, sink))
            assert lists(api) == 1


async def test_a_watch_that_hangs_before_its_first_byte_counts_as_broken() -> None:
    async with ApiServer() as api:
        load(api, 1)
        hung = api.faults.add(fault="hang", verb="watch", times=2)
        sink, kube = NotingSink(), Kube(api)
        async with reflecting(api.url, sink, replace(QUICK, inactivity_seconds=0.3)):
            await eventually(lambda: hung.hits == 2)
            kube.create(pod("new"))
            await eventually(same(api, sink))


async def test_watches_that_end_at_once_are_no_hot_loop() -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return empty_list()
        asked.append(request.query["resourceVersion"])
        return web.Response(body=b"")

    async with scripted(handle) as url, reflecting(url, NotingSink(), replace(QUICK, backoff_seconds=(0.02, 0.2))):
        await passes(1.0)
    assert set(asked) == {"7"}  # resumed, not listed anew
    assert 2 <= len(asked) <= 40


async def test_a_watch_that_lived_is_followed_at_once() -> None:
    asked: list[float] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return empty_list()
        asked.append(asyncio.get_running_loop().time())
        response = web.StreamResponse()
        await response.prepare(request)
        await passes(0.1)
        return response

    settings = replace(QUICK, backoff_seconds=(30.0, 60.0), short_watch_seconds=0.05)
    async with scripted(handle) as url, reflecting(url, NotingSink(), settings):
        await eventually(lambda: len(asked) >= 4)  # or it would have waited half a minute


async def test_every_410_after_a_list_waits_longer() -> None:
    listed = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal listed
        if "watch" in request.query:
            return web.json_response({"code": 410, "message": "gone"}, status=410)
        listed += 1
        return empty_list()

    async with scripted(handle) as url, reflecting(url, NotingSink(), replace(QUICK, backoff_seconds=(0.02, 10.0))):
        await passes(1.0)
    assert 2 <= listed <= 20


@pytest.mark.parametrize(
    "status",
    [{"code": 410}, {"reason": "Expired"}, {"reason": "Gone"}, {"code": 504, "message": "Too large resource version"}],
    ids=["code", "Expired", "Gone", "a version of the future"],
)
async def test_every_form_of_a_version_that_is_of_no_use(status: dict[str, object]) -> None:
    await _list_again_after(line("ERROR", {"kind": "Status", "status": "Failure", "message": "no"} | status), 200)


@pytest.mark.parametrize("code", [400, 410, 422])
async def test_every_status_that_refuses_the_version(code: int) -> None:
    await _list_again_after(b'{"kind":"Status","message":"no"}', code)


async def _list_again_after(answer: bytes, status: int) -> None:
    listed = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal listed
        if "watch" not in request.query:
            listed += 1
            return empty_list(str(listed))
        if listed == 1:
            return web.Response(body=answer, status=status)
        await asyncio.Event().wait()
        raise AssertionError

    async with scripted(handle) as url, reflecting(url, NotingSink()) as reflector:
        await eventually(lambda: listed == 2)
        await eventually(lambda: reflector._version == "2")


@pytest.mark.parametrize("code", [0, 403, 429, 500, 503])
async def test_other_errors_resume_at_the_last_version(code: int) -> None:
    versions: list[str] = []
    seen = {"metadata": {"uid": "u", "name": "p", "resourceVersion": "9"}}

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return empty_list()
        versions.append(request.query["resourceVersion"])
        error = {"kind": "Status", "code": code, "message": "no"}
        return web.Response(body=line("ADDED", seen) + line("ERROR", error))

    async with scripted(handle) as url, reflecting(url, NotingSink()) as reflector:
        await eventually(lambda: len(versions) >= 3)
        assert versions[:3] == ["7", "9", "9"]
        assert (reflector.state.lists, reflector.state.failures >= 2) == (1, True)


async def test_an_unknown_type_of_event_is_passed_over() -> None:
    old = {"metadata": {"uid": "u", "name": "p", "resourceVersion": "8"}}
    new = {"metadata": {"uid": "v", "name": "q", "resourceVersion": "9"}}

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return empty_list()
        return web.Response(body=line("RENAMED", old) + line("ADDED", new))

    sink = NotingSink()
    async with scripted(handle) as url, reflecting(url, sink):
        await eventually(lambda: sink.objects == {"q": 9})
