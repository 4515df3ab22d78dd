"""Which pods a release wakes first, how many, and how fast: never more than fit, never a storm.

It exists because ten thousand pending pods and one freed card must cost a handful of patches. It must not look into the
waker beyond how many it remembers. Invariant: a wake is a patch of the pending pod that the API server sees.
"""

import asyncio
from functools import partial

from extender.live.waking.waker import WakeSettings
from tests.extender.objects import (
    CORDON,
    bound,
    node,
    pod,
    quota,
)
from tests.live.harness import Bench, eventually, live_settings, report, running, stalls
from tests.live.harness_scheduler import SchedulingQueue
from tests.live.harness_waking import UNSCHEDULABLE, refuse, woken
from tests.virtual_time import passes


def is_woken_for_the(bench: Bench, number: int) -> bool:
    """Whether one more pod was woken since that many."""
    return len(woken(bench)) == number + 1


# -- order and rates ---------------------------------------------------------------------------------------------------


async def test_highest_priority_first_then_the_longest_refused() -> None:
    wake = WakeSettings(pod_seconds=0.3)
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000), wake=wake) as bench:
        pods = [pod(name, memory=1000) for name in ("first", "high", "second", "higher")]
        pods[1]["spec"]["priority"], pods[3]["spec"]["priority"] = 10, 20
        await refuse(bench, *pods)
        # Each pod takes the card when it is woken, and is deleted again.
        order = []
        bench.kube.delete_pod("a")
        for number in range(4):
            await eventually(partial(is_woken_for_the, bench, number), seconds=2.0)
            name = woken(bench)[-1]
            order.append(name)
            await bench.scheduler.place(bench.kube.pod(name))
            await bench.caught_up()
            bench.kube.delete_pod(name)
        assert order == ["higher", "high", "first", "second"]


async def test_as_many_are_woken_as_fit_together() -> None:
    async with running(node("n1", 4, memory=1000), bound("a", "n1", "GPU-n1-0", 1000)) as bench:
        for number in range(1, 4):
            bench.kube.create(bound(f"b{number}", "n1", f"GPU-n1-{number}", 1000))
        await bench.caught_up()
        await refuse(bench, *(pod(f"p{number}", memory=400) for number in range(10)))
        bench.kube.delete_pod("b1")
        await eventually(lambda: len(woken(bench)) == 2, seconds=1.0)
        bench.kube.delete_pod("b2")
        await eventually(lambda: len(woken(bench)) == 4, seconds=1.0)
        await passes(0.2)
        assert sorted(woken(bench)) == ["p0", "p1", "p2", "p3"]


async def test_a_quota_is_promised_once() -> None:
    objects = node("n1", 4), quota({"requests.nvidia.com/gpumem": "1000"}), bound("a", "n1", "GPU-n1-0", 1000)
    async with running(*objects) as bench:
        await refuse(bench, *(pod(f"p{number}", memory=500) for number in range(6)))
        bench.kube.delete_pod("a")
        await eventually(lambda: len(woken(bench)) == 2, seconds=1.0)
        await passes(0.2)
        assert sorted(woken(bench)) == ["p0", "p1"]


async def test_the_rate_over_all_pods_is_limited() -> None:
    wake = WakeSettings(per_second=20, burst=5)
    held = [bound(f"b{number}", "n1", f"GPU-n1-{number}", 1000) for number in range(20)]
    async with running(node("n1", 20), *held, wake=wake) as bench:
        await refuse(bench, *(pod(f"p{number:02}", memory=1000) for number in range(20)))
        for number in range(20):
            bench.kube.delete_pod(f"b{number}")
        took = await eventually(lambda: len(woken(bench)) == 20, seconds=3.0)
        # Five are woken at once, the other fifteen at twenty a second.
        assert took > 0.6
        assert len(set(woken(bench))) == 20


async def test_the_rate_per_pod_is_limited() -> None:
    """The pod is refused again and again for a reason that the extender does not see, while cards come and go."""
    wake = WakeSettings(pod_seconds=0.4)
    async with running(node("n1"), node("n2", memory=10), wake=wake) as bench:
        await bench.scheduler.place(bench.kube.create(pod("a", memory=1000)), "n1")
        (made,) = await refuse(bench, pod("p", memory=500))
        loop = asyncio.get_running_loop()
        began = loop.time()
        for rounds in range(60):
            bench.kube.annotate_node("n1", {CORDON: None if rounds % 2 else "GPU-n1-0"})
            if "a" in bench.audit.bound():
                bench.kube.delete_pod("a")
            # kube-scheduler offers n2 only: a taint keeps the pod away from n1.
            assert (await bench.scheduler.filter(bench.kube.pod("p"), "n2")).passed == []
            await passes(0.01)
        assert 1 <= woken(bench).count("p") <= 1 + (loop.time() - began) / 0.4
        assert made["metadata"]["name"] == "p"


