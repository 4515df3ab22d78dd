"""HAMi's node lock in failures: it is released on every failure path, and conflicts are tried again.

It exists because a lock that is left behind closes a node for five minutes. It must not know cards beyond what fits.
Invariant: the lock is what the node's annotation says.
"""

import asyncio
from datetime import UTC, datetime

import pytest

from accounting.pod_state import PodState
from extender.convert.annotations import NODE_LOCK
from extender.kube.client import KubeClient
from extender.live.locks.lockowner import OwnerState
from extender.live.locks.nodelock import Contended, NodeLocks
from extender.live.watching.facts import Facts, NodeFacts
from tests.extender.objects import ALLOCATION, Json, bound, node, pod
from tests.live.harness import eventually, running
from tests.live.harness_locks import (
    BINDING,
    TWO_VENDORS,
    both_vendors,
    filtered,
    hygon_register,
    lock_of,
    lock_text,
    locked,
)
from tests.virtual_time import passes

# -- released on every failure path ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["403", "404", "409", "422", "429"])
async def test_a82_released_when_the_binding_is_refused(code: str) -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=1.0) as bench:
        bench.api.faults.add(fault="status", code=int(code), resource=BINDING)
        (made,) = await filtered(bench, "p")
        assert await bench.scheduler.bind(made, "n1") != ""
        await eventually(lambda: lock_of(bench) is None, seconds=1.0)
        await bench.agrees()


@pytest.mark.parametrize("fault", [{"fault": "reset"}, {"fault": "status", "code": 500}, {"fault": "hang"}])
async def test_released_when_a_binding_without_an_answer_turns_out_not_to_have_happened(fault: Json) -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=0.5) as bench:
        bench.api.faults.add(resource=BINDING, nth=1, **fault)
        (made,) = await filtered(bench, "p")
        assert await bench.scheduler.bind(made, "n1") != ""
        await eventually(lambda: bench.live.cluster.cache.state(made["metadata"]["uid"]) is None)
        await eventually(lambda: lock_of(bench) is None)
        await bench.agrees()


@pytest.mark.parametrize("fault", [{"fault": "reset"}, {"fault": "status", "code": 500}, {"fault": "hang"}])
async def test_kept_when_a_binding_without_an_answer_turns_out_to_have_happened(fault: Json) -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=0.5) as bench:
        bench.api.faults.add(resource=BINDING, nth=1, after=True, **fault)
        (made,) = await filtered(bench, "p")
        await bench.scheduler.bind(made, "n1")
        await eventually(lambda: bench.live.cluster.cache.state(made["metadata"]["uid"]) is PodState.ADDED)
        assert lock_of(bench) == "default,p"
        await bench.agrees()


async def test_released_when_the_pod_is_deleted_while_its_binding_is_in_flight() -> None:
    async with running(node("n1"), lock_mode=True) as bench:
        bench.api.faults.add(fault="latency", seconds=0.1, resource=BINDING)
        (made,) = await filtered(bench, "p")
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: lock_of(bench) == "default,p")
        bench.kube.delete_pod("p")
        assert await binding != ""
        await eventually(lambda: lock_of(bench) is None, seconds=1.0)
        await bench.agrees()


async def test_a_pod_that_is_deleted_while_it_waits_for_the_lock_costs_no_binding() -> None:
    async with running(node("n1"), lock_mode=True) as bench:
        first, second = await filtered(bench, "a", "b")
        assert await bench.scheduler.bind(first, "n1") == ""
        waiting = asyncio.create_task(bench.scheduler.bind(second, "n1"))
        await passes(0.05)
        bench.kube.delete_pod("b")
        await bench.caught_up()
        async with bench.node_actor():
            assert (await waiting).startswith("Gone")
        assert bench.api.requests.count(resource=BINDING) == 1
        assert lock_of(bench) is None
        await bench.agrees()


async def test_released_when_the_pod_turns_out_to_be_on_another_node() -> None:
    async with running(node("n1"), node("n2"), lock_mode=True) as bench:
        bench.api.faults.add(fault="latency", seconds=0.1, resource=BINDING)
        (made,) = await filtered(bench, "p")
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: lock_of(bench) == "default,p")
        bench.kube.bind("p", "n2", {ALLOCATION: "GPU-n2-0,NVIDIA,10,0:;"})
        assert (await binding).startswith("AlreadyBound")
        await eventually(lambda: lock_of(bench) is None, seconds=1.0)
        await bench.agrees()


