"""HAMi's node lock: which pod holds it, which wait, and that none holds it in vain.

It exists because a lock that is left behind closes a node for five minutes, and a lock that is broken too early makes
two pods swap cards. It must not know cards beyond what fits. Invariant: the lock is what the node's annotation says.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial

import pytest

from extender.convert.annotations import BIND_PHASE, NODE_LOCK
from extender.live.locks.lockowner import LockOwner, parse_lock
from tests.apiserver.resources import PODS
from tests.extender.objects import Json, asks, bound, container, node, pod, sidecar
from tests.live.harness import Bench, eventually, running
from tests.live.harness_locks import (
    BINDING,
    TWO_VENDORS,
    both_vendors,
    filtered,
    hygon_register,
    lock_of,
    lock_text,
    lock_time,
    locked,
    small,
)
from tests.virtual_time import passes


def is_unlocked(bench: Bench, name: str) -> bool:
    return lock_of(bench, name) is None


# -- how many requests -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock_mode, requests", [(False, 1), (True, 2)], ids=["mode-none", "mode-hami"])
async def test_requests_per_scheduled_pod(lock_mode: bool, requests: int) -> None:
    """HAMi needs seven, and two events, for the same."""
    async with running(node("n1", 2), node("n2", 2), lock_mode=lock_mode) as bench, bench.node_actor():
        await bench.caught_up()
        before = bench.requests
        for number in range(10):
            made = bench.kube.create(small(f"p{number}"))
            name = await bench.scheduler.place(made)
            if lock_mode:
                await eventually(partial(is_unlocked, bench, name))
                await bench.caught_up()
        assert bench.requests - before == 10 * requests
        await bench.agrees()


async def test_a_refused_bind_costs_nothing() -> None:
    async with running(node("n1"), lock_mode=True) as bench:
        made = bench.kube.create(pod("p", memory=5000))
        await bench.scheduler.filter(made)
        before = bench.requests
        assert (await bench.scheduler.bind(made, "n1")).startswith("InsufficientMemory")
        assert bench.requests == before
        assert lock_of(bench) is None


# -- who takes it ------------------------------------------------------------------------------------------------------


async def test_mode_none_takes_no_lock_and_waits_for_none() -> None:
    async with running(locked(lock_text(1)), bound("other", "n1", "GPU-n1-0", 10)) as bench:
        await bench.scheduler.place(bench.kube.create(small("p")))
        assert lock_of(bench) == "default,other"
        await bench.agrees()


async def test_the_lock_is_taken_before_the_binding_and_left_to_the_plugin() -> None:
    async with running(node("n1"), lock_mode=True) as bench:
        await bench.scheduler.place(bench.kube.create(small("p")))
        assert lock_of(bench) == "default,p"
        await bench.agrees()
        async with bench.node_actor() as actor:
            await actor.allocate("default", "p")
        assert lock_of(bench) is None
        assert bench.kube.pod("p")["metadata"]["annotations"][BIND_PHASE] == "success"


@pytest.mark.parametrize("kind", ["init", "sidecar", "app"])
async def test_the_lock_is_taken_for_pods_whose_gpus_are_only_in_an(kind: str) -> None:
    """HAMi locks for app containers only."""
    gpu = {"init": container("g", asks(1, 10)), "sidecar": sidecar("g", asks(1, 10))}
    made = (
        pod("p", [container("g", asks(1, 10))]) if kind == "app" else pod("p", [container("main")], inits=[gpu[kind]])
    )
    async with running(node("n1"), lock_mode=True) as bench:
        await bench.scheduler.place(bench.kube.create(made))
        assert lock_of(bench) == "default,p"
        await bench.agrees()


async def test_no_lock_for_a_pod_without_gpus() -> None:
    async with running(node("n1"), lock_mode=True) as bench:
        made = bench.kube.create(pod("p", [container("main")]))
        assert await bench.scheduler.bind(made, "n1") == ""
        assert lock_of(bench) is None


# -- the queue ---------------------------------------------------------------------------------------------------------


async def test_a69_binds_of_one_node_are_served_in_the_order_in_which_they_came() -> None:
    async with running(node("n1", 4), lock_mode=True) as bench:
        names = [f"p{number}" for number in range(6)]
        pods = await filtered(bench, *names)
        done: list[str] = []

        async def bind(made: Json) -> None:
            assert await bench.scheduler.bind(made, "n1") == ""
            done.append(made["metadata"]["name"])

        tasks = []
        for made in pods:
            tasks.append(asyncio.create_task(bind(made)))
            await passes(0.02)
        async with bench.node_actor():
            await asyncio.gather(*tasks)
        assert done == names
        await bench.agrees()


async def test_who_waits_for_the_lock_holds_no_assumption_and_fits_again() -> None:
    """While p waits, its only card is taken; p is refused with the present reason, and leaves no lock behind."""
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=3.0) as bench:
        first, second = await filtered(bench, "a", "b")
        assert await bench.scheduler.bind(first, "n1") == ""
        waiting = asyncio.create_task(bench.scheduler.bind(second, "n1"))
        await passes(0.1)
        assert bench.live.cluster.cache.state(second["metadata"]["uid"]) is None
        bench.kube.create(bound("c", "n1", "GPU-n1-0", 985))
        await bench.caught_up()
        async with bench.node_actor():
            assert (await waiting).startswith("InsufficientMemory")
        assert lock_of(bench) is None
        await bench.agrees()


async def test_a_bind_waits_for_the_lock_until_80_percent_of_http_timeout() -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=2.0) as bench:
        first, second, third = await filtered(bench, "a", "b", "c")
        assert await bench.scheduler.bind(first, "n1") == ""
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(bench.scheduler.bind(second, "n1"), bench.scheduler.bind(third, "n1"))
        assert all(answer.startswith("NodeLocked") for answer in answers)
        assert 1.55 <= loop.time() - began < 1.78
        assert lock_of(bench) == "default,a"
        assert bench.audit.bound() == {"a": "n1"}
        await bench.agrees()


async def test_a_bind_that_hangs_does_not_keep_the_next_one_waiting_beyond_80_percent() -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=2.0) as bench:
        bench.api.faults.add(fault="hang", resource=BINDING, nth=1)
        first, second = await filtered(bench, "a", "b")
        hanging = asyncio.create_task(bench.scheduler.bind(first, "n1"))
        await eventually(lambda: bench.api.requests.count(resource=BINDING) == 1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await bench.scheduler.bind(second, "n1")).startswith("NodeLocked: other pods wait")
        assert 1.55 <= loop.time() - began < 1.78
        assert (await hanging).startswith("Unknown")


@pytest.mark.parametrize("lock_mode", [False, True], ids=["none", "hami"])
async def test_a_replica_whose_lease_does_not_last_writes_nothing(lock_mode: bool) -> None:
    class Ending:
        def is_leader(self) -> bool:
            return True

        def may_write(self, seconds: float) -> bool:
            return seconds < 0.1

    async with running(node("n1"), lock_mode=lock_mode) as bench:
        (made,) = await filtered(bench, "p")
        bench.live.binder._attempts._leadership = Ending()
        before = bench.requests
        assert (await bench.scheduler.bind(made, "n1")).startswith("NotLeader")
        assert bench.requests == before
        await bench.agrees()


async def test_a69_a_burst_on_one_locked_node_is_bound_one_after_another() -> None:
    """In other schedulers the per-node lock and a throttled client cause bind timeouts under load."""
    async with running(node("n1", 8), lock_mode=True, http_timeout_seconds=5.0) as bench, bench.node_actor():
        pods = [bench.kube.create(small(f"p{number:02}")) for number in range(40)]
        results = await bench.scheduler.burst(pods)
        assert all(each.ok for each in results)
        await eventually(lambda: lock_of(bench) is None)
        phases = [bench.kube.pod(each["metadata"]["name"])["metadata"]["annotations"][BIND_PHASE] for each in pods]
        assert phases.count("success") == 40
        await bench.agrees()


async def test_a66_at_most_one_pod_of_a_node_is_allocating() -> None:
    """The device plugin picks "the oldest allocating pod", so two of them swap cards."""
    async with running(node("n1", 8), lock_mode=True) as bench:
        most = 0

        def count() -> None:
            nonlocal most
            phases = [(each["metadata"].get("annotations") or {}).get(BIND_PHASE) for each in bench.kube.pods()]
            most = max(most, phases.count("allocating"))

        bench.api.store.listen(PODS, count)
        async with bench.node_actor():
            pods = [bench.kube.create(small(f"p{number}")) for number in range(10)]
            assert all(each.ok for each in await bench.scheduler.burst(pods))
        assert most == 1


# -- stale locks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form, seconds_ago",
    [
        ("{},default,gone", 1),
        ("{},default,alive", 301),
        ("{},default,alive", -3600),
        ("{}", 301),
        ("not a time,default,alive", 0),
        ("{},default", 1),
        ("", 0),
    ],
    ids=["owner-gone", "expired", "from-the-future", "old-form-expired", "unreadable", "two-parts", "empty"],
)
async def test_a_stale_lock_is_taken_over_at_once(form: str, seconds_ago: float) -> None:
    text = form.format(lock_time(seconds_ago))
    async with running(locked(text), bound("alive", "n1", "GPU-n1-0", 10), lock_mode=True) as bench:
        made = bench.kube.create(small("p"))
        assert await asyncio.wait_for(bench.scheduler.place(made), 1.0) == "n1"
        assert lock_of(bench) == "default,p"
        await bench.agrees()


@pytest.mark.parametrize(
    "form, seconds_ago",
    [("{},default,alive", 1), ("{},default,alive", 270), ("{}", 1)],
    ids=["owner-alive", "owner-alive-for-long", "old-form"],
)
async def test_a_lock_that_is_not_stale_is_respected(form: str, seconds_ago: float) -> None:
    text = form.format(lock_time(seconds_ago))
    objects = locked(text), bound("alive", "n1", "GPU-n1-0", 10)
    async with running(*objects, lock_mode=True, http_timeout_seconds=0.5) as bench:
        made = bench.kube.create(small("p"))
        await bench.scheduler.filter(made)
        assert (await bench.scheduler.bind(made, "n1")).startswith("NodeLocked")
        assert bench.kube.node("n1")["metadata"]["annotations"][NODE_LOCK] == text
        await bench.agrees()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a81_a_lock_whose_owner_has_finished_is_stale_while_others_wait(phase: str) -> None:
    async with running(node("n1"), lock_mode=True) as bench:
        first, second = await filtered(bench, "a", "b")
        assert await bench.scheduler.bind(first, "n1") == ""
        waiting = asyncio.create_task(bench.scheduler.bind(second, "n1"))
        await passes(0.05)
        bench.kube.set_status("a", {"phase": phase})
        # Nothing changes on the node: the end of the owner ends the wait.
        assert await asyncio.wait_for(waiting, 1.0) == ""
        assert lock_of(bench) == "default,b"
        await bench.agrees()


async def test_the_lock_of_a_pod_whose_bind_is_over_is_stale_at_once() -> None:
    """Its process was killed between lock and Binding; only this process binds it now."""
    for where in ({}, {"node_name": "n2"}):
        alive = bound("alive", "n2", "GPU-n2-0", 10) if where else small("alive")
        nodes = locked(lock_text(1, "default,alive")), node("n2")
        async with running(*nodes, alive, lock_mode=True, http_timeout_seconds=1.0) as bench:
            made = bench.kube.create(small("p"))
            await bench.scheduler.filter(made)
            error = await bench.scheduler.bind(made, "n1")
            assert (error, lock_of(bench)) == ("", "default,p")


async def test_the_lock_of_a_pod_that_another_looks_after_is_stale_after_20_seconds() -> None:
    """It asks for other vendors' cards, so its scheduler may be between lock and Binding."""
    alive = pod("alive", [{"name": "main", "image": "x"}])
    async with running(locked(lock_text(21, "default,alive")), alive, lock_mode=True) as bench:
        await bench.scheduler.place(bench.kube.create(small("p")))
        assert lock_of(bench) == "default,p"
    async with running(locked(lock_text(5, "default,alive")), alive, lock_mode=True, http_timeout_seconds=0.5) as b:
        made = b.kube.create(small("p"))
        await b.scheduler.filter(made)
        assert (await b.scheduler.bind(made, "n1")).startswith("NodeLocked")


