"""What the extender counts on a live cluster is what the objects say, whatever the watch does.

It exists for the reports of races (A.4) and of stale usage (A.5), each by its number. It must not repeat the rules,
which have tests of their own. Invariant: after each story the state is the reference's over the API server's objects,
and a restart changes nothing.
"""

import asyncio
import json

import aiohttp
import pytest

from accounting.status import ProblemCode
from tests.apiserver.resources import PODS
from tests.extender.objects import (
    ALLOCATION,
    STEADY,
    asks,
    bound,
    card,
    container,
    node,
    phased,
    pod,
    quota,
    rows,
    sidecar,
)
from tests.live.harness import Extender, eventually, running
from tests.live.harness_pods import GPU, held, orphan, problems, stays_so, takes
from tests.live.harness_scheduler import Scheduler
from tests.virtual_time import passes

# -- A.4 by number -----------------------------------------------------------------------------------------------------


async def test_a56_of_50_filters_at_once_many_pass_and_exactly_one_bind_succeeds() -> None:
    async with running(node("n1", memory=24000)) as bench:
        pods = [bench.kube.create(pod(f"p{number:02}", memory=13000)) for number in range(50)]
        await bench.caught_up()
        filtered = await asyncio.gather(*(bench.scheduler.filter(made) for made in pods))
        assert all(each.passed == ["n1"] for each in filtered)
        answers = await asyncio.gather(*(bench.scheduler.bind(made, "n1") for made in pods))
        assert answers.count("") == 1 == len(bench.audit.bound())
        await stays_so(bench)


async def test_a58_cards_are_told_apart_by_uuid_and_a_doubled_one_is_reported() -> None:
    doubled = [card("GPU-a", 0), card("GPU-a", 1), card("GPU-b", 2)]
    async with running(node("n1", doubled)) as bench:
        assert problems(bench) == {("node n1 device GPU-a", ProblemCode.DUPLICATE_DEVICE)}
        async with bench.extender.session.get("/api/v1/verify") as response:
            (told,) = (await response.json())["problems"]
        assert (told["object"], bool(told["message"])) == ("node n1 device GPU-a", True)
        assert await bench.scheduler.place(bench.kube.create(pod("p", memory=1000))) == "n1"
        assert bench.audit.uuids("p") == ["GPU-b"]
        assert not await takes(bench, 1)
        await stays_so(bench)


async def test_a60_one_card_of_24_and_three_pods_of_12() -> None:
    async with running(node("n1", memory=24000)) as bench:
        app = container("main", asks(1, 12000, 30))
        results = await bench.scheduler.gang([bench.kube.create(pod(f"p{number}", [app])) for number in range(3)])
        assert [each.ok for each in results] == [True, True, False]
        # Memory and cores are counted once each.
        assert held(bench) == (2, 24000, 60)
        await stays_so(bench)


async def test_a61_bound_to_another_node_than_filter_would_have_chosen() -> None:
    """No node is recorded before bind: the requested node is fitted anew, and its cards are written."""
    async with running(node("n114"), node("n117")) as bench:
        made = bench.kube.create(pod("p", memory=100))
        chosen = await bench.scheduler.choose(made)
        other = {"n114": "n117", "n117": "n114"}[str(chosen)]
        assert await bench.scheduler.bind(made, other) == ""
        assert bench.audit.uuids("p") == [f"GPU-{other}-0"]
        await stays_so(bench)


async def test_a61_an_annotation_that_names_cards_of_another_node_counts_where_the_pod_is() -> None:
    foreign = bound("p", "n1", "GPU-n2-0", 300)
    async with running(node("n1"), node("n2"), foreign) as bench:
        assert problems(bench) == orphan("n1", "GPU-n2-0")
        async with bench.extender.session.get("/metrics") as response:
            assert 'gpu_extender_problems{code="OrphanedDevice"} 1.0' in await response.text()
        assert await takes(bench, 1000, "n2")
        await stays_so(bench)


async def test_a63_a_new_process_refuses_what_the_old_one_gave_away_a_moment_ago() -> None:
    async with running(node("n1", memory=24000)) as bench:
        made = bench.kube.create(pod("p1", memory=24000))
        await bench.scheduler.filter(made)
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: bench.kube.node_of("p1") == "n1")
        await bench.restart()
        await asyncio.gather(binding, return_exceptions=True)
        assert not await takes(bench, 1)
        await bench.agrees()


async def test_a63_a_process_that_has_not_listed_everything_says_not_ready() -> None:
    async with running(node("n1"), bound("a", "n1", GPU, 1000)) as bench:
        bench.api.faults.add(fault="latency", seconds=0.3, resource="pods", verb="list")
        other = await Extender.boot(bench.api.url, bench.settings)
        try:
            second = Scheduler(other.session, bench.kube)
            await passes(0.1)
            made = bench.kube.create(pod("p", memory=1))
            assert (await second.filter(made)).error.startswith("not ready")
            assert (await second.bind(made, "n1")).startswith("not ready")
            assert await second.prioritize(made, "n1") == {}
            async with other.session.get("/readyz") as ready, other.session.get("/livez") as live:
                assert (ready.status, live.status) == (503, 200)
            await other.ready()
            assert (await second.filter(made)).passed == []
        finally:
            await other.kill()