@pytest.mark.parametrize("fault", [{"fault": "reset"}, {"fault": "status", "code": 500}, {"fault": "hang"}])
@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-the-write"])
async def test_a_lock_write_without_an_answer_is_read_back_or_removed(fault: Json, after: bool) -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=0.6) as bench:
        bench.api.faults.add(resource="nodes", method="PATCH", nth=1, after=after, **fault)
        (made,) = await filtered(bench, "p")
        if await bench.scheduler.bind(made, "n1") == "":
            assert lock_of(bench) == "default,p"
        else:
            await eventually(lambda: lock_of(bench) is None)
            assert await bench.scheduler.bind(made, "n1") == ""
        await bench.agrees()


@pytest.mark.parametrize(
    "fault", [{"fault": "reset"}, {"fault": "status", "code": 503}, {"fault": "status", "code": 429}]
)
async def test_a82_a_release_that_fails_is_tried_again_until_it_is_done(fault: Json) -> None:
    """The failure path unlocks even when the API server has trouble."""
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=1.0) as bench:
        (made,) = await filtered(bench, "p")
        bench.api.faults.add(fault="status", code=403, resource=BINDING, nth=1)
        bench.api.faults.add(resource="nodes", method="PATCH", skip=1, times=3, **fault)
        bench.api.faults.add(resource="nodes", verb="get", times=2, **fault)
        assert (await bench.scheduler.bind(made, "n1")).startswith("Refused: 403")
        await eventually(lambda: lock_of(bench) is None)


async def test_a_release_removes_only_its_own_lock() -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=1.0) as bench:
        (made,) = await filtered(bench, "p")
        bench.api.faults.add(fault="latency", seconds=0.1, resource=BINDING)
        bench.api.faults.add(fault="status", code=403, resource=BINDING)
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: lock_of(bench) == "default,p")
        bench.kube.annotate_node("n1", {NODE_LOCK: lock_text(0, "default,somebody")})
        assert await binding != ""
        await passes(0.1)
        assert lock_of(bench) == "default,somebody"


async def test_a_release_that_is_still_tried_does_not_remove_the_lock_of_the_pods_next_bind() -> None:
    """Both binds come in one second, so the text is the same."""
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=2.0) as bench:
        (made,) = await filtered(bench, "p")
        now = datetime.now(UTC)
        bench.live.locks._now = lambda: now
        bench.api.faults.add(fault="status", code=403, resource=BINDING, nth=1)
        failing = bench.api.faults.add(fault="status", code=503, resource="nodes", method="PATCH", skip=1)
        assert (await bench.scheduler.bind(made, "n1")).startswith("Refused: 403")
        assert lock_of(bench) == "default,p"
        bench.api.faults.remove(failing.id)
        assert await bench.scheduler.bind(made, "n1") == ""
        await passes(0.5)
        assert lock_of(bench) == "default,p"
        await bench.agrees()


async def test_a84_a_second_step_that_fails_rolls_the_first_one_back() -> None:
    """The pod got the lock but not the cards, which were taken while the lock was written."""
    async with running(node("n1"), lock_mode=True) as bench:
        (made,) = await filtered(bench, "p")
        bench.api.faults.add(fault="latency", seconds=0.1, after=True, resource="nodes", method="PATCH", nth=1)
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: lock_of(bench) == "default,p")
        bench.kube.create(bound("c", "n1", "GPU-n1-0", 1000))
        assert (await binding).startswith("InsufficientMemory")
        await eventually(lambda: lock_of(bench) is None, seconds=1.0)
        assert bench.api.requests.count(resource=BINDING) == 0
        await bench.agrees()


async def test_a84_when_the_second_vendor_has_no_room_the_first_ones_cards_and_the_lock_are_given_back() -> None:
    async with running(node("n1", annotations=hygon_register()), lock_mode=True, cluster=TWO_VENDORS) as bench:
        made = bench.kube.create(both_vendors("p"))
        assert (await bench.scheduler.filter(made)).passed == ["n1"]
        bench.api.faults.add(fault="latency", seconds=0.1, after=True, resource="nodes", method="PATCH", nth=1)
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: lock_of(bench) == "default,p")
        bench.kube.annotate_node("n1", hygon_register(health=False))
        assert (await binding).startswith("DeviceUnhealthy")
        await eventually(lambda: lock_of(bench) is None, seconds=1.0)
        assert bench.api.requests.count(resource=BINDING) == 0
        assert await bench.scheduler.place(bench.kube.create(pod("q", memory=1000))) == "n1"
        await bench.agrees()


# -- conflicts on the node ---------------------------------------------------------------------------------------------


