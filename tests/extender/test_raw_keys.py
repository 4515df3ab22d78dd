"""The verbs on whole devices under raw keys, over HTTP: cases C-01 to C-18, P-01, P-02, B-01, B-03, F-01.

They exist because the ledger alone refuses no pod. They must not look into the ledger. Invariant: every pod here claims
to be a launcher of VMI a, and is one only if a VMI lists it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from accounting.answers.filter import filter_nodes
from accounting.holders import Budgets
from accounting.status import Code
from extender.cluster.cluster import Cluster
from extender.cluster.loading import collect
from extender.config import Settings
from extender.convert.manifests import parse_manifests
from extender.verbs.texts import wire_text
from tests.extender.objects import Json, asks, container, listed, node, pod, rows, sidecar
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client, serving
from tests.extender.vmis import K, raw_node, raw_pod, units_of, vmi

FULL, NO_DEVICES = wire_text(Code.INSUFFICIENT_NODE_COUNT), wire_text(Code.NO_DEVICES)
OVER = wire_text(Code.QUOTA_EXCEEDED)


@asynccontextmanager
async def raw(*objects: Json, budgets: Budgets | None = None) -> AsyncIterator[Client]:
    async with serving(cluster=make_raw_cluster(*objects, budgets=budgets)) as client:
        yield client


async def passing(client: Client, asking: Json, *names: str) -> list[str]:
    return list((await client.filter(asking, *names))["NodeNames"])


async def largest(client: Client, name: str = "n1") -> int:
    """Return the most units with which another pod passes on a node."""
    for units in range(16, 0, -1):
        if await passing(client, raw_pod(f"of-{units}", units), name):
            return units
    return 0


@pytest.mark.parametrize(
    "objects, free",
    [
        pytest.param([vmi(listed=["uid-l"], units=2), raw_pod("l", 2, node="n1")], 6, id="C-01"),
        pytest.param([vmi(units=2), raw_pod("l", 2, node="n1")], 4, id="C-02"),
        pytest.param(
            [vmi(listed=["uid-l"], units=2), raw_pod("l", 2, node="n1"), raw_pod("s", 6, node="n1")], 0, id="C-03"
        ),
        pytest.param([vmi(listed=["uid-l"], units=2), raw_pod("l", 3, node="n1")], 5, id="C-04"),
        pytest.param(
            [vmi(listed=["uid-l", "uid-m"], units=2), raw_pod("l", 2, node="n1"), raw_pod("m", 2, node="n1")],
            4,
            id="C-05",
        ),
        pytest.param([vmi(listed=["uid-old"], units=2), raw_pod("l", 2, uid="uid-new", node="n1")], 4, id="C-06"),
        pytest.param([vmi(listed=["uid-l"], units=2, namespace="other"), raw_pod("l", 2, node="n1")], 4, id="C-07"),
        pytest.param([raw_pod("l", 2, node="n1")], 6, id="C-08"),
        pytest.param(
            [
                vmi(listed=["uid-l", "uid-m"], units=2),
                raw_pod("l", 2, node="n1", status={"phase": "Succeeded"}),
                raw_pod("m", 2, node="n1"),
            ],
            6,
            id="C-09",
        ),
        pytest.param([vmi(listed=["uid-l"], units=1, claims=1), raw_pod("l", 1, node="n1")], 7, id="C-16"),
        pytest.param([vmi(units=2, phase="Failed")], 8, id="a-vm-that-is-over-holds-nothing"),
    ],
)
async def test_what_is_left_for_others(objects: list[Json], free: int) -> None:
    async with raw(raw_node(), *objects) as client:
        assert await largest(client) == free
        refused = await client.filter(raw_pod("more", free + 1), "n1")
        assert refused["NodeNames"] == []
        if free + 1 <= 8:
            assert refused["FailedNodes"] == {"n1": FULL}
        else:
            assert refused["FailedAndUnresolvableNodes"] == {"n1": FULL}


def full_and_nearly_full() -> tuple[Json, ...]:
    return raw_node("n1"), raw_node("n2"), raw_pod("o", 7, node="n1"), raw_pod("q", 7, node="n2")


async def test_c_10_a_launcher_goes_where_its_vm_holds() -> None:
    async with raw(*full_and_nearly_full(), vmi(listed=["uid-l"])) as client:
        assert await passing(client, raw_pod("l"), "n1", "n2") == ["n1", "n2"]
        scores = {each["Host"]: each["Score"] for each in await client.prioritize(raw_pod("l"), "n1", "n2")}
        assert scores == {"n1": 10, "n2": 9}
        assert await client.bind(raw_pod("l"), "n1") == ""


async def test_c_11_before_it_is_listed_a_launcher_waits_and_may_go_elsewhere() -> None:
    async with raw(*full_and_nearly_full(), vmi()) as client:
        said = await client.filter(raw_pod("l"), "n1", "n2")
        assert (said["NodeNames"], said["FailedNodes"]) == (["n2"], {"n1": FULL})
        assert said["FailedAndUnresolvableNodes"] == {}
        client.cluster.put_vmi(next(iter(make_raw_cluster(vmi(listed=["uid-l"])).raw.vmis())))
        assert await passing(client, raw_pod("l"), "n1", "n2") == ["n1", "n2"]


MIGRATES = {"sourcePod": "s", "targetPod": "t"}


@pytest.mark.parametrize(
    "objects, charged",
    [
        pytest.param(
            [
                vmi(listed=["uid-s", "uid-t"], migration=MIGRATES),
                raw_pod("s", node="n1"),
                raw_pod("t", node="n2"),
            ],
            1,
            id="C-12",
        ),
        pytest.param(
            [
                vmi(listed=["uid-s", "uid-t"], migration=MIGRATES | {"completed": True}),
                raw_pod("s", node="n1"),
                raw_pod("t", node="n2"),
            ],
            2,
            id="C-13-completed",
        ),
        pytest.param(
            [
                vmi(listed=["uid-s", "uid-t"], node="n2", migration=MIGRATES | {"completed": True}),
                raw_pod("s", node="n1", status={"phase": "Succeeded"}),
                raw_pod("t", node="n2"),
            ],
            1,
            id="C-13-source-over",
        ),
        pytest.param([vmi(units=2, node=None, phase="Pending")], 2, id="a-vm-that-waits-is-charged"),
        pytest.param([vmi(units=3), raw_pod("p", node="n1")], 4, id="C-15"),
    ],
)
async def test_a_budget_charges_each_device_once(objects: list[Json], charged: int) -> None:
    hard = 4
    async with raw(raw_node("n1"), raw_node("n2"), *objects, budgets={("default", K): hard}) as client:
        fits, over = hard - charged, hard - charged + 1
        assert fits == 0 or await passing(client, raw_pod("fits", fits), "n2") == ["n2"]
        said = await client.filter(raw_pod("over", over), "n2")
        assert said["FailedAndUnresolvableNodes"] == {"n2": OVER}
        assert await client.bind(raw_pod("over", over), "n2") == OVER
        why = await client.get("/api/v1/pods/default/over/why")
        numbers = f"hard {hard}, used {charged}, the pod adds {over}"
        assert why["text"] == f"exceeded budget default: {K}: {numbers}"


async def test_a_budget_for_every_namespace_leaves_those_with_their_own() -> None:
    async with raw(raw_node(), budgets={("*", K): 1, ("rich", K): 3}) as client:
        assert await passing(client, raw_pod("p", 3, namespace="rich"), "n1")
        assert not await passing(client, raw_pod("q", 2), "n1")


async def test_c_17_inits_are_counted_in_their_order_and_for_life() -> None:
    inits = [sidecar("side", units_of(1)), container("init", units_of(4))]
    done = {"phase": "Running", "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}]}
    asking = pod("p", [container("app", units_of(1))], inits=inits, node="n1", status=done)
    async with raw(raw_node(), asking) as client:
        assert await largest(client) == 3


@pytest.mark.parametrize("units, best", [(1, "n1"), (2, "n2"), (3, "n2"), (4, "n3"), (7, None)])
async def test_p_01_the_fullest_node_with_room_goes_first(units: int, best: str | None) -> None:
    nodes = ["n1", "n2", "n3"]
    others = [raw_pod(f"o{n}", 8 - free, node=n) for n, free in zip(nodes, (1, 3, 6), strict=True)]
    async with raw(*map(raw_node, nodes), *others) as client:
        fitting = await passing(client, raw_pod("p", units), *nodes)
        scores = await client.prioritize(raw_pod("p", units), *fitting) if fitting else []
        top = [each["Host"] for each in scores if each["Score"] == 10]
        assert top == ([] if best is None else [best])


async def test_p_02_equal_nodes_go_by_name_with_scores_that_differ() -> None:
    others = [raw_pod(f"o{n}", 6, node=n) for n in ("n1", "n2")]
    async with raw(raw_node("n2"), raw_node("n1"), *others) as client:
        scores = await client.prioritize(raw_pod("p", 2), "n2", "n1")
        assert [(each["Host"], each["Score"]) for each in scores] == [("n1", 10), ("n2", 9)]


async def test_b_01_one_of_many_binds_at_once_gets_the_last_device() -> None:
    pods = [raw_pod(f"p{number}") for number in range(20)]
    async with raw(raw_node(units=1)) as client:
        await asyncio.gather(*(client.filter(each, "n1") for each in pods))
        errors = await asyncio.gather(*(client.bind(each, "n1") for each in pods))
        assert sorted(errors) == ["", *[FULL] * 19]
        assert await largest(client) == 0


async def test_b_03_the_same_bind_again_counts_once() -> None:
    async with raw(raw_node("n1"), raw_node("n2")) as client:
        await client.place(raw_pod("p", 3), "n1")
        assert await client.bind(raw_pod("p", 3), "n1") == ""
        assert "n1" in await client.bind(raw_pod("p", 3), "n2")
        assert (await largest(client, "n1"), await largest(client, "n2")) == (5, 8)
        await client.delete("p")
        assert await largest(client) == 8


async def test_f_01_an_allocation_that_a_pod_brings_along_counts_nothing() -> None:
    forged = raw_pod("p", allocation=rows([("GPU-g1-0", 400, 0)]))
    forged["metadata"]["annotations"]["kubevirt.io/domain"] = "a"
    async with raw(raw_node(), node("g1")) as client:
        assert await passing(client, forged, "n1")
        assert await client.requested() == {}


async def test_a_pod_may_want_whole_devices_and_a_share_of_a_card() -> None:
    both = {"limits": asks(1, 400)["limits"] | {K: "2"}}
    mixed = node("n1")
    mixed["status"] = {"allocatable": {K: "2"}}
    asking = pod("p", [container("main", both)])
    async with raw(mixed, node("n2"), raw_node("n3")) as client:
        said = await client.filter(asking, "n1", "n2", "n3")
        assert said["NodeNames"] == ["n1"]
        assert said["FailedAndUnresolvableNodes"] == {"n2": NO_DEVICES, "n3": NO_DEVICES}
        await client.place(asking, "n1")
        assert (await client.filter(raw_pod("q"), "n1"))["FailedNodes"] == {"n1": FULL}
        assert (await client.requested())["GPU-n1-0"]["memory"] == 400


async def test_a_node_that_is_not_known_or_has_none_is_refused_for_good() -> None:
    async with raw(raw_node("n1"), node("n2")) as client:
        said = await client.filter(raw_pod("p"), "n2", "elsewhere")
        unknown = wire_text(Code.NODE_UNKNOWN)
        assert said["FailedAndUnresolvableNodes"] == {"n2": NO_DEVICES, "elsewhere": unknown}
        assert await client.bind(raw_pod("p"), "n2") == NO_DEVICES


@pytest.mark.parametrize("value", ["-1", "1500m", "many", 1.5])
async def test_a_request_that_is_no_number_of_devices_fits_nowhere(value: object) -> None:
    asking = pod("p", [container("main", {"limits": {K: value}})])
    async with raw(raw_node()) as client:
        assert (await client.filter(asking, "n1"))["FailedAndUnresolvableNodes"] == {
            "n1": wire_text(Code.INVALID_REQUEST)
        }
        why = await client.get("/api/v1/pods/default/p/why")
        assert why["text"] == f"spec.containers[main].resources.limits[{K}]: {value}: must be a whole number of devices"


async def test_zero_devices_are_none() -> None:
    async with raw(raw_node(units=0), node("n2")) as client:
        assert await passing(client, pod("p", [container("main", {"limits": {K: "0"}})]), "n1", "n2") == ["n1", "n2"]


async def test_why_says_what_the_nearest_node_lacks() -> None:
    objects = (raw_node("n1", 4), raw_node("n2", 8), raw_pod("o", 7, node="n2"))
    async with raw(*objects) as client:
        await client.filter(raw_pod("p", 5), "n1", "n2")
        why = await client.get("/api/v1/pods/default/p/why")
        assert why["text"] == f"n1 lacks devices: {K}: the pod adds 5; the node has 4, 0 are used"
        assert {each["code"]: each["count"] for each in why["refused"]} == {"InsufficientNodeCount": 2}


async def test_a_dry_run_with_other_nodes_counts_what_is_used() -> None:
    async with raw(raw_node(), raw_pod("o", 7, node="n1")) as client:
        for units, fits in ((1, ["n1"]), (2, [])):
            body = {"Pod": raw_pod("p", units), "NodeNames": ["n1"]}
            assert (await client.post("/filter-dryrun", body)).json()["NodeNames"] == fits


def test_without_raw_keys_nothing_changes() -> None:
    settings = Settings()
    cluster = Cluster(settings)
    cluster.load(collect(parse_manifests(listed(raw_node(), raw_pod("l", 2)).encode(), "--cluster", "t"), settings))
    (kept,) = cluster.pods_as_kept()
    assert (kept.raw, kept.concerned, list(cluster.raw.pods())) == ((), False, [])


def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return how often cards were judged so far."""
    seen = []

    def judged(*args: object, **more: object) -> object:
        seen.append(1)
        return filter_nodes(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("extender.cluster.cluster.filter_nodes", judged)
    while True:
        yield len(seen)


async def test_what_is_remembered_of_a_question_ends_with_a_vmi_that_concerns_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = calls(monkeypatch)
    next(count)
    async with raw(*full_and_nearly_full(), vmi()) as client:
        await client.filter(raw_pod("l"), "n1", "n2")
        before = next(count)
        await client.filter(raw_pod("l"), "n1", "n2")
        assert next(count) == before
        other = make_raw_cluster(vmi("b", ["uid-of-another-pod"], units=0)).raw.vmis()
        client.cluster.put_vmi(next(iter(other)))
        await client.filter(raw_pod("l"), "n1", "n2")
        assert next(count) == before
        client.cluster.put_vmi(next(iter(make_raw_cluster(vmi(listed=["uid-l"])).raw.vmis())))
        await client.filter(raw_pod("l"), "n1", "n2")
        assert next(count) == before + 1


async def test_preemption_keeps_the_nodes_where_devices_come_free_and_not_those_where_a_vm_holds_them() -> None:
    objects = (
        raw_node("n1", 2),
        raw_node("n2", 2),
        raw_pod("low", 2, node="n1"),
        vmi("a", ["uid-l"], units=2, node="n2"),
    )
    async with raw(*objects, raw_pod("l", 2, node="n2"), budgets={("poor", K): 0}) as client:
        offered = {
            name: {"Pods": [{"UID": uid}], "NumPDBViolations": 0} for name, uid in (("n1", "uid-low"), ("n2", "uid-l"))
        }
        for namespace, kept in (("default", ["n1"]), ("poor", [])):
            body = {"Pod": raw_pod("p", 2, namespace=namespace), "NodeNameToMetaVictims": offered}
            found = (await client.post("/preempt", body)).json()["NodeNameToMetaVictims"]
            assert list(found) == kept
