"""REQ-C8: filter, bind, admission, the options and the usage records agree on which pod is a launcher.

It exists because each of them could decide otherwise, and one that wrongly believes a pod gives devices away twice. It
must not ask the classifier: it reads each one's own answer. Invariant: for all five the same fixture, one pod of 2
units whose VM holds 2 on n1, in a world where only a launcher of that VM has a place: n1 has 2 units, and the namespace
may have 2.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

import aiohttp
import pytest

from extender.admission.service import Admission
from extender.cluster import Cluster
from extender.config import ServerSettings
from extender.server.app import make_app
from extender.server.ports import start
from tests.admission.reviews import Webhooks
from tests.extender.objects import Json
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client
from tests.extender.vmis import K, raw_node, raw_pod, vmi

T = TypeVar("T")
POD = raw_pod("l", 2)


class World(NamedTuple):
    """One cluster that all five are asked about."""

    client: Client
    webhooks: Webhooks
    machines: list[Json]

    @property
    def cluster(self) -> Cluster:
        return self.client.cluster


async def by_filter(world: World) -> bool:
    return (await world.client.filter(POD, "n1"))["NodeNames"] == ["n1"]


async def by_bind(world: World) -> bool:
    await world.client.filter(POD, "n1")
    return await world.client.bind(POD, "n1") == ""


async def by_admission(world: World) -> bool:
    asked = POD | {"spec": POD["spec"] | {"schedulerName": "gpu-scheduler"}}
    return (await world.webhooks.validate(asked, namespace="default")).allowed


async def by_options(world: World) -> bool:
    """Whether the options count the VM and its launcher as one use: what is left of a node of 4 shows it."""
    cluster = make_raw_cluster(raw_node(units=4), *world.machines, running())
    raw = (await served(cluster, lambda each: each.client.get("/api/v1/options")))["raw"]
    return bool(raw[0]["free"] == 2)


async def by_usage_records(world: World) -> bool:
    """Whether the pod has devices of its own beside its VM's."""
    cluster = make_raw_cluster(raw_node(units=4), *world.machines, running())
    now = [0]
    ledger = cluster.keep_usage((), lambda: now[0])
    now[0] = 10**9
    ledger.catch_up()
    records = await served(cluster, lambda each: each.client.get("/api/v1/usage/records"))
    return not any(each["kind"] == "pod" for each in records)


ASKERS = [by_filter, by_bind, by_admission, by_options, by_usage_records]


def running() -> Json:
    return POD | {"spec": POD["spec"] | {"nodeName": "n1"}, "status": {"phase": "Running"}}


async def served(cluster: Cluster, ask: Callable[[World], Awaitable[T]], machines: Sequence[Json] = ()) -> T:
    """What one of the five says of a cluster."""
    admission = Admission(cluster)
    runner, port = await start(make_app(cluster, ServerSettings(port=0), admission=admission), ServerSettings(port=0))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            return await ask(World(Client(session, cluster), Webhooks(session, cluster, admission), list(machines)))
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize(
    "machines, is_launcher",
    [
        pytest.param([vmi("a", ["uid-l"], units=2)], True, id="listed"),
        pytest.param([vmi("a", [], units=2)], False, id="not-listed"),
        pytest.param([vmi("a", ["uid-before"], units=2)], False, id="C-06-another-uid"),
        pytest.param(
            [vmi("a", [], units=2), vmi("b", ["uid-l"], units=2, namespace="other")], False, id="C-07-other-namespace"
        ),
        pytest.param([vmi("a", ["uid-l"], units=2), vmi("b", ["uid-l"], units=0)], False, id="listed-twice"),
    ],
)
async def test_all_say_the_same(
    asker: Callable[[World], Awaitable[bool]], machines: list[Json], is_launcher: bool
) -> None:
    cluster = make_raw_cluster(raw_node(units=2), *machines, budgets={("default", K): 2})
    assert await served(cluster, asker, machines) is is_launcher


@pytest.mark.parametrize("asker", ASKERS)
async def test_c_08_without_any_vmi_all_take_it_for_an_ordinary_pod(asker: Callable[[World], Awaitable[bool]]) -> None:
    other = raw_pod("other", 2, node="n1")
    cluster = make_raw_cluster(raw_node(units=2), other, budgets={("default", K): 2})
    assert await served(cluster, asker, [other]) is False
