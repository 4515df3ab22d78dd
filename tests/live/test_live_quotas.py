"""Quotas on a live cluster: what a watch shows of them, and what it misses.

It exists because an API server writes a quota's status with every pod, and because a deletion can fall into a gap of
the watch (user_reports A43, A44). It must not repeat the rules of quotas. Invariant: the limits are those of the API
server's objects.
"""

import asyncio

from tests.extender.objects import MEMORY, STEADY, Json, asks, container, node, phased, pod, quota
from tests.live.harness import eventually, running

LIMIT = f"requests.{MEMORY}"
QUOTA_PATH = "/api/v1/namespaces/default/resourcequotas/gpus"
MERGE = "application/merge-patch+json"


async def test_a43_a_status_changes_nothing() -> None:
    async with running(node("n1"), quota({LIMIT: "100"})) as bench:
        await bench.caught_up()
        cluster = bench.live.cluster
        _, before = cluster.version
        for used in range(5):
            status = {"status": {"hard": {LIMIT: "100"}, "used": {LIMIT: str(used)}}}
            bench.kube.send("PATCH", f"{QUOTA_PATH}/status", status, MERGE)
        bench.kube.create(quota({LIMIT: "7"}, name="marker"))
        await eventually(lambda: cluster.quotas.limits("default") == {MEMORY: 7})
        assert cluster.version[1] == before + 1


async def test_a43_nothing_slips_through_while_a_quota_is_edited() -> None:
    async with running(node("n1"), quota({LIMIT: "100"})) as bench:
        made = bench.kube.create(pod("p", memory=500))
        for number in range(50):
            bench.kube.set_quota("gpus", {LIMIT: str(100 + number)})
            assert (await bench.scheduler.filter(made)).unresolvable["n1"].startswith("QuotaExceeded")
        await bench.caught_up()
        assert bench.live.cluster.quotas.limits("default") == {MEMORY: 149}


async def test_a44_a_quota_that_is_deleted_in_a_gap_of_the_watch_limits_nothing() -> None:
    async with running(node("n1"), quota({LIMIT: "100"})) as bench:
        made = bench.kube.create(pod("p", memory=500))
        assert (await bench.scheduler.filter(made)).unresolvable.keys() == {"n1"}
        bench.api.faults.add(fault="expire", resource="resourcequotas", times=1)
        bench.kube.send("DELETE", QUOTA_PATH)
        await eventually(lambda: not bench.live.cluster.quotas.namespaces())
        assert await bench.scheduler.place(made) == "n1"


async def test_scopes_are_read_from_quotas_and_pods() -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}
    async with running(node("n1"), quota({LIMIT: "100"}, scopeSelector={"matchExpressions": [expression]})) as bench:

        def made(name: str, priority_class: str) -> Json:
            manifest = pod(name, memory=500)
            manifest["spec"]["priorityClassName"] = priority_class
            return bench.kube.create(manifest)

        assert (await bench.scheduler.filter(made("p", "low"))).unresolvable.keys() == {"n1"}
        assert await bench.scheduler.place(made("q", "high")) == "n1"
        await bench.agrees()


async def test_a_peak_that_comes_back_over_the_limit_shows_until_it_is_gone() -> None:
    async with running(node("n1"), quota({LIMIT: "20"}), phased(STEADY)) as bench:
        cluster = bench.live.cluster
        assert cluster.problems() == []
        bench.kube.set_status("p", phased()["status"] | {"initContainerStatuses": []})
        await eventually(lambda: cluster.cache.used("default").memory == 22)
        assert [problem.object for problem in cluster.problems()] == ["resourcequota default/gpus"]
        bench.kube.set_status("p", STEADY)
        await eventually(lambda: cluster.problems() == [])


async def test_a46_a_refused_binding_and_a_deleted_pod_give_the_charge_back_once() -> None:
    async with running(node("n1", memory=8000), quota({LIMIT: "8000"})) as bench:
        used = bench.live.cluster.cache.used
        first, second, third = (bench.kube.create(pod(name, memory=8000)) for name in ("a", "b", "c"))
        assert (await bench.scheduler.filter(first)).passed == ["n1"]
        bench.api.faults.add(fault="status", code=422, resource="pods/binding", times=1)
        assert (await bench.scheduler.bind(first, "n1")).startswith("Refused")
        assert used("default") == (0, 0, 0)
        assert (await bench.scheduler.filter(second)).passed == ["n1"]
        bench.kube.delete_pod("b")
        assert (await bench.scheduler.bind(second, "n1")) != ""
        assert used("default") == (0, 0, 0)
        assert await bench.scheduler.place(third) == "n1"
        assert used("default") == (1, 8000, 0)
        await bench.agrees()


async def test_two_binds_at_once_cannot_both_take_what_a_quota_has_left_for_percentages() -> None:
    half = [container("main", asks(1, percentage=50))]
    async with running(node("n1"), node("n2"), quota({LIMIT: "500"})) as bench:
        pods = [bench.kube.create(pod(name, half)) for name in ("a", "b")]
        for each in pods:
            assert (await bench.scheduler.filter(each)).passed == ["n1", "n2"]
        answers = await asyncio.gather(bench.scheduler.bind(pods[0], "n1"), bench.scheduler.bind(pods[1], "n2"))
        assert sorted(answer.partition(":")[0] for answer in answers) == ["", "QuotaExceeded"]
        assert bench.live.cluster.cache.used("default").memory == 500
        await bench.agrees()
