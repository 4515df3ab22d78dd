"""The client's requests and watches: deadlines, missing answers, lines of any length.

It exists because a bind must know whether a write happened. It must not know objects. Invariant: every server here is
a real one.
"""

import asyncio
import json

import pytest
from aiohttp import web

from extender.kube.client import Answer, Fenced, KubeClient, Unknown, WatchFailed
from tests.apiserver.server import ApiServer
from tests.extender.objects import pod
from tests.live.harness import eventually
from tests.live.kube_harness import PODS, client_of, scripted

WATCH = {"watch": "1"}


async def get(client: KubeClient, path: str = PODS, seconds: float = 10.0) -> Answer | Unknown:
    return await client.request("GET", path, timeout_seconds=seconds)


# -- answers and their absence --------------------------------------------------------------------------------------


async def test_an_answer_has_its_status_its_body_and_its_message() -> None:
    async with ApiServer() as api, client_of(api.url) as client:
        api.load([pod("p")])
        found = await get(client, "/api/v1/namespaces/default/pods/p")
        assert isinstance(found, Answer)
        assert (found.status, found.ok, json.loads(found.body)["metadata"]["name"]) == (200, True, "p")
        missing = await get(client, "/api/v1/namespaces/default/pods/q")
        assert (missing.status, missing.ok, missing.message) == (404, False, 'pods "q" not found')
        assert client.requests == 2


@pytest.mark.parametrize(
    "body, message",
    [(b"<h1>Bad Gateway</h1>", "<h1>Bad Gateway</h1>"), (b"", ""), (b'{"message":7}', '{"message":7}'), (b"[]", "[]")],
)
async def test_a_body_that_is_no_status_is_shown(body: bytes, message: str) -> None:
    assert Answer(502, body).message == message


async def test_a_request_that_hangs_ends_at_its_deadline_and_is_unknown() -> None:
    async with ApiServer() as api, client_of(api.url) as client:
        api.faults.add(fault="hang")
        started = asyncio.get_running_loop().time()
        answer = await get(client, seconds=0.3)
        assert isinstance(answer, Unknown)
        assert (answer.ok, answer.status, answer.sent) == (False, 0, True)
        assert asyncio.get_running_loop().time() - started >= 0.3 - 1e-6


async def test_a_connection_that_breaks_is_unknown_and_nothing_is_sent_twice() -> None:
    async with ApiServer() as api, client_of(api.url) as client:
        assert (await get(client)).ok  # the connection stays open
        api.faults.add(fault="reset", after=True, method="POST")
        body = json.dumps(pod("p")).encode()
        path = "/api/v1/namespaces/default/pods"
        answer = await client.request("POST", path, body=body, timeout_seconds=10)
        assert isinstance(answer, Unknown)
        assert answer.sent
        assert api.requests.count(method="POST") == 1
        assert (await get(client, f"{path}/p")).ok  # the write did happen


async def test_a_refused_connection_was_not_sent() -> None:
    api = ApiServer()
    await api.start()
    await api.stop()
    async with client_of(api.url) as client:
        answer = await get(client)
        assert isinstance(answer, Unknown)
        assert not answer.sent


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with scripted(handle) as url, client_of(url) as client:
        assert (await client.request("POST", "/x", body=b"{}", timeout_seconds=10)).status == 307


@pytest.mark.parametrize(
    "header, seconds",
    [("3", 3.0), ("0", 0.0), ("inf", None), ("-1", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)],
)
async def test_retry_after_in_seconds(header: str, seconds: float | None) -> None:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": header})

    async with scripted(handle) as url, client_of(url) as client:
        answer = await get(client)
        assert answer.retry_after_seconds == seconds
        with pytest.raises(WatchFailed) as failed:
            await anext(client.watch(PODS, WATCH, 10))
        assert failed.value.retry_after_seconds == seconds


async def test_requests_that_hang_do_not_keep_an_urgent_one_waiting() -> None:
    async with ApiServer() as api, client_of(api.url) as client:
        hung = api.faults.add(fault="hang", resource="pods")
        slow = [asyncio.create_task(get(client, seconds=30)) for _ in range(150)]
        await eventually(lambda: hung.hits >= 100)
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"
        assert (await client.request("GET", path, timeout_seconds=10, urgent=True)).status == 404
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


# -- watches --------------------------------------------------------------------------------------------------------


async def test_lines_of_any_length_and_cut_anywhere_come_whole() -> None:
    sent = [b"x" * length for length in (1, 70_000, 5_000_000, 2)]

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        text = b"\n".join(sent) + b"\n\n"
        for first in range(0, len(text), 99_991):
            await response.write(text[first : first + 99_991])
        return response

    async with scripted(handle) as url, client_of(url) as client:
        assert [found async for found in client.watch(PODS, WATCH, 10)] == sent


async def test_a_watch_that_ends_within_a_line_says_so() -> None:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"a":1}\n{"b":')

    async with scripted(handle) as url, client_of(url) as client:
        with pytest.raises(WatchFailed, match="cut off"):
            assert [found async for found in client.watch(PODS, WATCH, 10)] == [b'{"a":1}']


async def test_a_watch_that_is_refused_says_why() -> None:
    async with ApiServer() as api, client_of(api.url) as client:
        api.faults.add(fault="status", code=403)
        with pytest.raises(WatchFailed, match="injected") as failed:
            await anext(client.watch(PODS, WATCH, 10))
        assert failed.value.status == 403


async def test_a_write_that_its_fence_holds_back_does_not_leave() -> None:
    async with ApiServer() as api, client_of(api.url) as client:
        asked = 0

        def fence() -> bool:
            nonlocal asked
            asked += 1
            return asked > 1

        path, body = "/api/v1/namespaces/default/pods", Fenced(json.dumps(pod("p")).encode(), fence)
        held = await client.request("POST", path, body=body, timeout_seconds=10)
        assert isinstance(held, Unknown)
        assert (held.sent, api.requests.count(method="POST")) == (False, 0)
        assert (await client.request("POST", path, body=body, timeout_seconds=10)).status == 201
        assert (await get(client, f"{path}/p")).ok
        assert asked == 2