async def test_one_that_was_woken_in_vain_does_not_stand_before_the_others_for_ever() -> None:
    wake = WakeSettings(pod_seconds=0.2)
    async with running(node("n1"), node("n2", memory=10), bound("a", "n1", "GPU-n1-0", 1000), wake=wake) as bench:
        await refuse(bench, pod("tainted", memory=1000), pod("q", memory=1000))
        bench.kube.delete_pod("a")
        await eventually(lambda: woken(bench) == ["tainted"], seconds=1.0)
        assert (await bench.scheduler.filter(bench.kube.pod("tainted"), "n2")).passed == []
        await eventually(lambda: "q" in woken(bench), seconds=2.0)
        assert await bench.scheduler.place(bench.kube.pod("q")) == "n1"


async def test_who_does_not_come_is_followed_by_another() -> None:
    """The first pod fits, but something else keeps it away, so the card is still free."""
    wake = WakeSettings(pod_seconds=0.2)
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000), wake=wake) as bench:
        await refuse(bench, pod("p", memory=1000), pod("q", memory=1000))
        bench.kube.delete_pod("a")
        await eventually(lambda: woken(bench) == ["p"], seconds=1.0)
        assert (await bench.scheduler.filter(bench.kube.pod("p"))).passed == ["n1"]
        await eventually(lambda: "q" in woken(bench), seconds=2.0)


async def test_a_patch_that_fails_is_made_up_for() -> None:
    wake = WakeSettings(pod_seconds=0.2)
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000), wake=wake) as bench:
        await refuse(bench, pod("p", memory=1000))
        bench.api.faults.add(fault="status", code=500, resource="pods", method="PATCH", nth=1)
        bench.kube.delete_pod("a")
        await eventually(lambda: woken(bench) == ["p"], seconds=2.0)


async def test_10_000_pending_pods_and_one_freed_card_cost_one_patch_and_no_stall() -> None:
    wake = WakeSettings(pod_seconds=0.5)
    pending = [pod(f"p{number:05}", memory=1000) for number in range(10_000)]
    for each in pending:
        each["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    cards = [bound(f"b{number}", "n1", f"GPU-n1-{number}", 1000) for number in range(8)]
    async with running(node("n1", 8), *cards, *pending, wake=wake, http_timeout_seconds=0.5) as bench:
        # They were refused before this process began, which learns of them from their objects.
        await eventually(lambda: len(bench.live.waker._refused) == 10_000)
        await passes(0.2)
        assert woken(bench) == []
        async with stalls() as worst:
            bench.kube.delete_pod("b3")
            took = await eventually(lambda: bench.live.waker.woken == 1, seconds=1.0)
            await passes(2.0)
        patches = woken(bench)
        report(f"woken after {took * 1000:.0f} ms, {len(patches)} patches, longest stall {worst[0] * 1000:.1f} ms")
        # The pod does not come, so each of three rounds wakes it or its successor.
        assert 1 <= len(patches) <= 3
        assert patches[0] == "p00000"
        assert worst[0] < 0.05


async def test_10_000_pods_of_different_demands_do_not_stall_the_loop() -> None:
    pending = [pod(f"p{number:05}", memory=1001 + number) for number in range(10_000)]
    for each in pending:
        each["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    cards = [bound(f"b{number}", "n1", f"GPU-n1-{number}", 1000) for number in range(8)]
    async with running(node("n1", 8), *cards, *pending, http_timeout_seconds=0.5) as bench:
        await eventually(lambda: len(bench.live.waker._refused) == 10_000)
        await passes(0.3)
        async with stalls() as worst:
            bench.kube.delete_pod("b3")
            await passes(1.0)
        report(f"longest stall {worst[0] * 1000:.1f} ms")
        assert woken(bench) == []
        assert worst[0] < 0.05


# -- with a scheduler that runs by itself ------------------------------------------------------------------------------


async def test_no_pod_is_lost_when_only_its_own_updates_bring_it_back() -> None:
    """Forty pods share four cards, each for a moment; the scheduler gets only the pods' own updates."""
    wake = WakeSettings(pod_seconds=0.3, per_second=200)
    async with running(node("n1", 2), node("n2", 2), wake=wake) as bench:
        for number in range(40):
            bench.kube.create(pod(f"p{number:02}", memory=900))
        queue = SchedulingQueue(bench.scheduler, bench.kube)
        running_queue = asyncio.create_task(queue.run())
        done: set[str] = set()

        async def finish() -> None:
            while len(done) < 40:
                for name in list(bench.audit.bound()):
                    bench.kube.set_status(name, {"phase": "Succeeded"})
                    done.add(name)
                await passes(0.01)

        try:
            await asyncio.wait_for(finish(), 20)
        finally:
            running_queue.cancel()
            await asyncio.gather(running_queue, return_exceptions=True)
        patches = len(woken(bench))
        report(f"40 pods, {queue.cycles} cycles, {patches} wakes")
        assert patches <= 80
        await bench.agrees()


async def test_a_restart_takes_up_the_pods_that_the_former_process_owed_a_wake() -> None:
    settings = live_settings()
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000), settings=settings) as bench:
        await refuse(bench, pod("p", memory=500))
        bench.kube.set_status("p", {"conditions": [UNSCHEDULABLE]})
        await bench.extender.kill()
        bench.kube.delete_pod("a")
        await bench.boot()
        await eventually(lambda: woken(bench) == ["p"], seconds=2.0)