async def test_a_bind_whose_outcome_is_not_known_keeps_its_lock() -> None:
    async with running(node("n1"), lock_mode=True, http_timeout_seconds=0.5) as bench:
        reading = bench.api.faults.add(fault="status", code=500, resource="pods", verb="get")
        bench.api.faults.add(fault="hang", resource=BINDING, nth=1)
        first, second = await filtered(bench, "a", "b")
        assert (await bench.scheduler.bind(first, "n1")).startswith("Unknown")
        assert (await bench.scheduler.bind(second, "n1")).startswith("NodeLocked")
        assert lock_of(bench) == "default,a"
        bench.api.faults.remove(reading.id)
        await eventually(lambda: lock_of(bench) is None)
        assert await bench.scheduler.bind(second, "n1") == ""
        await bench.agrees()


async def test_a_lock_whose_owner_cannot_be_read_is_respected() -> None:
    async with running(locked(lock_text(1, "default,gone")), lock_mode=True, http_timeout_seconds=0.5) as bench:
        bench.api.faults.add(fault="status", code=500, resource="pods", verb="get")
        made = bench.kube.create(small("p"))
        await bench.scheduler.filter(made)
        assert (await bench.scheduler.bind(made, "n1")).startswith("NodeLocked")
        assert lock_of(bench) == "default,gone"


