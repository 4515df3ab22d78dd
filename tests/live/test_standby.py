"""The answers of a replica that does not lead, and of one that does not know the cluster yet.

It exists because kube-scheduler reads the body of a 200 only, and crashes on a null in the wrong place (user_reports
A64). It must not test how leaders are elected. Invariant: a standby reports that it is alive and not ready, and writes
nothing.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from extender.live.leading.lease import LeaseSettings
from extender.live.settings import LiveSettings
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json, bound, node, pod
from tests.live.harness import Extender, Kube, eventually, live_settings
from tests.live.leader_harness import write_lease

LEASE = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=0.2)
PREFIXES = ("", "/scheduler")


def electing(identity: str = "test") -> LiveSettings:
    plain = live_settings()
    return LiveSettings(lease=LEASE, bind=plain.bind, reflector=plain.reflector, identity=identity)


@asynccontextmanager
async def started(api: ApiServer, settings: LiveSettings) -> AsyncIterator[Extender]:
    extender = await Extender.boot(api.url, settings)
    try:
        yield extender
    finally:
        await extender.kill()


@asynccontextmanager
async def standby(api: ApiServer) -> AsyncIterator[Extender]:
    """Run a replica that has listed everything while another one leads."""
    write_lease(api, "another", 3600)
    async with started(api, electing()) as extender:
        await eventually(extender.live.is_synced)
        yield extender


async def post(session: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Any]:  # noqa: ANN401 - JSON
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(path, data=data) as response:
        return response.status, await response.json()


async def status(session: aiohttp.ClientSession, path: str) -> int:
    async with session.get(path) as response:
        return response.status


def filter_body() -> Json:
    return {"Pod": pod("p"), "Nodes": None, "NodeNames": ["n1"]}


def bind_body() -> Json:
    return {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1"}


def preempt_body() -> Json:
    victims = {"n1": {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 0}}
    return {"Pod": pod("p"), "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a64_every_verb_of_a_standby_has_an_answer_that_kube_scheduler_takes(prefix: str) -> None:
    async with ApiServer() as api:
        api.load([node("n1"), bound("a", "n1", "GPU-n1-0")])
        async with standby(api) as extender:
            why = "not ready: this replica does not lead"
            for verb in ("filter", "filter-dryrun"):
                code, answer = await post(extender.session, f"{prefix}/{verb}", filter_body())
                assert (code, answer.pop("Error")) == (200, why)
                assert set(answer.values()) == {None}
            assert await post(extender.session, f"{prefix}/prioritize", filter_body()) == (200, [])
            assert await post(extender.session, f"{prefix}/bind", bind_body()) == (200, {"Error": why})
            code, answer = await post(extender.session, f"{prefix}/preempt", preempt_body())
            assert (code, answer) == (200, {"NodeNameToMetaVictims": None})
            assert api.requests.count(method="POST") == 0


async def test_a_standby_keeps_no_connection_that_a_service_would_lead_elsewhere() -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        async with standby(api) as extender:
            for verb, body in (("filter", filter_body()), ("bind", bind_body()), ("preempt", preempt_body())):
                async with extender.session.post(f"/{verb}", json=body) as response:
                    assert response.headers.get("Connection") == "close"


async def test_bodies_that_are_none_get_the_same_answers() -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        async with standby(api) as extender:
            for body in (b"", b"null", b"{", b"{}"):
                assert (await post(extender.session, "/filter", body))[1]["Error"]
                assert (await post(extender.session, "/bind", body))[1]["Error"]
                assert await post(extender.session, "/prioritize", body) == (200, [])
                assert await post(extender.session, "/preempt", body) == (200, {"NodeNameToMetaVictims": None})


async def test_a64_a_standby_is_alive_and_not_ready_and_its_lists_are_up_to_date() -> None:
    async with ApiServer() as api:
        api.load([node("n1"), bound("a", "n1", "GPU-n1-0", 300)])
        async with standby(api) as extender:
            assert await status(extender.session, "/livez") == 200
            assert await status(extender.session, "/healthz") == 200
            assert await status(extender.session, "/readyz") == 503
            async with extender.session.get("/api/v1/nodes") as response:
                (entry,) = await response.json()
            assert entry["devices"][0]["requested"]["memory"] == 300


async def test_a_replica_that_has_not_listed_everything_does_not_know() -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        held = api.faults.add(fault="hang", verb="list", resource="resourcequotas")
        async with started(api, live_settings()) as extender:
            await eventually(lambda: held.hits >= 1)
            code, answer = await post(extender.session, "/filter", filter_body())
            assert (code, answer["Error"]) == (200, "not ready: the state of the cluster is not known yet")
            assert await status(extender.session, "/readyz") == 503
            assert await status(extender.session, "/livez") == 200


async def test_a_standby_that_takes_over_answers_from_lists_that_it_took_then() -> None:
    async with ApiServer() as api:
        api.load([node("n1"), bound("a", "n1", "GPU-n1-0", 900)])
        # The standby's watch misses that a pod has ended.
        api.faults.add(fault="drop", event="DELETED")
        write_lease(api, "another", 1)
        async with started(api, electing()) as extender:
            await eventually(extender.live.is_ready, seconds=20)
            code, answer = await post(extender.session, "/filter", filter_body())
            assert (code, answer["Error"], answer["NodeNames"]) == (200, "", ["n1"])
            assert await status(extender.session, "/readyz") == 200
            # A former leader does not answer the same question from memory.
            write_lease(api, "thief", 3600)
            await eventually(lambda: not extender.live.leadership.is_leader())
            assert (await post(extender.session, "/filter", filter_body()))[1]["Error"]


async def test_an_election_that_is_broken_off_leaves_a_standby_that_follows_the_cluster() -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        write_lease(api, "another", 1)
        async with started(api, electing()) as extender:
            await eventually(extender.live.is_synced)
            await eventually(lambda: extender.live.leadership.elections == 1)  # type: ignore[union-attr]
            hung = api.faults.add(fault="hang", verb="list", resource="pods")
            await eventually(lambda: hung.hits >= 1)
            write_lease(api, "thief", 3600)
            await eventually(lambda: extender.live.leadership._term is None)  # type: ignore[union-attr]
            api.faults.clear()
            Kube(api).create(node("n2"))
            await eventually(lambda: "n2" in extender.live.cluster.cache.nodes)
            assert not extender.live.is_ready()


async def test_lists_that_fail_for_long_make_a_leader_unready_that_still_answers() -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        plain = live_settings()
        reflector = replace(plain.reflector, short_watch_seconds=0.1)
        settings = replace(plain, reflector=reflector, failing_seconds=0.2)
        async with started(api, settings) as extender:
            await extender.ready()
            api.faults.add(fault="status", code=403, resource="pods", verb="watch")
            api.cut()
            await eventually(lambda: not extender.live.is_ready())
            assert await status(extender.session, "/readyz") == 503
            assert (await post(extender.session, "/filter", filter_body()))[1]["NodeNames"] == ["n1"]
            api.faults.clear()
            await extender.ready()


async def test_a64_only_the_leader_exports_usage() -> None:
    async with ApiServer() as api:
        api.load([node("n1"), bound("a", "n1", "GPU-n1-0", 300)])
        async with started(api, electing("a")) as leader:
            await eventually(leader.live.is_ready)
            async with started(api, electing("b")) as second:
                await eventually(second.live.is_synced)
                texts = []
                for one in (leader, second):
                    async with one.session.get("/metrics") as response:
                        texts.append(await response.text())
                usage = "gpu_extender_requested_memory_bytes 3.145728e+08"
                assert usage in texts[0]
                assert "gpu_extender_requested" not in texts[1]
                assert "gpu_extender_build_info" in texts[1]
