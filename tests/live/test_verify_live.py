"""`verify --kubeconfig`, and what /api/v1/verify says of a live cluster.

It exists because nothing else shows a card that the extender counts wrongly (user_reports A79). It must not test
accounting, which is the same for a dump. Invariant: a difference is shown only if it stays.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender.config import HoldSource, Settings
from extender.kube.listing import ListSettings
from extender.live.app import RUNNING_PODS
from extender.live.comparing.comparing import Comparer, CompareSettings, Comparison
from extender.live.comparing.views import NodeView, PodView, QuotaView
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender.dra import claim_status, gpu, resource_claim, resource_slice, result
from tests.extender.objects import ALLOCATION, COUNT, Json, bound, listed, node, pod, quota, status_of
from tests.extender.vmis import K, raw_node, vmi
from tests.live.harness import Bench, eventually, live_settings, running
from tests.live.harness_pods import problems
from tests.live.process_harness import refusal, serving, started
from tests.live.test_hold_sets import hold

pytestmark = pytest.mark.real_time

QUICK = CompareSettings(lists=ListSettings(page_size=2), waits_seconds=(0.02, 0.05, 0.1))
REQUESTS_COUNT = f"requests.{COUNT}"


@asynccontextmanager
async def compared(*objects: Json, compare: CompareSettings = QUICK) -> AsyncIterator[Bench]:
    async with running(*objects, settings=replace(live_settings(), compare=compare)) as bench:
        yield bench


async def differences(bench: Bench) -> list[Json]:
    found = await bench.live.compare()
    assert found.why_incomplete == ""
    return list(found.as_json()["differences"])


def held(memory: int) -> Json:
    return {"GPU-n1-0": {"slots": 1, "memory": memory, "cores": 0}}


# -- comparing ------------------------------------------------------------------------------------------------------


async def test_a_cache_that_is_right_differs_in_nothing() -> None:
    objects = [node("n1"), node("n2"), bound("a", "n1", "GPU-n1-0", 300), pod("waiting"), quota({REQUESTS_COUNT: "4"})]
    objects += [pod("plain", [{"name": "c", "image": "i"}]), pod("ended", status=status_of("Succeeded"))]
    async with compared(*objects) as bench:
        found = await bench.live.compare()
        assert found.as_json() == {
            "differences": [],
            "comparison": {"objects": 2 + 3 + 1, "differing": 0, "complete": True, "why": ""},
        }


async def test_a_pod_that_is_gone_is_a_difference() -> None:
    async with compared(node("n1"), bound("a", "n1", "GPU-n1-0", 300)) as bench:
        lost = bench.api.faults.add(fault="drop", event="DELETED", resource="pods")
        uid = bench.kube.pod("a")["metadata"]["uid"]
        bench.kube.delete_pod("a")
        await eventually(lambda: lost.hits == 1)
        shown = {"uid": uid, "node": "n1", "held": held(300), "blocks": None}
        assert await differences(bench) == [{"object": "pod default/a", "cache": shown, "api": None}]


async def test_a_pod_that_was_not_seen_is_a_difference() -> None:
    async with compared(node("n1")) as bench:
        lost = bench.api.faults.add(fault="drop", resource="pods")
        made = bench.kube.create(pod("a"))
        await eventually(lambda: lost.hits == 1)
        shown = {"uid": made["metadata"]["uid"], "node": None, "held": {}, "blocks": None}
        assert await differences(bench) == [{"object": "pod default/a", "cache": None, "api": shown}]


async def test_a_pod_that_another_bound_unseen_is_a_difference() -> None:
    async with compared(node("n1")) as bench:
        made = bench.kube.create(pod("a"))
        await bench.caught_up()
        lost = bench.api.faults.add(fault="drop", resource="pods")
        bench.kube.bind("a", "n1", {"hami.io/vgpu-devices-allocated": "GPU-n1-0,NVIDIA,300,0:;"})
        await eventually(lambda: lost.hits == 1)
        (found,) = await differences(bench)
        uid = made["metadata"]["uid"]
        assert found["cache"] == {"uid": uid, "node": None, "held": {}, "blocks": None}
        assert found["api"] == {"uid": uid, "node": "n1", "held": held(300), "blocks": None}


async def test_the_same_name_with_another_uid_is_two_differences() -> None:
    async with compared(node("n1"), bound("a", "n1", "GPU-n1-0", 300)) as bench:
        bench.api.faults.add(fault="drop", resource="pods")
        bench.kube.recreate(pod("a"))
        found = await differences(bench)
        assert [each["object"] for each in found] == ["pod default/a"] * 2
        assert sorted((each["cache"] is None, each["api"] is None) for each in found) == [(False, True), (True, False)]


async def test_nodes_and_quotas_are_compared_too() -> None:
    async with compared(node("n1"), node("n2"), quota({REQUESTS_COUNT: "4"})) as bench:
        bench.api.faults.add(fault="drop")
        bench.kube.delete_node("n1")
        bench.kube.create(node("n3"))
        bench.kube.annotate_node("n2", {"hami.io/device-cordon": "GPU-n2-0"})
        bench.kube.set_quota("gpus", {REQUESTS_COUNT: "7"})
        found = {each["object"]: each for each in await differences(bench)}
        assert sorted(found) == ["node n1", "node n2", "node n3", "quotas of namespace default"]
        assert found["node n1"]["api"] is None
        assert found["node n3"]["cache"] is None
        assert (found["node n2"]["cache"]["cordoned"], found["node n2"]["api"]["cordoned"]) == ([], ["GPU-n2-0"])
        assert found["quotas of namespace default"]["cache"] == {COUNT: 4}
        assert found["quotas of namespace default"]["api"] == {COUNT: 7}


@pytest.mark.parametrize("text", ["GPU-n1-0,NVIDIA,10,0:;", "nonsense", ""], ids=["smaller", "unreadable", "gone"])
async def test_an_allocation_that_was_edited_is_a_problem_and_no_difference(text: str) -> None:
    async with compared(node("n1")) as bench:
        made = bench.kube.create(pod("p", memory=300))
        await bench.scheduler.place(made)
        await bench.caught_up()
        bench.kube.annotate_pod("p", {ALLOCATION: text})
        await bench.caught_up()
        assert await differences(bench) == []
        assert {name for name, _ in problems(bench)} == {"pod default/p"}
        # Other faults of the pod still show.
        async with bench.watch_gap():
            bench.kube.delete_pod("p")
        assert [each["object"] for each in await differences(bench)] == ["pod default/p"]


async def test_a_pod_that_was_only_asked_about_is_no_difference() -> None:
    async with compared(node("n1")) as bench:
        asked = pod("never-there", memory=300)
        asked["metadata"]["uid"] = "uid-never-there"
        assert (await bench.scheduler.filter(asked, "n1")).passed == ["n1"]
        assert bench.live.cluster.pod("uid-never-there") is not None
        assert await differences(bench) == []


async def test_an_edit_that_was_not_seen_is_a_difference() -> None:
    async with compared(node("n1")) as bench:
        await bench.scheduler.place(bench.kube.create(pod("p", memory=300)))
        await bench.caught_up()
        async with bench.watch_gap():
            bench.kube.annotate_pod("p", {ALLOCATION: "GPU-n1-0,NVIDIA,900,0:;"})
        assert [each["object"] for each in await differences(bench)] == ["pod default/p"]


async def test_a_watch_that_is_only_late_is_no_difference() -> None:
    settings = replace(QUICK, waits_seconds=(0.05, 0.5, 1.0))
    async with compared(node("n1"), bound("a", "n1", "GPU-n1-0", 300), compare=settings) as bench:
        late = bench.api.faults.add(fault="delay", seconds=0.4, resource="pods")
        bench.kube.delete_pod("a")
        await eventually(lambda: late.hits >= 1)
        assert await differences(bench) == []


async def test_a_bind_in_flight_is_no_difference() -> None:
    async with compared(node("n1")) as bench:
        made = bench.kube.create(pod("a"))
        await bench.caught_up()
        slow = bench.api.faults.add(fault="latency", seconds=1.0, resource="pods/binding")
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: slow.hits == 1)
        assert await differences(bench) == []
        await binding


async def test_comparing_changes_nothing() -> None:
    async with compared(node("n1"), bound("a", "n1", "GPU-n1-0", 300)) as bench:
        bench.api.faults.add(fault="drop", event="DELETED", resource="pods")
        bench.kube.delete_pod("a")
        version, writes = bench.live.cluster.version, bench.api.store.version
        assert len(await differences(bench)) == 1
        assert (bench.live.cluster.version, bench.api.store.version) == (version, writes)


async def test_many_differences_are_counted_and_some_are_shown() -> None:
    settings = replace(QUICK, most=3)
    async with compared(
        node("n1"), *(bound(f"p{n}", "n1", "GPU-n1-0", 10) for n in range(8)), compare=settings
    ) as bench:
        bench.api.faults.add(fault="drop", resource="pods")
        for number in range(8):
            bench.kube.delete_pod(f"p{number}")
        found = await bench.live.compare()
        assert (len(found.differences), found.differing) == (3, 8)


async def test_those_who_ask_at_the_same_time_share_one_comparison() -> None:
    async with compared(node("n1"), bound("a", "n1", "GPU-n1-0")) as bench:
        before = bench.api.requests.count(verb="list", resource="nodes")
        found = await asyncio.gather(*(bench.live.compare() for _ in range(5)))
        assert bench.api.requests.count(verb="list", resource="nodes") == before + 1
        assert all(each is found[0] for each in found)


@pytest.mark.parametrize("fault, why", [("hang", "not ended within 0.3 s"), ("status", "403")])
async def test_a_comparison_that_cannot_end_says_so(fault: str, why: str) -> None:
    async with compared(node("n1"), compare=replace(QUICK, limit_seconds=0.3)) as bench:
        bench.api.faults.add(fault=fault, code=403, verb="list")
        found = await bench.live.compare()
        assert found.why_incomplete.startswith(why)
        answer = found.as_json()
        assert (answer["differences"], answer["comparison"]["complete"]) == ([], False)


async def test_a_list_that_expires_is_said_so() -> None:
    async with compared(*(node(f"n{number}") for number in range(5))) as bench:
        bench.api.faults.add(fault="status", code=410, verb="list", resource="nodes", skip=1)
        assert (await bench.live.compare()).why_incomplete.startswith("the list expired")


def test_an_answer_is_plain_json_in_a_full_order() -> None:
    found = Comparison(differences=[{"object": "pod b/b"}, {"object": "node a"}], objects=9, differing=2)
    assert [each["object"] for each in json.loads(json.dumps(found.as_json()))["differences"]] == ["node a", "pod b/b"]


async def test_views_of_objects_that_do_not_decode() -> None:
    async with compared(node("n1")) as bench:
        cluster = bench.live.cluster
        for view in (PodView(cluster, RUNNING_PODS), NodeView(cluster), QuotaView(cluster)):
            assert view.read(b'{"metadata":7}') is None
        assert Comparer(bench.live.client, ())._running is None


# -- /api/v1/verify -------------------------------------------------------------------------------------------------


async def test_the_report_of_a_live_cluster_has_the_differences(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.load([node("n1"), bound("a", "n1", "GPU-n1-0", 300), bound("b", "n1", "GPU-gone", 10)])
        async with serving(write_kubeconfig(tmp_path / "kc", api.url), "--no-leader-elect") as extender:
            await extender.answers("/readyz", 200)
            status, text = await extender.get("/api/v1/verify")
            report = json.loads(text)
            assert status == 200
            assert report.keys() == {"devices", "problems", "differences", "comparison"}
            assert (report["differences"], report["comparison"]["complete"]) == ([], True)
            assert [each["code"] for each in report["problems"]] == ["OrphanedDevice"]
            assert await extender.stop() == 0


# -- verify --kubeconfig --------------------------------------------------------------------------------------------


async def verify(*arguments: str | Path) -> tuple[int, Any]:
    """Run the command; return its exit status and JSON."""
    async with started("extender", "verify", *arguments, "-o", "json") as process:
        out = await process.output()
        status = await process.end()
        assert process.log == ""
        return status, json.loads(out)


async def test_a_cluster_and_its_dump_get_the_same_report(tmp_path: Path) -> None:
    objects = [node("n1", 2), node("n2"), bound("a", "n1", "GPU-n1-0", 300), bound("b", "n1", "GPU-gone", 10)]
    objects += [pod("waiting"), quota({REQUESTS_COUNT: "4", "requests.nvidia.com/gpumemory": "1"})]
    objects += [bound("c", "n2", "GPU-n2-0", 9), pod("unreadable", node="n2", allocation="GPU-n2-0,NVIDIA;")]
    dump = tmp_path / "dump.json"
    dump.write_text(listed(*objects), encoding="utf-8")
    async with ApiServer() as api:
        api.load(json.loads(dump.read_text(encoding="utf-8"))["items"])
        live = await verify("--kubeconfig", write_kubeconfig(tmp_path / "kc", api.url))
        assert api.requests.count(verb="watch") == 0
    assert live == await verify("--cluster", dump)
    assert live[0] == 1
    assert {each["code"] for each in live[1]["problems"]} >= {
        "OrphanedDevice",
        "UnknownQuotaKey",
        "UndecodableAllocation",
    }


async def test_a_pod_of_a_live_cluster_is_explained_by_name(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.load([node("n1"), node("n2"), bound("holder", "n1", "GPU-n1-0", 950), pod("waiting")])
        kubeconfig = write_kubeconfig(tmp_path / "kc", api.url)
        async with started("extender", "explain", "waiting", "--kubeconfig", kubeconfig, "-o", "json") as process:
            answer = json.loads(await process.output())
            assert await process.end() == 0
        assert "default/nobody: there is no such pod" in await refusal("explain", "nobody", "--kubeconfig", kubeconfig)
    assert [(each["node"], each["fits"]) for each in answer["nodes"]] == [("n1", False), ("n2", True)]


async def test_a_cluster_in_order_ends_with_0_and_pages_do_not_show(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.load([node("n1"), *(bound(f"p{number}", "n1", "GPU-n1-0", 1) for number in range(9))])
        api.faults.add(fault="status", code=503, verb="list", resource="pods", skip=1, times=1)
        status, report = await verify("--kubeconfig", write_kubeconfig(tmp_path / "kc", api.url))
        assert (status, report["problems"]) == (0, [])
        assert report["devices"][0]["requested"]["slots"] == 9


async def test_an_api_server_that_does_not_answer_is_bad_input(tmp_path: Path) -> None:
    nobody = write_kubeconfig(tmp_path / "nobody", "http://127.0.0.1:1")
    assert f"error: --kubeconfig: {nobody}: " in await refusal("verify", "--kubeconfig", nobody)
    async with ApiServer() as api:
        api.faults.add(fault="status", code=403)
        line = await refusal("verify", "--kubeconfig", write_kubeconfig(tmp_path / "kc", api.url))
        assert "403 injected by the test" in line


async def test_a_list_that_keeps_expiring_is_bad_input(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.faults.add(fault="status", code=410, verb="list")
        assert "injected" in await refusal("verify", "--kubeconfig", write_kubeconfig(tmp_path / "kc", api.url))
        assert api.requests.count(verb="list") == 3


@pytest.mark.parametrize("arguments", [(), ("--cluster", "a", "--kubeconfig", "b"), ("--kubeconfig", "")])
async def test_one_source_is_needed(arguments: tuple[str, ...]) -> None:
    assert (await refusal("verify", *arguments)).startswith("error: arguments: ")


# -- other holders ----------------------------------------------------------------------------------------------------

DRA, KUBEVIRT, HOLDS = "resource.k8s.io/v1", "kubevirt.io/v1", "gpu-extender.io/v1alpha1"
OF_HOLDERS = {
    "resourceclaims": ("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c", "resourceclaim default/c"),
    "resourceslices": ("/apis/resource.k8s.io/v1/resourceslices/n1-gpus", "resourceslice n1-gpus"),
    "virtualmachineinstances": (
        "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a",
        "vmi default/a",
    ),
    "holds": ("/apis/gpu-extender.io/v1alpha1/namespaces/default/holds/g0", "hold default/g0"),
}


@asynccontextmanager
async def with_holders() -> AsyncIterator[Bench]:
    """One object of each kind."""
    source = HoldSource("gpu-extender.io", "v1alpha1", "holds")
    cluster = Settings(raw_keys=(K,), hold_source=source)
    told = hold("g0", node="n9", state="Bound")
    objects = (
        node("n1"), raw_node("n9"), resource_slice(gpu("gpu-0", "GPU-n1-0")), resource_claim("c", result("gpu-0")),
        vmi(), told,
    )  # fmt: skip
    settings = replace(live_settings(), compare=QUICK)
    async with running(*objects, settings=settings, cluster=cluster, served=(DRA, KUBEVIRT, HOLDS)) as bench:
        await eventually(lambda: all(optional.unseen == "" for optional in bench.live.optional))
        yield bench


async def test_other_holders_that_are_right_differ_in_nothing() -> None:
    async with with_holders() as bench:
        found = await bench.live.compare()
        assert (found.differences, found.why_incomplete, found.objects) == ([], "", 2 + 4)


@pytest.mark.parametrize("resource", OF_HOLDERS)
async def test_another_holder_whose_end_was_not_seen_is_a_difference_and_is_mended(resource: str) -> None:
    path, name = OF_HOLDERS[resource]
    async with with_holders() as bench:
        lost = bench.api.faults.add(fault="drop", event="DELETED", resource=resource)
        bench.kube.send("DELETE", path)
        await eventually(lambda: lost.hits == 1)
        (found,) = await differences(bench)
        assert (found["object"], found["api"]) == (name, None)
        assert found["cache"]
        await bench.live._compare_and_mend()
        assert await differences(bench) == []


async def test_a_claim_that_was_not_seen_is_a_difference() -> None:
    async with with_holders() as bench:
        lost = bench.api.faults.add(fault="drop", resource="resourceclaims")
        bench.kube.create(resource_claim("d"))
        status = claim_status(result("gpu-0"))
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/d/status"
        bench.kube.send("PATCH", path, {"status": status}, "application/merge-patch+json")
        await eventually(lambda: lost.hits == 2)
        (found,) = await differences(bench)
        assert (found["object"], found["cache"]) == ("resourceclaim default/d", None)
        assert found["api"]["devices"] == ["gpu.nvidia.com/n1/gpu-0"]