async def test_the_owner_must_match_exactly() -> None:
    """A pod of the same name in another namespace is another pod, and so is one whose name begins alike."""
    others = [bound("p", "n1", "GPU-n1-0", 10, namespace="b", uid="b"), bound("p-0", "n1", "GPU-n1-0", 10)]
    for owner in ("b,p", "default,p-0"):
        text = lock_text(1, owner)
        async with running(locked(text), *others, lock_mode=True, http_timeout_seconds=0.4) as bench:
            made = bench.kube.create(small("p"))
            await bench.scheduler.filter(made)
            assert (await bench.scheduler.bind(made, "n1")).startswith("NodeLocked")
            assert lock_of(bench) == owner


async def test_a83_the_lock_is_reentrant_by_its_owner() -> None:
    """An earlier bind of this pod, or its former scheduler, has left the lock; it never waits for its own."""
    async with running(locked(lock_text(3, "default,p")), lock_mode=True, http_timeout_seconds=1.0) as bench:
        await bench.scheduler.place(bench.kube.create(small("p")))
        assert lock_of(bench) == "default,p"
        await bench.agrees()


async def test_a83_a_pod_of_two_vendors_takes_one_lock_and_does_not_wait_for_it() -> None:
    async with running(node("n1", annotations=hygon_register()), lock_mode=True, cluster=TWO_VENDORS) as bench:
        made = bench.kube.create(both_vendors("p"))
        before = bench.requests
        assert await bench.scheduler.place(made) == "n1"
        assert bench.requests - before == 2  # lock, Binding
        assert lock_of(bench) == "default,p"
        assert bench.audit.uuids("p") == ["DCU-0", "GPU-n1-0"]
        await bench.caught_up()
        assert (await bench.live.compare()).differing == 0


