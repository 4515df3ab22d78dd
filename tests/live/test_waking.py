"""Refused pods are tried again once they would fit: soon, in order, and never by the thousand.

It exists because losing the wake-up is the normal case: the scheduler's filter comes before our watch shows what became
free. It must not look into the waker: a wake is a patch of the pending pod that the API server sees. Invariant: between
a release and the patch no scheduler asks.
"""

import asyncio
import json
from collections.abc import Callable

import pytest

from extender.live.leading.lease import LeaseSettings
from extender.live.settings import LiveSettings
from tests.extender.objects import (
    CORDON,
    REGISTER,
    STEADY,
    Json,
    asks,
    bound,
    card,
    container,
    node,
    phased,
    pod,
    quota,
)
from tests.live.harness import Bench, Extender, eventually, running
from tests.live.harness_scheduler import Scheduler
from tests.live.harness_waking import UNSCHEDULABLE, refuse, woken
from tests.virtual_time import passes


async def is_woken_and_placed(bench: Bench, name: str, change: Callable[[], object], node_name: str = "n1") -> None:
    """Check that a change wakes a refused pod within a second, and that the next filter passes the node."""
    change()
    await eventually(lambda: name in woken(bench), f"{name} is woken", seconds=1.0)
    assert await bench.scheduler.place(bench.kube.pod(name)) == node_name
    await bench.agrees()


# -- what wakes --------------------------------------------------------------------------------------------------------


async def test_a77_a_release_wakes() -> None:
    """Otherwise the card would be free while the pod waits five minutes."""
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000)) as bench:
        await refuse(bench, pod("p", memory=500))
        await is_woken_and_placed(bench, "p", lambda: bench.kube.delete_pod("a"))


async def test_an_end_wakes() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000)) as bench:
        await refuse(bench, pod("p", memory=500))
        await is_woken_and_placed(bench, "p", lambda: bench.kube.set_status("a", {"phase": "Succeeded"}))


async def test_a_shrink_wakes() -> None:
    async with running(node("n1", memory=25), phased()) as bench:
        await refuse(bench, pod("q", memory=10))
        await is_woken_and_placed(bench, "q", lambda: bench.kube.set_status("p", STEADY))


@pytest.mark.parametrize(
    "before, after",
    [
        ([card("GPU-a", memory=100)], [card("GPU-a", memory=1000)]),
        ([card("GPU-a", memory=100)], [card("GPU-a", memory=100), card("GPU-b", 1)]),
        ([card("GPU-a", health=False)], [card("GPU-a")]),
        ([], [card("GPU-a")]),
    ],
    ids=["a-card-grew", "a-new-card", "a-card-is-healthy", "the-first-register"],
)
async def test_a_change_of_capacity_or_health_wakes(before: list[Json], after: list[Json]) -> None:
    async with running(node("n1", before)) as bench:
        await refuse(bench, pod("p", memory=500))
        change = {REGISTER: json.dumps(after)}
        await is_woken_and_placed(bench, "p", lambda: bench.kube.annotate_node("n1", change))


async def test_an_uncordon_wakes() -> None:
    async with running(node("n1", annotations={CORDON: "GPU-n1-0"})) as bench:
        await refuse(bench, pod("p", memory=500))
        await is_woken_and_placed(bench, "p", lambda: bench.kube.annotate_node("n1", {CORDON: None}))


async def test_a_new_node_wakes() -> None:
    async with running(node("n1", memory=10)) as bench:
        await refuse(bench, pod("p", memory=500))
        await is_woken_and_placed(bench, "p", lambda: bench.kube.create(node("n2")), "n2")


async def test_a_plugin_that_is_back_wakes() -> None:
    async with running(node("n1", allocatable="0")) as bench:
        await refuse(bench, pod("p", memory=500))
        status = {"status": {"allocatable": {"nvidia.com/gpu": "10"}}}
        patch = "/api/v1/nodes/n1/status", status, "application/merge-patch+json"
        await is_woken_and_placed(bench, "p", lambda: bench.kube.send("PATCH", *patch))