async def test_a67_bind_with_an_empty_body_and_filter_without_a_pod() -> None:
    async with running(node("n1")) as bench:
        for path, body in (("/bind", b""), ("/bind", b"{}"), ("/filter", b'{"Pod":null,"NodeNames":["n1"]}')):
            async with bench.extender.session.post(path, data=body) as response:
                assert response.status == 200
                assert json.loads(await response.read())["Error"]
        await bench.agrees()


@pytest.mark.parametrize("code", [404, 409, 403])
async def test_a68_a_failed_bind_leaves_no_reservation(code: int) -> None:
    async with running(node("n1")) as bench:
        bench.api.faults.add(fault="status", code=code, resource="pods/binding", nth=1)
        made = bench.kube.create(pod("p", memory=1000))
        await bench.scheduler.filter(made)
        assert await bench.scheduler.bind(made, "n1") != ""
        assert held(bench) == (0, 0, 0)
        assert bench.live.claims is not None
        assert len(bench.live.claims) == 0
        assert await takes(bench, 1000)
        await stays_so(bench)


@pytest.mark.parametrize("written", [True, False])
async def test_a68_a_bind_that_timed_out_is_resolved_by_reading_the_pod_back(written: bool) -> None:
    """The watch shows nothing, so the read decides."""
    async with running(node("n1"), http_timeout_seconds=0.5) as bench:
        bench.api.faults.add(fault="hang", resource="pods/binding", nth=1, after=written)
        made = bench.kube.create(pod("p", memory=1000))
        await bench.scheduler.filter(made)
        await bench.caught_up()
        silent = bench.api.faults.add(fault="drop", resource="pods", verb="watch")
        await bench.scheduler.bind(made, "n1")
        expected = (1, 1000, 0) if written else (0, 0, 0)
        await eventually(lambda: held(bench) == expected)
        assert bench.kube.node_of("p") == ("n1" if written else None)
        assert await takes(bench, 1) is not written
        bench.api.faults.remove(silent.id)
        await stays_so(bench)


# -- A.5 by number -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["kept", "compacted"])
async def test_a70_a_watch_gap_swallows_the_delete(history: str) -> None:
    """A deleted pod held eight cards; its replacement needs all of them."""
    eight = [(f"GPU-n1-{number}", 81559, 0) for number in range(8)]
    app = container("main", asks(8, 81559))
    old = pod("old", [app], node="n1", allocation=rows(eight), status={"phase": "Running"})
    async with running(node("n1", 8, memory=81559), old) as bench:
        async with bench.watch_gap():
            bench.kube.delete_pod("old")
        new = bench.kube.create(pod("new", [app]))
        assert (await bench.scheduler.filter(new)).passed == []
        if history == "compacted":
            # The watch ends and cannot be resumed: its last version is forgotten.
            bench.kube.create(node("n2", 0))
            bench.api.compact()
            bench.api.cut(PODS)
        else:
            await bench.live.reflectors[1].list_again()
        await bench.agrees()
        assert await bench.scheduler.place(new) == "n1"
        await stays_so(bench)


async def test_a71_a_delete_event_whose_last_object_lacks_the_annotation() -> None:
    async with running(node("n1"), bound("p", "n1", GPU, 1000)) as bench:
        bench.api.faults.add(fault="drop", resource="pods", verb="watch", event="MODIFIED")
        bench.kube.annotate_pod("p", {ALLOCATION: None})
        bench.kube.delete_pod("p")
        await eventually(lambda: held(bench) == (0, 0, 0))
        assert await takes(bench, 1000)
        bench.api.faults.clear()
        await stays_so(bench)


async def test_a73_a_terminating_pod_counts_until_its_object_is_gone_also_after_a_restart() -> None:
    async with running(node("n1", memory=24000), bound("p", "n1", GPU, 20000)) as bench:
        bench.kube.delete_pod("p", grace_seconds=300)
        await bench.caught_up()
        assert not await takes(bench, 10000)
        await stays_so(bench)
        assert not await takes(bench, 10000)
        bench.kube.delete_pod("p")
        await eventually(lambda: held(bench) == (0, 0, 0))
        assert await takes(bench, 10000)
        await stays_so(bench)


async def test_a75_a_deployment_is_resized_and_the_old_pods_share_is_released_with_its_uid() -> None:
    async with running(node("n1", memory=24000), bound("web-old", "n1", GPU, 20000)) as bench:
        bench.kube.delete_pod("web-old")
        new = bench.kube.create(pod("web-new", memory=24000))
        await bench.caught_up()
        assert await bench.scheduler.place(new) == "n1"
        await stays_so(bench)


