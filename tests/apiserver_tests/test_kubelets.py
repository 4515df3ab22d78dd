"""The kubelets run every pod through its life, whatever happens between two of their requests.

The order of events is forced: a request is held before it leaves, until the test lets it go.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.apiserver.beside import Beside
from tests.apiserver.kubelets import Kubelets
from tests.apiserver.node_actor import BIND_PHASE, NODE_LOCK, TO_ALLOCATE, NodeActor
from tests.apiserver.resources import PODS as POD_TABLE
from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import NODES, PODS, Client
from tests.virtual_time import eventually

Json = dict[str, Any]
AGENT = "kubelets"
ROW = "GPU-a,NVIDIA,1000,10:"
#: Allocate: read, rows, phase, read the node, unlock. Run: read, init starts, init ends, app starts. Finish: read, end.
REQUESTS = 11
EACH_REQUEST = range(1, REQUESTS + 1)
_SECONDS = 20


class Gate:
    """Holds the nth request of a session for such a path until it is opened."""

    def __init__(self, nth: int, path: str = "/(pods|nodes)/") -> None:
        self.reached = asyncio.Event()
        self.passed = asyncio.Event()
        self.open = asyncio.Event()
        self.trace = aiohttp.TraceConfig()
        self.trace.on_request_start.append(self._start)
        self.trace.on_request_end.append(self._end)
        self._left = nth
        self._path = path
        self._held: object = None

    async def _start(self, _session: object, context: object, request: aiohttp.TraceRequestStartParams) -> None:
        self._left -= bool(re.search(self._path, request.url.path))
        if self._left == 0 and not self.reached.is_set():
            self._held = context
            self.reached.set()
            await self.open.wait()

    async def _end(self, _session: object, context: object, _request: aiohttp.TraceRequestEndParams) -> None:
        if context is self._held:
            self.passed.set()


@asynccontextmanager
async def all_kubelets(server: ApiServer, gate: Gate | None = None) -> AsyncIterator[None]:
    traces = [] if gate is None else [gate.trace]
    headers = {"User-Agent": AGENT}
    async with (
        aiohttp.ClientSession(server.url, headers=headers, trace_configs=traces) as session,
        asyncio.timeout(_SECONDS),
        Beside() as beside,
    ):
        beside.start(Kubelets(NodeActor(session), run_seconds=0.0).follow())
        yield


async def created(client: Client, name: str) -> str:
    """Create an unbound pod; returns its UID."""
    containers = {"initContainers": [{"name": "init", "image": "i"}], "containers": [{"name": "app", "image": "i"}]}
    pod = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", **containers}}
    uid: str = (await client.ok("POST", PODS, pod))["metadata"]["uid"]
    return uid


async def bound(client: Client, name: str) -> None:
    """Give the pod its node, and the node its lock, as the extender does."""
    lock = {NODE_LOCK: f"2026-11-29T16:18:33Z,ns,{name}"}
    await client.ok("PATCH", f"{NODES}/n", {"metadata": {"annotations": lock}})
    annotations = {TO_ALLOCATE: f"{ROW};;", BIND_PHASE: "allocating"}
    assert (await client.bind(name, annotations=annotations))[0] == 201


@pytest.fixture(autouse=True)
async def node(client: Client) -> None:
    await client.ok("POST", NODES, {"metadata": {"name": "n"}})


def ended(server: ApiServer, name: str) -> bool:
    row = server.store.get(POD_TABLE, f"ns/{name}")
    return row is not None and row.decode()["status"]["phase"] == "Succeeded"


def is_locked(server: ApiServer) -> bool:
    return any(
        NODE_LOCK in (row.decode()["metadata"].get("annotations") or {})
        for table in server.store.tables.values()
        for row in table.rows
        if row.name == "n" and not row.namespace
    )


def life(server: ApiServer, uid: str) -> list[object]:
    """Return the states of a pod, write by write."""
    events = server.store.tables[POD_TABLE].history.after(server.store.tables[POD_TABLE].history.dropped)
    return [_seen(event.row.decode()) for event in events if event.row.uid == uid]


def _seen(pod: Json) -> object:
    status = pod["status"]
    containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    states = [(one["name"], next(iter(one["state"])), one["restartCount"]) for one in containers]
    annotations = pod["metadata"].get("annotations")
    return annotations, pod["spec"].get("nodeName"), status["phase"], states


async def undisturbed(server: ApiServer, client: Client) -> list[object]:
    """Return the states of a pod to which nothing happens."""
    uid = await created(client, "undisturbed")
    await bound(client, "undisturbed")
    await eventually(lambda: ended(server, "undisturbed") and not is_locked(server))
    return life(server, uid)


async def test_a_pod_gets_every_step_once_and_in_order(server: ApiServer, client: Client) -> None:
    async with all_kubelets(server):
        lived = await undisturbed(server, client)
    phases = [one[2] for one in lived]  # type: ignore[index]
    assert phases == ["Pending"] * 6 + ["Running", "Succeeded"]
    assert lived[-1] == (
        {TO_ALLOCATE: ";;;", BIND_PHASE: "success"},
        "n",
        "Succeeded",
        [("init", "terminated", 0), ("app", "terminated", 0)],
    )
    requests = [seen for seen in server.requests.recent if seen.client == AGENT and seen.path != "/api/v1/pods"]
    assert len(requests) == REQUESTS


@pytest.mark.parametrize("nth", EACH_REQUEST)
async def test_a_pod_made_again_under_the_name_has_its_own_life_only(
    server: ApiServer, client: Client, nth: int
) -> None:
    """It is a StatefulSet's pod. The first one's kubelet is held before its nth request until the second one exists."""
    gate = Gate(nth)
    async with all_kubelets(server, gate):
        await created(client, "a")
        await bound(client, "a")
        await gate.reached.wait()
        await client.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
        second = await created(client, "a")
        gate.open.set()
        # Only then is it on a node: until then it does not concern a kubelet.
        await gate.passed.wait()
        await bound(client, "a")
        await eventually(lambda: ended(server, "a"))
        assert life(server, second) == await undisturbed(server, client)
        await client.ok("DELETE", f"{PODS}/a", {})
        await eventually(lambda: server.store.get(POD_TABLE, "ns/a") is None)


@pytest.mark.parametrize("nth", EACH_REQUEST)
async def test_a_pod_that_is_deleted_between_two_requests_goes(server: ApiServer, client: Client, nth: int) -> None:
    gate = Gate(nth)
    async with all_kubelets(server, gate):
        await created(client, "a")
        await bound(client, "a")
        await gate.reached.wait()
        # With its grace period: the kubelet must end it.
        await client.ok("DELETE", f"{PODS}/a")
        await eventually(lambda: server.store.get(POD_TABLE, "ns/a") is None)
        gate.open.set()
        await undisturbed(server, client)


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "status", "code": 500},
        {"fault": "status", "code": 429},
        {"fault": "status", "code": 409},
        {"fault": "status", "code": 403},
        {"fault": "reset"},
        {"fault": "reset", "after": True},
    ],
    ids=lambda fault: "-".join(map(str, fault.values())),
)
async def test_a_request_that_fails_is_made_up_for_and_nothing_is_done_twice(
    server: ApiServer, client: Client, fault: Json
) -> None:
    """Each request of a pod's life fails in its turn. An init that ran again would bring the pod's peak back."""
    async with all_kubelets(server):
        expected = await undisturbed(server, client)
        for nth in EACH_REQUEST:
            rule = server.faults.add(**fault, client=AGENT, nth=nth)
            uid = await created(client, f"p{nth}")
            await bound(client, f"p{nth}")
            await eventually(lambda: ended(server, f"p{nth}") and not is_locked(server))  # noqa: B023 - awaited here
            assert (life(server, uid), rule.hits) == (expected, 1)
            server.faults.remove(rule.id)


@pytest.mark.parametrize("fault", ["truncate", "garbage", "expire", "duplicate"])
async def test_a_watch_that_breaks_is_made_up_for(server: ApiServer, client: Client, fault: str) -> None:
    """The watch breaks at each event of a pod's life on a node in turn, and while the pod is deleted."""
    async with all_kubelets(server):
        expected = await undisturbed(server, client)
        for nth in range(1, len(expected) + 1):
            rule = server.faults.add(fault=fault, verb="watch", client=AGENT, object=f"ns/p{nth}", nth=nth)
            uid = await created(client, f"p{nth}")
            await bound(client, f"p{nth}")
            await eventually(lambda: ended(server, f"p{nth}"))  # noqa: B023 - awaited here
            assert life(server, uid) == expected
            await client.ok("DELETE", f"{PODS}/p{nth}", {"gracePeriodSeconds": 5})
            await eventually(lambda: server.store.get(POD_TABLE, f"ns/p{nth}") is None)  # noqa: B023 - awaited here
            assert rule.hits == 1