async def test_a_quota_that_grows_wakes() -> None:
    async with running(node("n1"), quota({"requests.nvidia.com/gpumem": "100"})) as bench:
        made = bench.kube.create(pod("p", memory=500))
        assert (await bench.scheduler.filter(made)).unresolvable.keys() == {"n1"}
        await bench.caught_up()
        await is_woken_and_placed(
            bench, "p", lambda: bench.kube.set_quota("gpus", {"requests.nvidia.com/gpumem": "600"})
        )


async def test_a_release_wakes_a_pod_that_the_quota_had_refused_for_any_node() -> None:
    """The pod that ends is on a node to which the refused one may not go."""
    use_b = {"nvidia.com/use-gpuuuid": "GPU-b"}
    nodes = node("n1", [card("GPU-a")]), node("n2", [card("GPU-b")])
    held = bound("a", "n1", "GPU-a", 500)
    async with running(*nodes, held, quota({"requests.nvidia.com/gpumem": "600"})) as bench:
        await refuse(bench, pod("p", memory=500, annotations=use_b))
        await is_woken_and_placed(bench, "p", lambda: bench.kube.delete_pod("a"), "n2")


async def test_a_release_wakes_a_percentage_that_the_quota_had_refused_on_other_nodes() -> None:
    """Which nodes a quota refuses to a percentage depends on their cards, so a lower charge may open any of them."""
    half = [container("main", asks(1, percentage=50))]
    use_b = {"nvidia.com/use-gpuuuid": "GPU-b"}
    nodes = node("n1", [card("GPU-a")]), node("n2", [card("GPU-b")])
    held = bound("a", "n1", "GPU-a", 600)
    async with running(*nodes, held, quota({"requests.nvidia.com/gpumem": "1000"})) as bench:
        await refuse(bench, pod("p", half, annotations=use_b))
        await is_woken_and_placed(bench, "p", lambda: bench.kube.delete_pod("a"), "n2")


async def test_a_bind_that_failed_for_good_wakes() -> None:
    async with running(node("n1"), http_timeout_seconds=0.3) as bench:
        bench.api.faults.add(fault="reset", resource="pods/binding", nth=1)
        bench.api.faults.add(fault="status", code=500, resource="pods", verb="get", times=3)
        first = bench.kube.create(pod("a", memory=600))
        await bench.caught_up()
        binding = asyncio.create_task(bench.scheduler.bind(first, "n1"))
        await eventually(lambda: bench.live.cluster.cache.state(first["metadata"]["uid"]) is not None)
        await refuse(bench, pod("p", memory=500))
        await binding
        await eventually(lambda: "p" in woken(bench), seconds=2.0)


async def test_a_release_that_only_a_read_told_of_wakes() -> None:
    async with running(node("n1")) as bench:
        async with bench.watch_gap():
            await bench.scheduler.place(bench.kube.create(pod("a", memory=600)))
            bench.kube.delete_pod("a")
        await refuse(bench, pod("p", memory=500))
        # The list does not name the pod, so it is read, and found to be gone.
        await is_woken_and_placed(bench, "p", lambda: bench.live.reflectors[1].sink.replaced(_listed(bench)))


async def test_a_pod_that_only_filter_told_of_is_not_forgotten_by_a_list() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000)) as bench:
        async with bench.watch_gap():
            made = bench.kube.create(pod("p", memory=500))
            assert (await bench.scheduler.filter(made)).passed == []
            # The list was begun before the pod was created.
            bench.live.reflectors[1].sink.replaced(_listed(bench) - {made["metadata"]["uid"]})
        await is_woken_and_placed(bench, "p", lambda: bench.kube.delete_pod("a"))


def _listed(bench: Bench) -> set[str]:
    return {each["metadata"]["uid"] for each in bench.kube.pods()}


