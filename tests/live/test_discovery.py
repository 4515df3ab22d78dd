"""An optional resource that an API server has, lacks, gets later, loses, or forbids.

It exists because only some clusters have DRA and KubeVirt, which must not stop the scheduler nor make it guess. It must
not know what the objects mean. Invariant: what is reported of a resource is what the API server said last.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from structlog.testing import capture_logs

from extender.kube.discovery import OptionalReflector, OptionalResource, Presence
from tests.apiserver.resources import DEVICE_CLASSES
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json
from tests.live.harness import Kube, eventually
from tests.live.kube_harness import QUICK, NotingSink, client_of, scripted

CLASSES = OptionalResource("resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "deviceclasses")
V1, V1BETA1 = "resource.k8s.io/v1", "resource.k8s.io/v1beta1"


def device_class(name: str, version: str = V1) -> Json:
    return {"apiVersion": version, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}}


@asynccontextmanager
async def looking(url: str, sink: NotingSink) -> AsyncIterator[OptionalReflector]:
    """Run the search for an optional resource."""
    async with client_of(url) as client:
        optional = OptionalReflector(client, CLASSES, sink, QUICK, known=lambda: set(sink.objects))
        running = asyncio.create_task(optional.run())
        try:
            yield optional
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_what_is_served_is_listed_and_watched() -> None:
    async with ApiServer() as api:
        api.serve(V1)
        api.load([device_class("a")])
        sink = NotingSink()
        async with looking(api.url, sink) as optional:
            await eventually(lambda: optional.presence is Presence.SYNCED)
            assert sink.objects.keys() == {"a"}
            Kube(api).create(device_class("b"))
            await eventually(lambda: sink.objects.keys() == {"a", "b"})
            assert (optional.is_settled, optional.unseen) == (True, "")


async def test_the_preferred_version_is_read_of_those_that_are_served() -> None:
    async with ApiServer() as api:
        api.serve(V1BETA1)
        api.load([device_class("old", V1BETA1), device_class("new")])
        sink = NotingSink()
        async with looking(api.url, sink) as optional:
            await eventually(lambda: optional.presence is Presence.SYNCED)
            assert sink.objects.keys() == {"old"}
            # The API server is upgraded: it has dropped the version that was read, and has a better one.
            api.serve(V1)
            api.withdraw(V1BETA1)
            await eventually(lambda: sink.objects.keys() == {"new"})
            assert optional.unseen == ""


async def test_what_is_not_served_is_looked_for_again() -> None:
    async with ApiServer() as api:
        sink = NotingSink()
        async with looking(api.url, sink) as optional:
            await eventually(lambda: optional.presence is Presence.ABSENT)
            assert (optional.is_settled, optional.unseen) == (True, "")
            assert api.requests.count(resource="deviceclasses") == 0
            api.load([device_class("a")])
            api.serve(V1)
            await eventually(lambda: sink.objects.keys() == {"a"}, seconds=200)
            assert optional.presence is Presence.SYNCED


async def test_what_vanishes_stays_as_it_was_and_comes_back() -> None:
    async with ApiServer() as api:
        api.serve(V1)
        api.load([device_class("a")])
        sink = NotingSink()
        async with looking(api.url, sink) as optional:
            await eventually(lambda: optional.presence is Presence.SYNCED)
            with capture_logs() as logs:
                api.withdraw(V1)
                await eventually(lambda: optional.presence is Presence.ABSENT)
            assert [entry["event"] for entry in logs if entry["log_level"] == "warning"].count(
                "resource not served any more"
            ) == 1
            assert sink.objects.keys() == {"a"}
            assert optional.unseen == ("are not served any more: only what was known before counts")
            Kube(api).send("DELETE", "/apis/resource.k8s.io/v1/deviceclasses/a")
            api.serve(V1)
            await eventually(lambda: not sink.objects, seconds=200)
            assert (optional.presence, optional.unseen) == (Presence.SYNCED, "")


async def test_what_is_forbidden_stops_nothing_and_is_said_once() -> None:
    async with ApiServer() as api:
        api.serve(V1)
        api.load([device_class("a")])
        rule = api.faults.add(fault="status", code=403, resource="deviceclasses", verb="list")
        sink = NotingSink()
        async with looking(api.url, sink) as optional:
            with capture_logs() as logs:
                await eventually(lambda: rule.hits > 3, seconds=100)
            said = [entry for entry in logs if entry["event"] == "resource may not be read"]
            assert [entry["resource"] for entry in said] == ["deviceclasses.resource.k8s.io"]
            assert (optional.presence, optional.is_settled) == (Presence.FORBIDDEN, True)
            assert optional.unseen == ("may not be listed or watched: none of them counts")
            assert optional.failing_seconds() == 0.0
            api.faults.clear()
            await eventually(lambda: optional.presence is Presence.SYNCED, seconds=400)
            assert sink.objects.keys() == {"a"}


async def test_the_pauses_after_a_refusal_grow_to_minutes() -> None:
    async with ApiServer() as api:
        api.serve(V1)
        rule = api.faults.add(fault="status", code=403, resource="deviceclasses", verb="list")
        async with looking(api.url, NotingSink()):
            await eventually(lambda: rule.hits == 12, seconds=3000)
            asked_at = asyncio.get_running_loop().time()
            await eventually(lambda: rule.hits == 13, seconds=3000)
            assert asyncio.get_running_loop().time() - asked_at > 290


async def test_a_permission_that_is_taken_away_leaves_what_was_known() -> None:
    async with ApiServer() as api:
        api.serve(V1)
        api.load([device_class("a")])
        sink = NotingSink()
        async with looking(api.url, sink) as optional:
            await eventually(lambda: optional.presence is Presence.SYNCED)
            api.faults.add(fault="status", code=403, resource="deviceclasses")
            api.cut(DEVICE_CLASSES[0])
            await eventually(lambda: optional.presence is Presence.FORBIDDEN, seconds=100)
            assert sink.objects.keys() == {"a"}
            assert optional.unseen.endswith("may not be listed or watched: only what was known before counts")


async def test_an_api_server_that_does_not_say_is_asked_until_it_does() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if len(asked) <= 3:
            return web.Response(status=500)
        if len(asked) <= 6:
            return web.Response(text="[")
        return web.Response(status=404)

    async with scripted(handler) as url, looking(url, NotingSink()) as optional:
        await eventually(lambda: len(asked) == 6, seconds=100)
        assert (optional.presence, optional.is_settled) == (Presence.UNKNOWN, False)
        assert optional.unseen == "are not listed yet"
        await eventually(lambda: optional.presence is Presence.ABSENT, seconds=100)
    assert asked[:3] == [f"/apis/resource.k8s.io/{version}" for version in CLASSES.versions]


async def test_a_group_without_the_resource_does_not_have_it() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "APIResourceList", "resources": [{"name": "resourceclaims"}]})

    async with scripted(handler) as url, looking(url, NotingSink()) as optional:
        await eventually(lambda: optional.presence is Presence.ABSENT)
