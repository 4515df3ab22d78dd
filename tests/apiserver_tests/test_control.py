"""The server counts requests, checks tokens, and is controlled over HTTP."""

import asyncio

import aiohttp
import pytest

from tests.apiserver import control
from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import LEASES, NODES, PODS, Client, pod
from tests.virtual_time import passes


async def test_every_request_is_counted_by_verb_and_resource(server: ApiServer, client: Client) -> None:
    await client.create()
    await client.bind("a")
    await client.send("GET", f"{PODS}/a")
    await client.send("GET", PODS)
    async with client.watch(PODS, timeoutSeconds="0.3"):
        pass
    await client.send("PATCH", f"{PODS}/a/status", {"status": {"phase": "Running"}})
    await client.send("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {}})
    await client.send("DELETE", f"{NODES}/n")
    assert await client.ok("GET", "/_test/requests") == [
        {"method": method, "verb": verb, "resource": resource, "count": 1}
        for method, verb, resource in (
            ("DELETE", "delete", "nodes"),
            ("GET", "get", "pods"),
            ("GET", "list", "pods"),
            ("GET", "watch", "pods"),
            ("PATCH", "patch", "pods/status"),
            ("POST", "create", "pods"),
            ("POST", "create", "pods/binding"),
            ("PUT", "update", "leases"),
        )
    ]
    assert server.requests.count(resource="pods") == 4
    assert [seen.verb for seen in server.requests.recent][:3] == ["create", "create", "get"]
    await client.ok("DELETE", "/_test/requests")
    assert server.requests.count() == 0


async def test_faults_over_http(server: ApiServer, client: Client) -> None:
    [rule] = await client.ok("POST", "/_test/faults", {"fault": "status", "code": 503, "verb": "get", "times": 1})
    assert (await client.send("GET", f"{PODS}/a"))[0] == 503
    assert [one["hits"] for one in await client.ok("GET", "/_test/faults")] == [1]
    assert await client.ok("DELETE", f"/_test/faults/{rule['id']}") == []
    await client.ok("POST", "/_test/faults", [{"fault": "hang"}, {"fault": "reset"}])
    assert await client.ok("DELETE", "/_test/faults") == []
    assert (await client.send("POST", "/_test/faults", {"fault": "nothing"}))[0] == 400
    assert list(server.faults) == []


async def test_many_patches_in_one_request_are_one_event_each(server: ApiServer, client: Client) -> None:
    await client.create()
    version = server.store.version
    path = f"{PODS}/a/status"
    patches = [{"path": path, "body": {"status": {"message": f"turn {turn}"}}} for turn in range(3)]
    assert await client.ok("POST", "/_test/patch", patches) == {"patched": 3}
    assert server.store.version == version + 3
    assert (await client.ok("GET", f"{PODS}/a"))["status"]["message"] == "turn 2"
    assert (await client.send("POST", "/_test/patch", [{"path": f"{PODS}/nobody", "body": {}}]))[0] == 404


async def test_state_load_compact_and_cut_over_http(server: ApiServer, client: Client) -> None:
    item = pod("a", namespace="ns") | {"status": {"phase": "Running"}}
    assert await client.ok("POST", "/_test/load", {"items": [item]}) == {"loaded": 1}
    assert (await client.ok("GET", f"{PODS}/a"))["status"]["phase"] == "Running"
    async with client.watch(PODS) as stream:
        assert await stream.seen() == ("ADDED", "a")
        state = await client.ok("GET", "/_test/state")
        assert (state["objects"]["pods"], state["watches"]) == (1, 1)
        await client.ok("POST", "/_test/compact")
        assert await client.ok("POST", "/_test/cut?resource=nodes") == {"cut": 0}
        assert await client.ok("POST", "/_test/cut") == {"cut": 1}
    assert (await client.send("GET", "/_test/nothing"))[0] == 404
    assert (await client.send("POST", "/_test/load", {"items": [{"kind": "Thing"}]}))[0] == 400


async def test_tokens_are_required_from_the_first_on_and_expire(server: ApiServer, client: Client) -> None:
    assert (await client.send("GET", PODS))[0] == 200
    await client.ok("POST", "/_test/tokens", {"token": "short", "seconds": 0.5})
    server.tokens.allow("long")
    assert (await client.send("GET", PODS))[1]["reason"] == "Unauthorized"
    assert (await client.send("GET", PODS, Authorization="Bearer wrong"))[0] == 401
    assert (await client.send("GET", PODS, Authorization="Bearer short"))[0] == 200
    await passes(0.55)
    assert (await client.send("GET", PODS, Authorization="Bearer short"))[0] == 401
    assert (await client.send("GET", PODS, Authorization="Bearer long"))[0] == 200
    await client.ok("DELETE", "/_test/tokens?token=long")
    assert (await client.send("GET", PODS, Authorization="Bearer long"))[0] == 401
    assert (await client.send("GET", "/readyz"))[0] == 200


def test_the_control_is_documented() -> None:
    text = control.__doc__ or ""
    assert all(f"/_test/{name}" in text for name in ("faults", "compact", "cut", "load", "tokens", "requests", "state"))


async def test_the_server_stops_at_once_whatever_is_open() -> None:
    server = ApiServer()
    await server.start()
    server.faults.add(fault="hang", verb="get")
    async with aiohttp.ClientSession(server.url) as session:
        client = Client(session)
        hanging = asyncio.create_task(client.send("GET", f"{PODS}/a"))
        async with client.watch(PODS) as stream:
            await passes(0.02)
            started = asyncio.get_running_loop().time()
            await server.stop()
            assert asyncio.get_running_loop().time() - started < 3
            with pytest.raises(aiohttp.ClientError):
                await stream.line()
        with pytest.raises(aiohttp.ClientError):
            await hanging