async def test_a_status_is_written_over_the_newest_one(server: ApiServer, client: Client) -> None:
    """kube-scheduler's condition, written between the kubelet's read and its write, stays."""
    gate = Gate(1, "/status$")
    async with all_kubelets(server, gate):
        await created(client, "a")
        await bound(client, "a")
        await gate.reached.wait()
        conditions = (await client.ok("GET", f"{PODS}/a"))["status"]["conditions"]
        conditions += [{"type": "DisruptionTarget", "status": "True"}]
        await client.ok("PATCH", f"{PODS}/a/status", {"status": {"conditions": conditions}})
        gate.open.set()
        await eventually(lambda: ended(server, "a"))
        kinds = [one["type"] for one in (await client.ok("GET", f"{PODS}/a"))["status"]["conditions"]]
        assert "DisruptionTarget" in kinds


async def test_a_step_that_cannot_be_done_ends_what_goes_on_beside_it(server: ApiServer, client: Client) -> None:
    server.faults.add(fault="status", code=422, resource="pods/status", client=AGENT)
    with pytest.raises(ExceptionGroup) as failure:  # noqa: PT012 - the block is broken off
        async with all_kubelets(server):
            await created(client, "a")
            await bound(client, "a")
            await asyncio.Event().wait()
    assert failure.group_contains(aiohttp.ClientResponseError, match="422")
