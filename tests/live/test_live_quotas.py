"""Quotas on a live cluster: what a watch tells of them, and what it does not.

It exists because an API server writes a quota's status with every pod, and because a deletion can fall into a gap of
the watch (user_reports A43, A44). It must not repeat the rules of quotas. Invariant: what limits is what the API
server's objects say.
"""

from tests.extender.objects import MEMORY, STEADY, Json, node, phased, pod, quota
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
