"""Writes of a dead process that take effect after the next one has listed, and writes that are undone.

It exists because a restart may be quicker than a slow API server, and no card may be given out twice. It must not ask
the extender what is right. Invariant: after every write no card is over-committed, by the API server's objects alone.
"""

import asyncio
from dataclasses import replace

import pytest

from accounting.pod_state import PodState
from extender.live.leading.lease import LeaseSettings
from tests.apiserver.resources import PODS
from tests.extender.objects import Json, node, pod
from tests.live.harness import Bench, eventually, live_settings, running
from tests.live.harness_audit import Audit
from tests.live.harness_pods import state, whole
from tests.live.leader_harness import holder_of
from tests.virtual_time import passes

BINDING = "pods/binding"
QUICK_LEASE = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=0.5)


async def killed_with_a_binding_under_way(bench: Bench, seconds: float) -> Json:
    """Return a pod whose Binding takes effect that much later; its process is dead, and another one is ready."""
    bench.api.faults.add(fault="latency", seconds=seconds, resource=BINDING, nth=1)
    made = bench.kube.create(whole("late"))
    binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
    await eventually(lambda: bench.api.requests.count(resource=BINDING) == 1)
    await bench.restart()
    await asyncio.gather(binding, return_exceptions=True)
    return made


async def test_without_election_a_late_binding_is_refused() -> None:
    async with running(node("n1")) as bench:
        late = await killed_with_a_binding_under_way(bench, 1.0)
        assert bench.kube.node_of("late") is None
        assert await bench.scheduler.place(bench.kube.create(whole("p"))) == "n1"
        await passes(1.2)
        assert bench.audit.bound() == {"p": "n1"}
        await bench.agrees()
        bench.kube.delete_pod("p")
        await bench.caught_up()
        assert await bench.scheduler.bind(late, "n1") == ""
        await bench.agrees()


async def test_the_first_that_elects_has_no_lease_to_wait_for() -> None:
    async with running(node("n1"), http_timeout_seconds=0.5) as bench:
        bench.settings = replace(bench.settings, leader_elect=True, lease=QUICK_LEASE)
        await killed_with_a_binding_under_way(bench, 1.0)
        assert await bench.scheduler.place(bench.kube.create(whole("p"))) == "n1"
        await passes(1.2)
        assert bench.audit.bound() == {"p": "n1"}
        assert bench.audit.overcommitted == []


async def test_one_without_election_may_have_been_killed_since_the_lease_was_given_up() -> None:
    """The Lease says that its last holder is done, and nothing about processes after it."""
    alone = live_settings(http_timeout_seconds=0.5)
    electing = replace(alone, leader_elect=True, lease=QUICK_LEASE)
    async with running(node("n1"), settings=electing) as bench:
        await bench.extender.end()
        assert holder_of(bench.api) == ""
        bench.settings = alone
        await bench.boot()
        bench.settings = electing
        await killed_with_a_binding_under_way(bench, 1.0)
        assert holder_of(bench.api) == electing.identity
        assert bench.kube.node_of("late") is None
        assert await bench.scheduler.place(bench.kube.create(whole("p"))) == "n1"
        await passes(1.2)
        assert bench.audit.bound() == {"p": "n1"}
        await bench.agrees()


@pytest.mark.parametrize("why", ["too many", "refused"])
async def test_where_pods_cannot_be_moved_on_the_time_of_a_write_is_waited_out(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(node("n1"), http_timeout_seconds=0.6) as bench:
        if why == "too many":
            monkeypatch.setattr("extender.live.binding.latebindings._MOST_PODS", 0)
        else:
            bench.api.faults.add(fault="status", code=403, resource="pods", verb="patch")
        late = await killed_with_a_binding_under_way(bench, 0.4)
        assert bench.kube.node_of("late") == "n1"
        assert state(bench, late) is PodState.ADDED
        assert (await bench.scheduler.filter(bench.kube.create(whole("p")))).passed == []
        await bench.agrees()


async def test_only_pods_that_may_have_a_binding_under_way_are_moved_on_and_each_once() -> None:
    waiting, other = [whole(f"w{number:02}") for number in range(30)], pod("other", [{"name": "main", "image": "x"}])
    async with running(node("n1"), *waiting, other) as bench:
        patches = bench.api.requests.count(resource="pods", verb="patch")
        assert patches == len(waiting)
        assert await bench.scheduler.place(bench.kube.pod("w00")) == "n1"
        await bench.restart()
        assert bench.api.requests.count(resource="pods", verb="patch") == patches + len(waiting) - 1


async def test_a_lock_that_a_kill_left_closes_its_node_no_longer_than_the_restart() -> None:
    async with running(node("n1", 2), lock_mode=True) as bench:
        late = await killed_with_a_binding_under_way(bench, 1.0)
        assert bench.kube.node("n1")["metadata"]["annotations"]["hami.io/mutex.lock"].endswith("default,late")
        assert await bench.scheduler.place(bench.kube.create(whole("p"))) == "n1"
        await passes(1.2)
        assert bench.kube.node_of("late") is None
        assert state(bench, late) is None
        await bench.agrees()


# -- an API server that was restored from a backup --------------------------------------------------------------------


def undo_binding(bench: Bench, name: str) -> None:
    """Put the pod back to its state before the bind, without a watch event."""
    row = bench.api.store.get(PODS, f"default/{name}")
    assert row is not None
    obj = row.decode() | {"apiVersion": "v1", "kind": "Pod"}
    del obj["spec"]["nodeName"]
    obj["metadata"].pop("annotations", None)
    bench.api.load([obj])
    bench.audit.close()
    bench.audit = Audit(bench.api)


@pytest.mark.parametrize("seen", [True, False], ids=["added", "bound"])
async def test_a_binding_that_vanished_frees_its_cards_after_the_next_list(seen: bool) -> None:
    async with running(node("n1")) as bench:
        if not seen:
            bench.api.faults.add(fault="drop", resource="pods", verb="watch", event="MODIFIED")
        made = bench.kube.create(whole("p"))
        await bench.scheduler.place(made)
        if seen:
            await eventually(lambda: state(bench, made) is PodState.ADDED)
        undo_binding(bench, "p")
        await eventually(lambda: state(bench, made) is None)
        bench.api.faults.clear()
        assert await bench.scheduler.place(bench.kube.create(whole("q"))) == "n1"
        await bench.agrees()
        assert (await bench.scheduler.bind(made, "n1")).startswith("Insufficient")


async def test_a_list_that_is_older_than_a_bind_takes_nothing_away() -> None:
    """The list shows the pod without a node, since it began before the Binding; a read decides."""
    async with running(node("n1")) as bench:
        made = bench.kube.create(whole("p"))
        await bench.caught_up()
        bench.api.faults.add(fault="drop", resource="pods", verb="watch")
        old = bench.api.faults.add(fault="latency", seconds=0.3, resource="pods", verb="list", after=True)
        listing = asyncio.create_task(bench.live.reflectors[1].list_again())
        await eventually(lambda: old.hits == 1)
        reads = bench.api.requests.count(resource="pods", verb="get")
        await bench.scheduler.place(made)
        await listing
        await eventually(lambda: bench.api.requests.count(resource="pods", verb="get") > reads)
        await eventually(lambda: state(bench, made) is PodState.ADDED)
        bench.api.faults.clear()
        await bench.agrees()