def test_what_a_lock_says() -> None:
    when = datetime(2026, 11, 29, 16, 18, 33, tzinfo=UTC)
    assert parse_lock("2026-11-29T16:18:33Z,default,p1") == LockOwner(when, "default", "p1")
    assert parse_lock("2026-11-29T17:18:33+01:00,default,p1") == LockOwner(when, "default", "p1")
    assert parse_lock("2026-11-29T16:18:33Z") == LockOwner(when, "", "")
    assert parse_lock("2026-11-29T16:18:33,a,b") == LockOwner(when, "a", "b")
    for text in ("", "soon", "soon,a,b", "2026-11-29T16:18:33Z,a", "2026-11-29T16:18:33Z,a,b,c"):
        assert parse_lock(text) is None


async def test_a_pod_that_waits_for_a_lock_keeps_its_claim() -> None:
    async with running(node("n1"), node("n2"), lock_mode=True, http_timeout_seconds=2.0) as bench:
        claims = bench.live.claims
        assert claims is not None
        claims.max_age_seconds = 0.1
        first, second, third = (bench.kube.create(pod(name, memory=400)) for name in "abc")
        await bench.caught_up()
        for each in (first, second):
            await bench.scheduler.filter(each)
        assert await bench.scheduler.bind(first, "n1") == ""
        # Whatever filter preferred, kube-scheduler has chosen this node.
        waiting = asyncio.create_task(bench.scheduler.bind(second, "n1"))
        await passes(0.5)
        claims.expire(asyncio.get_running_loop().time())
        assert claims.node_of(second["metadata"]["uid"]) == "n1"
        # The third pod would fit on n1 beside what is booked, but not beside the claim.
        passed = (await bench.scheduler.filter(third)).passed
        assert (await bench.scheduler.prioritize(third, *passed))["n2"] == 10
        async with bench.node_actor():
            assert await waiting == ""
        await eventually(lambda: claims.node_of(second["metadata"]["uid"]) is None)
        await bench.agrees()
