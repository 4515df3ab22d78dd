"""Sets of devices that are held for VMs, on a live cluster: from VMIs' specs, and from objects of a custom resource.

They exist because what is decided must reach filter, bind and the objects themselves, in spite of refusals and
restarts. They must not repeat which set goes where. Invariant: what an object says is read from the API server.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec

from accounting.holders import KeptSet, VmiKey
from extender.config import HoldSource, Settings
from extender.journal.journal import Entry
from extender.live.replaying import Replay
from tests.extender.objects import Json
from tests.extender.vmis import K, raw_node, raw_pod, vmi
from tests.live.harness import Bench, Extender, eventually, live_settings, running

SOURCE = HoldSource("gpu-extender.io", "v1alpha1", "holds")
KUBEVIRT, HOLDS = "kubevirt.io/v1", "gpu-extender.io/v1alpha1"
PATH = "/apis/gpu-extender.io/v1alpha1/namespaces/default/holds"
VMIS_PATH = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
MERGE = "application/merge-patch+json"
DERIVED = Settings(raw_keys=(K,), hold_sets=True)
TOLD = replace(DERIVED, hold_source=SOURCE)


def hold(name: str, *, of: str = "a", units: int = 1, **status: str) -> Json:
    """An object that tells of a hold, with what the extender last wrote."""
    return {
        "apiVersion": HOLDS,
        "kind": "Hold",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-hold-{name}"},
        "spec": {"virtualMachineInstance": of, "resourceName": K, "units": units},
        "status": status,
    }


@asynccontextmanager
async def holding(*objects: Json, cluster: Settings = TOLD, **how: Any) -> AsyncIterator[Bench]:  # noqa: ANN401
    async with running(*objects, cluster=cluster, **({"served": (KUBEVIRT, HOLDS)} | how)) as bench:
        yield bench


def set_of(bench: Bench, name: str = "a") -> KeptSet:
    return KeptSet(VmiKey("default", name), bench.live.cluster.raw.holds().get(VmiKey("default", name), ()))


def used(bench: Bench, name: str = "n1") -> int:
    return bench.live.cluster.raw.units.used_on(name, K)


def said(bench: Bench, name: str) -> tuple[str | None, str | None]:
    status = bench.kube.send("GET", f"{PATH}/{name}").get("status") or {}
    return status.get("node"), status.get("state")


async def test_a_vm_without_a_pod_has_its_devices_together_and_its_launcher_goes_there() -> None:
    objects = (
        raw_node("n1", 4),
        raw_node("n2", 4),
        raw_pod("o", 2, node="n2"),
        vmi(units=2, node=None, phase="Pending"),
    )
    async with holding(*objects, cluster=DERIVED) as bench:
        await eventually(lambda: set_of(bench).nodes == ("n2",), "the set is on the fullest node")
        assert used(bench, "n2") == 4
        launcher = bench.kube.create(raw_pod("l", 2))
        # Another pod has no room there any more, and the launcher has only once it is listed.
        assert (await bench.scheduler.filter(launcher)).passed == ["n1"]
        uid = launcher["metadata"]["uid"]
        bench.kube.send("PATCH", f"{VMIS_PATH}/a/status", {"status": {"activePods": {uid: ""}}}, MERGE)
        await eventually(lambda: bench.live.cluster.raw.launcher_of("default", uid) is not None)
        assert await bench.scheduler.place(launcher) == "n2"
        await eventually(lambda: bench.live.cluster.raw.pod(uid).node == "n2")  # type: ignore[union-attr]
        assert (used(bench, "n1"), used(bench, "n2")) == (0, 4)


async def test_a_bind_elsewhere_takes_the_set_along_in_the_same_step() -> None:
    objects = (raw_node("n1", 4), raw_node("n2", 4), vmi(listed=["uid-l"], units=2, node=None))
    async with holding(*objects, raw_pod("l", 2), cluster=DERIVED) as bench:
        await eventually(lambda: set_of(bench).nodes == ("n1",))
        passes = bench.live.holds.passes if bench.live.holds else 0
        assert await bench.scheduler.bind(bench.kube.pod("l"), "n2") == ""
        # Nobody has waited for a full pass.
        assert set_of(bench).nodes == ("n2",)
        assert bench.live.holds is not None
        assert bench.live.holds.passes <= passes + 1
        assert (used(bench, "n1"), used(bench, "n2")) == (0, 2)


async def test_a_set_whose_node_goes_moves_and_is_lost_when_there_is_no_room() -> None:
    async with holding(raw_node("n1", 4), raw_node("n2", 4), vmi(units=3), cluster=DERIVED) as bench:
        assert set_of(bench).nodes == ("n1",)
        bench.kube.delete_node("n1")
        await eventually(lambda: set_of(bench).nodes == ("n2",), "the set moves")
        bench.kube.delete_node("n2")
        await eventually(lambda: set_of(bench).state == "Lost", "the set is lost")
        async with bench.extender.session.get("/api/v1/verify") as answer:
            problems = (await answer.json())["problems"]
        assert [(each["code"], each["object"]) for each in problems] == [("LostHolds", "vmi default/a")]


async def test_what_is_decided_is_written_and_found_again_by_the_next_process() -> None:
    async with holding(raw_node("n1"), raw_node("n2"), hold("g0"), hold("g1")) as bench:
        await eventually(lambda: said(bench, "g0") == said(bench, "g1") == ("n1", "Bound"), "both are written")
        assert used(bench) == 2
        # Of two equal nodes the first by name; another process that did not read the objects would take the fuller one.
        bench.kube.create(raw_pod("o", 3, node="n2"))
        await bench.restart()
        assert set_of(bench).nodes == ("n1",)
        await eventually(lambda: bench.live.holds is not None and bench.live.holds.passes > 0)
        assert (said(bench, "g0"), used(bench)) == (("n1", "Bound"), 2)


async def test_s_02_a_half_written_set_is_gathered_and_written() -> None:
    objects = [hold("g0", node="n1", state="Bound"), hold("g1", node="n1", state="Bound"), hold("g2", state="Lost")]
    async with holding(raw_node("n1", 3), raw_node("n2", 3), *objects) as bench:
        await eventually(lambda: said(bench, "g2") == ("n1", "Bound"))
        assert set_of(bench).nodes == ("n1",)


async def test_s_04_a_set_that_no_node_takes_is_lost_as_a_whole() -> None:
    objects = [hold("g0", node="n1", state="Bound"), hold("g1", node="n1", state="Bound"), hold("g2", state="Lost")]
    async with holding(raw_node("n1", 2), raw_node("n2", 2), *objects) as bench:
        await eventually(lambda: {said(bench, f"g{number}") for number in range(3)} == {(None, "Lost")})
        assert used(bench) == 0
        assert bench.live.cluster.raw.units.used_in("default", K) == 3


async def test_an_object_that_cannot_be_written_is_written_later_and_stops_no_other() -> None:
    refused = {"fault": "status", "code": 403, "resource": "holds/status", "method": "PATCH", "times": 3}
    async with holding(raw_node("n1"), hold("g0"), hold("g1", of="b"), hold("g2", of="c"), faults=[refused]) as bench:
        await eventually(lambda: {said(bench, f"g{number}") for number in range(3)} == {("n1", "Bound")})


async def test_what_others_write_of_a_place_is_written_over_by_the_leader() -> None:
    async with holding(raw_node("n1"), raw_node("n2"), hold("g0")) as bench:
        await eventually(lambda: said(bench, "g0") == ("n1", "Bound"))
        bench.kube.send("PATCH", f"{PATH}/g0/status", {"status": {"node": "n2"}}, MERGE)
        await eventually(lambda: said(bench, "g0") == ("n1", "Bound"), "it is written again")
        assert set_of(bench).nodes == ("n1",)


async def test_an_object_that_cannot_be_read_stops_no_other_and_says_why() -> None:
    bad = hold("bad")
    bad["spec"]["units"] = "many"
    async with holding(raw_node("n1"), bad, hold("g0", of="b")) as bench:
        await eventually(lambda: said(bench, "g0") == ("n1", "Bound"))
        assert bench.live.cluster.hold_sets.names() == {("default", "g0")}


async def test_d_01_with_hold_sets_off_nothing_is_decided_and_what_ends_ends() -> None:
    off = replace(TOLD, hold_sets=False)
    objects = (hold("g0", node="n1", state="Bound"), hold("g1", of="b"))
    async with holding(raw_node("n1"), raw_node("n2"), *objects, cluster=off) as bench:
        assert bench.live.holds is None
        assert (set_of(bench).nodes, set_of(bench, "b").state, used(bench)) == (("n1",), "Pending", 1)
        # What another writer says counts at once.
        bench.kube.send("PATCH", f"{PATH}/g0/status", {"status": {"node": "n2"}}, MERGE)
        await eventually(lambda: set_of(bench).nodes == ("n2",))
        for name in ("g0", "g1"):
            bench.kube.send("DELETE", f"{PATH}/{name}")
        await eventually(lambda: len(bench.live.cluster.hold_sets) == 0)
        assert (used(bench), used(bench, "n2"), bench.live.cluster.raw.units.used_in("default", K)) == (0, 0, 0)
        assert bench.api.requests.count(resource="holds/status") == 0


async def test_a_crd_that_comes_later_is_found() -> None:
    async with holding(raw_node("n1"), served=(KUBEVIRT,)) as bench:
        bench.kube.create(hold("g0"))
        bench.api.serve(HOLDS)
        await eventually(lambda: said(bench, "g0") == ("n1", "Bound"))


async def test_a_standby_writes_nothing() -> None:
    settings = replace(live_settings(), leader_elect=True)
    async with holding(raw_node("n1"), hold("g0"), settings=settings) as bench:
        await eventually(lambda: said(bench, "g0") == ("n1", "Bound"))
        assert bench.live.holds is not None
        bench.live.holds._is_leading = lambda: False
        before = bench.api.requests.count(resource="holds/status")
        bench.kube.send("PATCH", f"{PATH}/g0/status", {"status": {"node": None, "state": "Lost"}}, MERGE)
        bench.kube.create(hold("g1", of="b"))
        await eventually(lambda: ("default", "g1") in bench.live.cluster.hold_sets.names())
        await bench.caught_up()
        assert bench.api.requests.count(resource="holds/status") == before


class _Memory:
    """A journal in memory."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def write(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)


async def test_a_journal_repeats_what_was_decided() -> None:
    journal = _Memory()
    async with holding(raw_node("n1", 4), raw_node("n2", 4), hold("g0", units=2)) as bench:
        await bench.extender.kill()
        bench.extender = await Extender.boot(bench.api.url, bench.settings, TOLD, journal)
        await bench.extender.ready()
        # Only what has had a node can be lost.
        await eventually(lambda: set_of(bench).nodes == ("n1",), seconds=60)
        bench.kube.create(raw_pod("o", 3, node="n2"))
        bench.kube.delete_node("n1")
        await eventually(lambda: set_of(bench).state == "Lost", seconds=60)
        bench.kube.delete_pod("o")
        await eventually(lambda: said(bench, "g0") == ("n2", "Bound"), seconds=60)
        kept = bench.live.cluster.raw.holds()
        lines = [msgspec.json.decode(msgspec.json.encode(entry), type=Entry) for entry in journal.entries]
        replay = Replay(TOLD)
        assert replay.run(enumerate(lines)).difference is None
        assert any(entry["op"] == "holds" for entry in journal.entries)
        assert replay._process.cluster.raw.holds() == kept