# -- what does not -----------------------------------------------------------------------------------------------------


async def test_pods_that_still_do_not_fit_are_left_alone() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 100), bound("b", "n1", "GPU-n1-0", 900)) as bench:
        await refuse(bench, pod("large", memory=500), pod("small", memory=100))
        bench.kube.delete_pod("a")
        await eventually(lambda: woken(bench) == ["small"], seconds=1.0)
        await passes(0.2)
        assert woken(bench) == ["small"]


async def test_pods_that_are_invalid_passed_or_gone_are_left_alone() -> None:
    async with running(node("n1"), node("n2", memory=50), bound("a", "n1", "GPU-n1-0", 1000)) as bench:
        invalid = bench.kube.create(pod("invalid", [container("c", asks(1, 500, percentage="101"))]))
        assert (await bench.scheduler.filter(invalid)).passed == []
        passed = bench.kube.create(pod("passed", memory=50))
        assert (await bench.scheduler.filter(passed)).passed == ["n2"]
        await refuse(bench, pod("gone", memory=500), pod("elsewhere", memory=500))
        bench.kube.delete_pod("gone")
        bench.kube.bind("elsewhere", "n9")
        await bench.caught_up()
        bench.kube.delete_pod("a")
        await passes(0.3)
        assert woken(bench) == []


async def test_a_change_that_frees_nothing_wakes_nobody() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000)) as bench:
        await refuse(bench, pod("p", memory=500))
        before = bench.requests
        for number in range(10):
            bench.kube.annotate_pod("a", {"test/number": str(number)})
            bench.kube.annotate_node("n1", {"test/number": str(number)})
        await bench.caught_up()
        await passes(0.1)
        assert woken(bench) == []
        assert bench.requests == before


async def test_a_standby_wakes_nobody() -> None:
    lease = LeaseSettings(duration_seconds=60, retry_seconds=0.1)
    standby = LiveSettings(lease=lease, identity="standby")
    held = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": lease.name, "namespace": lease.namespace},
        "spec": {"holderIdentity": "leader", "leaseDurationSeconds": 3600, "renewTime": "2026-11-29T10:00:00.000000Z"},
    }
    objects = held, node("n1"), bound("a", "n1", "GPU-n1-0", 1000)
    async with running(*objects) as bench:
        other = await Extender.boot(bench.api.url, standby)
        try:
            await eventually(other.live.is_synced)
            assert not other.live.is_ready()
            (made,) = await refuse(bench, pod("p", memory=500))
            bench.kube.set_status("p", {"conditions": [UNSCHEDULABLE]})
            refused = await Scheduler(other.session, bench.kube).filter(made)
            assert refused.error.startswith("not ready")
            uid = made["metadata"]["uid"]
            await eventually(lambda: any(facts.unschedulable for _, facts in other.live.cluster.registry.unbound()))
            known = other.live.cluster.pod(uid)
            assert known is not None
            # This holds even for a pod that it refused before it stopped leading.
            other.live.waker.refused(known)
            bench.kube.delete_pod("a")
            await eventually(lambda: woken(bench) == ["p"], seconds=1.0)
            await passes(0.2)
            assert (bench.live.waker.woken, other.live.waker.woken) == (1, 0)
        finally:
            await other.kill()


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError"])
async def test_who_begins_to_lead_takes_up_the_pods_that_were_tried_in_vain(reason: str) -> None:
    """While the extender was away, kube-scheduler got an error: 1.34 tries such a pod again after five minutes."""
    waiting = pod("p", memory=500)
    waiting["status"] = {"phase": "Pending", "conditions": [{**UNSCHEDULABLE, "reason": reason}]}
    async with running(node("n1"), waiting, pod("new", memory=500)) as bench:
        await eventually(lambda: bench.live.waker.woken == 1, seconds=60)
        assert "p" in woken(bench)
        await passes(1.0)
        assert bench.live.waker.woken == 1