async def test_a76_lists_and_metrics_forget_finished_pods_and_removed_nodes_at_once() -> None:
    async with running(node("n1"), node("n2"), bound("p", "n1", GPU, 100), bound("q", "n2", "GPU-n2-0", 50)) as bench:

        async def shown(path: str) -> str:
            async with bench.extender.session.get(path) as response:
                return (await response.read()).decode()

        memory = "gpu_extender_requested_memory_bytes"
        assert f"{memory} 1.572864e+08" in await shown("/metrics")
        bench.kube.set_status("p", {"phase": "Succeeded"})
        bench.kube.delete_pod("q")
        bench.kube.delete_node("n2")
        await bench.agrees()
        assert '"default/p"' not in await shown("/api/v1/pods")
        assert "GPU-n2-0" not in await shown("/api/v1/nodes") + await shown("/api/v1/verify")
        assert f"{memory} 0.0" in await shown("/metrics")
        assert held(bench) == (0, 0, 0)


async def test_a78_a_second_filter_of_an_already_annotated_pod_returns_nodes() -> None:
    """An earlier attempt, perhaps by another extender, has left its annotations on the pending pod."""
    texts = {ALLOCATION: rows([(GPU, 500, 0)]), "hami.io/vgpu-node": "n1", "hami.io/bind-phase": "allocating"}
    async with running(node("n1"), node("n2")) as bench:
        made = bench.kube.create(pod("p", memory=500, annotations=texts))
        for _ in range(3):
            assert sorted((await bench.scheduler.filter(made)).passed) == ["n1", "n2"]
        assert await bench.scheduler.bind(made, "n2") == ""
        assert bench.audit.uuids("p") == ["GPU-n2-0"]
        await stays_so(bench)


async def test_a79_what_was_missed_is_found_by_comparing_with_the_api_server() -> None:
    async with running(node("n1"), bound("p", "n1", GPU, 100), bound("q", "n1", GPU, 50)) as bench:
        async with bench.watch_gap():
            bench.kube.delete_pod("p")
        assert held(bench) == (2, 150, 0)
        found = await bench.live.compare()
        assert found.differing == 1
        await bench.live.reflectors[1].list_again()
        await bench.agrees()


# -- everything together -----------------------------------------------------------------------------------------------


async def test_a_day_in_a_cluster_with_a_bad_network() -> None:
    """Pods come, run, shrink and end amid lost events, broken watches and refused writes."""
    async with running(*(node(f"n{number}", 2) for number in range(4)), history_limit=300) as bench:
        faults = bench.api.faults
        faults.add(fault="truncate", resource="pods", verb="watch", probability=0.02)
        faults.add(fault="garbage", resource="pods", verb="watch", probability=0.02)
        faults.add(fault="duplicate", resource="pods", verb="watch", probability=0.1)
        faults.add(fault="expire", resource="*", verb="watch", probability=0.01)
        faults.add(fault="status", code=500, resource="pods/binding", probability=0.1, after=True)
        faults.add(fault="status", code=429, resource="pods/binding", probability=0.1)
        faults.add(fault="reset", resource="pods/binding", probability=0.05)
        inits = [sidecar("side", asks(1, 20)), container("init", asks(1, 200))]
        for number in range(60):
            made = bench.kube.create(pod(f"p{number:02}", [container("main", asks(1, 100))], inits=inits))
            node_name = await bench.scheduler.choose(made)
            if node_name is not None:
                await bench.scheduler.bind(made, node_name)
            if number % 3 == 0:
                for name in list(bench.audit.bound())[:2]:
                    bench.kube.set_status(name, STEADY)
            if number % 5 == 4:
                bench.kube.delete_pod(min(bench.audit.bound()))
        faults.clear()
        await bench.agrees()
        await stays_so(bench)
        assert len(bench.audit.bound()) > 20


async def test_the_quota_of_a_namespace_follows_its_pods() -> None:
    limits = quota({"requests.nvidia.com/gpumem": "1000"})
    async with running(node("n1", 4), limits, bound("p", "n1", GPU, 600)) as bench:
        made = bench.kube.create(pod("q", memory=500))
        assert (await bench.scheduler.filter(made)).unresolvable["n1"].startswith("QuotaExceeded")
        bench.kube.delete_pod("p")
        await eventually(lambda: held(bench) == (0, 0, 0))
        assert await bench.scheduler.place(made) == "n1"
        bench.kube.set_status("q", {"phase": "Succeeded"})
        await bench.agrees()
        assert bench.live.cluster.cache.used("default") == (0, 0, 0)


async def test_the_lists_show_what_is_held(tmp_path: object) -> None:
    async with running(node("n1"), phased(STEADY)) as bench:
        async with bench.extender.session.get("/api/v1/pods") as response:
            (entry,) = json.loads(await response.read())
        assert (entry["pod"], entry["node"], entry["state"]) == ("default/p", "n1", "steady")
        assert entry["held"] == {GPU: {"slots": 2, "memory": 12, "cores": 0}}
        with pytest.raises(aiohttp.ClientResponseError):
            async with bench.extender.session.post("/api/v1/pods", data=b"{}", raise_for_status=True):
                pass
