"""VMIs on a live cluster: which lists which pod, what comes late, and what is not visible.

They exist because every object here comes by a watch that may be late, broken or forbidden. They must read the ledger
only for what it counts. Invariant: a pod that no VMI lists counts by itself, whatever it claims.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from accounting.holders import RawDevices, RawRequest, VmiKey
from accounting.status import Code
from extender.config import Settings
from extender.kube.client import KubeClient
from extender.kube.discovery import Presence
from extender.kube.events import EventRecorder
from extender.live.watching import RawOvercommitReporter
from extender.verbs.texts import wire_text
from tests.apiserver.resources import EVENTS
from tests.extender.objects import ALLOCATION, Json, node, rows
from tests.extender.vmis import K, raw_node, raw_pod, vmi
from tests.live.harness import Bench, eventually, running
from tests.live.harness_waking import refuse, woken

KUBEVIRT = "kubevirt.io/v1"
FULL = wire_text(Code.INSUFFICIENT_NODE_COUNT)
VMIS_PATH = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
MERGE = "application/merge-patch+json"


@asynccontextmanager
async def raw_running(*objects: Json, **how: Any) -> AsyncIterator[Bench]:  # noqa: ANN401 - any argument of `running`
    how = {"served": (KUBEVIRT,)} | how
    async with running(*objects, cluster=Settings(raw_keys=(K,)), **how) as bench:
        yield bench


def used(bench: Bench, name: str = "n1") -> int:
    return bench.live.cluster.raw.units.used_on(name, K)


def listing(bench: Bench, *uids: str, name: str = "a", **status: object) -> None:
    """Let a VMI list these pods, as virt-controller does after it has made them."""
    now = dict.fromkeys(bench.kube.send("GET", f"{VMIS_PATH}/{name}")["status"].get("activePods") or {})
    active = now | dict.fromkeys(uids, "n1")
    bench.kube.send("PATCH", f"{VMIS_PATH}/{name}/status", {"status": {"activePods": active} | status}, MERGE)


async def knows(bench: Bench, uid: str, name: str = "a") -> None:
    await eventually(lambda: bench.live.cluster.raw.launcher_of("default", uid) == VmiKey("default", name))


async def test_c_02_and_c_03_a_pod_that_names_a_vmi_hides_nothing() -> None:
    objects = (raw_node(), vmi(listed=["uid-l"], units=2), raw_pod("l", 2, node="n1"), raw_pod("s", 6, node="n1"))
    async with raw_running(*objects) as bench:
        assert used(bench) == 8
        assert (await bench.scheduler.filter(bench.kube.create(raw_pod("next")))).failed == {"n1": FULL}
        bench.kube.delete_pod("s")
        await eventually(lambda: used(bench) == 2)


async def test_c_11_a_launcher_that_is_listed_late_is_woken_and_bound_where_its_vm_is() -> None:
    async with raw_running(raw_node(), vmi(units=1), raw_pod("o", 7, node="n1")) as bench:
        (launcher,) = await refuse(bench, raw_pod("l"))
        listing(bench, launcher["metadata"]["uid"])
        await eventually(lambda: woken(bench) == ["l"], "the launcher is woken")
        assert await bench.scheduler.place(bench.kube.pod("l")) == "n1"
        await eventually(lambda: used(bench) == 8)
        assert bench.kube.node_of("l") == "n1"


async def test_a_pod_that_waits_for_a_budget_is_woken_when_a_pod_of_its_namespace_ends() -> None:
    async with raw_running(raw_node("n1"), raw_node("n2"), raw_pod("o", 4, node="n2")) as bench:
        bench.live.cluster.set_raw_budgets({("default", K): 4})
        await refuse(bench, raw_pod("p", 1))
        bench.kube.delete_pod("o")
        await eventually(lambda: woken(bench) == ["p"], "the pod is woken")


async def test_what_a_vm_takes_between_filter_and_bind_is_refused_and_not_written() -> None:
    async with raw_running(raw_node(units=1)) as bench:
        asking = bench.kube.create(raw_pod("p"))
        assert (await bench.scheduler.filter(asking)).passed == ["n1"]
        bench.kube.create(vmi("other"))
        await eventually(lambda: used(bench) == 1)
        assert await bench.scheduler.bind(asking, "n1") == FULL
        assert bench.kube.node_of("p") is None


async def test_b_01_one_of_two_binds_gets_the_last_device() -> None:
    async with raw_running(raw_node(units=1)) as bench:
        bound = await bench.scheduler.gang([bench.kube.create(raw_pod(name)) for name in ("p", "q")])
        assert sorted(each.error for each in bound) == ["", FULL]
        await eventually(lambda: used(bench) == 1)


async def test_b_04_what_the_api_server_refuses_to_bind_takes_nothing() -> None:
    async with raw_running(raw_node()) as bench:
        asking = bench.kube.create(raw_pod("p", 3))
        bench.api.faults.add(fault="status", code=403, resource="pods/binding", method="POST", times=1)
        assert (await bench.scheduler.bind(asking, "n1")).startswith("Refused: 403")
        assert used(bench) == 0
        assert await bench.scheduler.bind(asking, "n1") == ""
        await eventually(lambda: used(bench) == 3)


async def test_f_01_what_a_launcher_brings_along_is_cleared_by_its_binding() -> None:
    forged = raw_pod("l", allocation=rows([("GPU-g1-0", 400, 0)]))
    async with raw_running(raw_node(), node("g1")) as bench:
        await bench.scheduler.place(bench.kube.create(forged), "n1")
        await eventually(lambda: used(bench) == 1)
        assert not bench.kube.pod("l")["metadata"]["annotations"][ALLOCATION]
        assert [record.held for record in bench.live.cluster.cache.pods.values()] == [()]


async def test_a_restart_counts_the_same() -> None:
    objects = (raw_node(), vmi(listed=["uid-l"], units=2), raw_pod("l", 3, node="n1"), raw_pod("s", 1, node="n1"))
    async with raw_running(*objects) as bench:
        before = dict(bench.live.cluster.raw.units.on_nodes())
        assert before == {("n1", K): 4}
        await bench.restart()
        assert dict(bench.live.cluster.raw.units.on_nodes()) == before


async def test_a_vmi_that_goes_while_nobody_watches_holds_nothing_after_the_next_list() -> None:
    async with raw_running(raw_node(), vmi("a", units=2), vmi("b", units=1)) as bench:
        assert used(bench) == 3
        async with bench.watch_gap("virtualmachineinstances"):
            bench.kube.send("DELETE", f"{VMIS_PATH}/a")
        assert used(bench) == 3
        (reflector,) = [each.reflector for each in bench.live.optional if each.wanted.group == "kubevirt.io"]
        assert reflector is not None
        await reflector.list_again()
        assert used(bench) == 1


async def test_c_08_a_crd_that_comes_later_makes_launchers_then() -> None:
    async with raw_running(raw_node(), raw_pod("l", 2, node="n1"), served=()) as bench:
        assert used(bench) == 2
        bench.kube.create(vmi(listed=["uid-l"], units=2))
        bench.api.serve(KUBEVIRT)
        await knows(bench, "uid-l")
        assert used(bench) == 2


async def test_c_08_without_the_permission_every_pod_counts_by_itself_and_that_is_said() -> None:
    forbidden = {"fault": "status", "code": 403, "resource": "virtualmachineinstances"}
    objects = (raw_node(), vmi(listed=["uid-l"], units=2), raw_pod("l", 2, node="n1"))
    async with raw_running(*objects, faults=[forbidden]) as bench:
        (kubevirt,) = [each for each in bench.live.optional if each.wanted.group == "kubevirt.io"]
        assert kubevirt.presence is Presence.FORBIDDEN
        assert bench.live.cluster.raw.launcher_of("default", "uid-l") is None
        assert used(bench) == 2
        said = "resource virtualmachineinstances.kubevirt.io", "may not be listed or watched: none of them counts"
        assert said in [(each.object, each.message) for each in bench.live.unseen()]
        async with bench.extender.session.get("/readyz?verbose") as answer:
            assert (answer.status, " ".join(said) in await answer.text()) == (200, True)
        async with bench.extender.session.get("/api/v1/verify") as answer:
            assert said in [(each["object"], each["message"]) for each in (await answer.json())["problems"]]


async def test_a_vmi_that_does_not_decode_leaves_the_others_and_what_is_known_of_it() -> None:
    async with raw_running(raw_node(), vmi("a", units=2), vmi("b", units=1)) as bench:
        bench.kube.send("PATCH", f"{VMIS_PATH}/a/status", {"status": {"activePods": "nobody"}}, MERGE)
        listing(bench, "uid-x", name="b")
        await knows(bench, "uid-x", "b")
        assert used(bench) == 3


async def test_both_sides_of_an_over_committed_node_are_told_everywhere() -> None:
    """A VM that starts on a node asks nobody, and its launcher is one with it."""
    async with raw_running(raw_node(units=2), raw_pod("s", 1, node="n1"), raw_pod("l", 2, node="n1")) as bench:
        users = "pod default/l 2, pod default/s 1"
        await eventually(lambda: notes(bench) == dict.fromkeys("ls", f"{OVER}3 are used of 2: {users}"))
        bench.kube.create(vmi(listed=["uid-l"], units=2))
        users = "pod default/s 1, vmi default/a 2"
        await eventually(lambda: notes(bench) == dict.fromkeys("ls", f"{OVER}3 are used of 2: {users}"))
        session = bench.extender.session
        async with session.get("/api/v1/nodes/n1") as answer:
            (use,) = (await answer.json())["raw"]
        async with session.get("/api/v1/verify") as answer:
            (problem,) = (await answer.json())["problems"]
        async with session.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        assert (use["overcommitted"], [(each["kind"], each["name"]) for each in use["holders"]]) == (
            True,
            [("pod", "default/s"), ("vmi", "default/a")],
        )
        assert problem == {
            "code": "RawOvercommitted",
            "object": f"node n1 key {K}",
            "message": f"3 are used of 2: {users}",
        }
        assert 'gpu_extender_problems{code="RawOvercommitted"} 1.0' in lines
        bench.kube.delete_pod("s")
        await eventually(lambda: not bench.live.cluster.problems())
        reports = bench.live.raw_overcommit.reports
        bench.kube.create(raw_pod("s", 1, node="n1"))
        await eventually(lambda: bench.live.raw_overcommit.reports > reports)


def test_of_many_over_committed_nodes_some_are_told_at_a_time_and_each_once() -> None:
    devices = RawDevices()
    for number in range(250):
        devices.put_pod(RawRequest(f"u{number}", "x", f"p{number}", ((K, 1),), f"n{number:03}"))
    duty = [False]
    reporter = RawOvercommitReporter(devices, EventRecorder(cast("KubeClient", None), "test"), lambda: duty[0])
    reporter.look()
    assert reporter.reports == 0
    duty[0] = True
    seen = []
    for _ in range(5):
        reporter.look()
        seen.append(reporter.reports)
    assert seen == [100, 200, 250, 250, 250]
    devices.put_pod(RawRequest("other", "x", "other", ((K, 1),), "n249"))
    for _ in range(3):
        reporter.look()
    assert reporter.reports == 251
    for number in range(250):
        devices.remove_pod(f"u{number}")
    reporter.look()
    devices.put_pod(RawRequest("u0", "x", "p0", ((K, 1),), "n000"))
    reporter.look()
    assert reporter.reports == 252 + 1


OVER = f"over-committed on node n1: {K}: "


def notes(bench: Bench) -> dict[str, str]:
    """Return the last note of each pod."""
    found = sorted(
        (row.decode() for row in bench.api.store.tables[EVENTS].rows),
        key=lambda each: int(each["metadata"]["resourceVersion"]),
    )
    return {each["regarding"]["name"]: each["note"] for each in found}


async def test_c_18_a_doppelganger_and_the_launcher_are_one_use_at_every_step() -> None:
    async with raw_running(raw_node(), vmi(listed=["uid-d"]), raw_pod("d", node="n1")) as bench:
        seen = [used(bench)]
        bench.kube.set_status("d", {"phase": "Succeeded"})
        await eventually(lambda: not bench.live.cluster.knows("uid-d"))
        seen.append(used(bench))
        launcher = bench.kube.create(raw_pod("l"))
        listing(bench, launcher["metadata"]["uid"])
        await knows(bench, launcher["metadata"]["uid"])
        await bench.scheduler.place(launcher)
        await eventually(lambda: bench.live.cluster.raw.pod(launcher["metadata"]["uid"]).node == "n1")  # type: ignore[union-attr]
        seen.append(used(bench))
        assert seen == [1, 1, 1]