async def test_a85_a_conflict_on_the_nodes_version_is_read_and_tried_again() -> None:
    """The watch is behind, so the node's version is not the known one; what others wrote on it stays."""
    async with running(node("n1"), lock_mode=True) as bench:
        (made,) = await filtered(bench, "p")
        bench.api.faults.add(fault="delay", seconds=0.3, resource="nodes", verb="watch")
        bench.kube.annotate_node("n1", {"test/other": "1"})
        before = bench.requests
        assert await bench.scheduler.bind(made, "n1") == ""
        assert bench.requests - before == 4  # lock, read, lock, Binding
        annotations = bench.kube.node("n1")["metadata"]["annotations"]
        assert annotations["test/other"] == "1"
        assert lock_of(bench) == "default,p"
        bench.api.faults.clear()
        await bench.agrees()


async def test_what_the_watch_tells_late_does_not_hide_a_lock_that_we_wrote() -> None:
    async with running(node("n1"), lock_mode=True) as bench:
        (made,) = await filtered(bench, "p")
        bench.api.faults.add(fault="delay", seconds=0.1, resource="nodes", verb="watch")
        for number in range(3):
            bench.kube.annotate_node("n1", {"test/number": str(number)})
        assert await bench.scheduler.bind(made, "n1") == ""
        for _ in range(50):
            lock = bench.live.facts.nodes["n1"].lock
            assert lock is not None
            assert lock.endswith(",default,p")
            await passes(0.01)


async def test_a_lock_that_the_watch_has_not_told_of_is_waited_for() -> None:
    async with running(node("n1"), bound("other", "n1", "GPU-n1-0", 10), lock_mode=True) as bench:
        (made,) = await filtered(bench, "p")
        bench.api.faults.add(fault="delay", seconds=0.2, resource="nodes", verb="watch")
        bench.kube.annotate_node("n1", {NODE_LOCK: lock_text(0)})
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await passes(0.1)
        assert lock_of(bench) == "default,other"
        bench.kube.annotate_node("n1", {NODE_LOCK: None})
        assert await binding == ""
        assert lock_of(bench) == "default,p"


async def test_a_silent_watch_does_not_keep_a_lock() -> None:
    async with running(locked(lock_text(0)), bound("other", "n1", "GPU-n1-0", 10), lock_mode=True) as bench:
        (made,) = await filtered(bench, "p")
        bench.api.faults.add(fault="drop", resource="nodes", verb="watch")
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await passes(0.05)
        bench.kube.annotate_node("n1", {NODE_LOCK: None})
        assert await binding == ""


async def test_a_node_that_is_deleted_ends_the_waiting() -> None:
    async with running(locked(lock_text(0)), bound("other", "n1", "GPU-n1-0", 10), lock_mode=True) as bench:
        (made,) = await filtered(bench, "p")
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await passes(0.05)
        bench.kube.delete_node("n1")
        assert (await asyncio.wait_for(binding, 1.0)).startswith(("NodeLocked", "NodeUnknown"))


async def test_a80_a_pod_deleted_right_after_the_lock_was_set() -> None:
    """The node is not closed for five minutes."""
    async with running(node("n1"), lock_mode=True) as bench:
        first, second = await filtered(bench, "a", "b")
        assert await bench.scheduler.bind(first, "n1") == ""
        bench.kube.delete_pod("a")
        assert await asyncio.wait_for(bench.scheduler.bind(second, "n1"), 1.0) == ""
        assert lock_of(bench) == "default,b"
        await bench.agrees()


async def test_a82_a_plugin_that_is_down_keeps_the_lock_until_it_expires() -> None:
    """The lock ends by age and the check of its owner; until then the plugin would serve its pod."""
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=0.5) as bench:
        first, second = await filtered(bench, "a", "b")
        assert await bench.scheduler.bind(first, "n1") == ""
        assert (await bench.scheduler.bind(second, "n1")).startswith("NodeLocked")
        bench.kube.annotate_node("n1", {NODE_LOCK: lock_text(301, "default,a")})
        await bench.caught_up()
        assert await bench.scheduler.bind(second, "n1") == ""
        await bench.agrees()


async def test_a_restart_between_lock_and_binding_leaves_a_lock_that_its_pod_may_take() -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=1.0) as bench:
        bench.api.faults.add(fault="hang", resource=BINDING, nth=1)
        (made,) = await filtered(bench, "p")
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: bench.api.requests.count(resource=BINDING) == 1)
        await bench.restart()
        await asyncio.gather(binding, return_exceptions=True)
        assert lock_of(bench) == "default,p"
        assert await bench.scheduler.bind(made, "n1") == ""
        await bench.agrees()


async def test_a_node_that_is_not_known_is_not_locked() -> None:
    locks = NodeLocks(_no_client(), Facts(nodes={"n2": NodeFacts("1", None)}), lambda *_owner: OwnerState.BOOKED)
    taken = await locks.take("n1", "default", "p", asyncio.get_running_loop().time() + 1)
    assert taken == Contended("the node is gone")


def _no_client() -> KubeClient:
    """Make every use of the API server fail."""
    return KubeClient.__new__(KubeClient)
