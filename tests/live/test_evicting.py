"""Evicting where kube-scheduler never asks, on the project's own API server.

It exists because between a refusal and the pod's node lie several writes, and everything may happen between them. It
must not choose victims itself. Invariant: nobody is evicted without need, no card is over-committed, and in the end the
preemptor runs or it was said why not.
"""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from extender.live.evicting.counts import End
from tests.apiserver.beside import Beside
from tests.extender.objects import Json, asks, container, node, pod, quota
from tests.live.harness import eventually, running
from tests.live.harness_evicting import (
    HIGH,
    LOW,
    MIDDLE,
    allow,
    budget,
    evicted,
    evicting,
    holder,
    is_bound,
    kept_for,
    names_left,
    notes,
    queue,
    unevicted_after,
    with_priority,
)
from tests.live.harness_waking import woken
from tests.virtual_time import passes


def high(name: str = "high", memory: int = 500, **how: Any) -> Json:  # noqa: ANN401 - any argument of `pod`
    return with_priority(pod(name, memory=memory, **how), HIGH)


def both(app: str = "") -> list[Json]:
    """Two pods that are both in the way of 800 MiB. `app`: what a budget may select them by."""
    return [holder("one", memory=500, labels={"app": app}), holder("two", memory=400, labels={"app": app})]


APP = asks(1, 100)
SHORTAGES: dict[str, tuple[Json, list[Json], list[str]]] = {
    "memory": (pod("high", memory=500), [holder("a", memory=900)], ["a"]),
    "cores": (
        pod("high", [container("main", asks(1, 100, 60))]),
        [holder("a", memory=100, cores=60), holder("b", memory=100, cores=10)],
        ["a"],
    ),
    "an exclusive card": (
        pod("high", [container("main", asks(1, 100, 100))]),
        [holder("a", memory=100), holder("b", "n2", memory=100), holder("c", "n2", memory=100)],
        ["a"],
    ),
    "a card that somebody has exclusively": (
        pod("high", [container("main", asks(1, 100))]),
        [holder("a", memory=100, cores=100), holder("b", "n2", memory=100, cores=100, priority=MIDDLE)],
        ["a"],
    ),
    "several cards": (
        pod("high", [container("main", asks(2, 700))]),
        [
            holder("a", "n3", memory=500, card=0),
            holder("b", "n3", memory=400, card=1),
            holder("c", "n3", memory=300, card=1, priority=MIDDLE),
            holder("d", "n3", memory=900, card=2, priority=MIDDLE),
        ],
        ["b", "a"],
    ),
    "an init that needs most": (
        pod("high", [container("main", APP)], inits=[container("init", asks(1, 900))]),
        [holder("a", memory=300), holder("b", "n2", memory=300, priority=MIDDLE)],
        ["a"],
    ),
}


@pytest.mark.parametrize("name", SHORTAGES)
async def test_a_pod_gets_what_it_lacks_from_the_least_important(name: str) -> None:
    wanting, holders, expected = SHORTAGES[name]
    nodes = [node("n1"), node("n2"), node("n3", 3)]
    used = {each["spec"]["nodeName"] for each in holders}
    objects = [each for each in nodes if each["metadata"]["name"] in used]
    async with running(*objects, *holders, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(with_priority(wanting, HIGH))
        await is_bound(bench, "high")
        assert sorted(evicted(bench)) == sorted(expected)
        assert names_left(bench) == {each["metadata"]["name"] for each in holders} - set(expected) | {"high"}
        await bench.agrees()
        assert bench.live.evictor.counts.ends[End.BOUND] == 1
        (count,) = {number for bound, number in bench.live.evictor.counts.buckets() if bound == "+Inf"}
        assert count == 1


async def test_events_on_both_sides_say_who_for_whom_and_how_much() -> None:
    async with running(node("n1"), holder("low"), settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(high())
        await is_bound(bench, "high")
        await eventually(lambda: {"Preempting", "Preempted"} <= notes(bench).keys())
        of_high, of_low = notes(bench)["Preempting"], notes(bench)["Preempted"]
        assert (of_high[0], of_low[0]) == ("high", "low")
        assert all(text in of_high[1] for text in ("default/low", "priority 0", "node n1", "900 MiB"))
        assert all(text in of_low[1] for text in ("default/high", f"priority {HIGH}", "900 MiB"))


@pytest.mark.parametrize(
    "spec, settings",
    [({}, {"evicts": False}), ({"preemptionPolicy": "Never"}, {}), ({"priority": LOW}, {}), ({}, {"per_minute": 0})],
    ids=["off", "never", "equal priority", "none a minute"],
)
async def test_who_may_not_evict_does_not(spec: Json, settings: Json) -> None:
    async with running(node("n1"), holder("low"), settings=evicting(**settings)) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        made = high()
        made["spec"] |= spec
        bench.kube.create(made)
        assert await unevicted_after(bench, 30.0)


async def test_only_nodes_that_kube_scheduler_offered_are_chosen() -> None:
    objects = [node("n1"), node("n2"), holder("a"), holder("b", "n2", priority=MIDDLE)]
    async with running(*objects, settings=evicting()) as bench:
        made = bench.kube.create(high())
        # n1 has a taint, say.
        assert (await bench.scheduler.filter(made, "n2")).passed == []
        await eventually(lambda: evicted(bench) == ["b"])
        await eventually(lambda: woken(bench) == ["high"])
        assert await bench.scheduler.place(bench.kube.pod("high"), "n2") == "n2"
        assert names_left(bench) == {"a", "high"}


async def test_what_kube_scheduler_helps_by_itself_is_left_to_it() -> None:
    async with running(node("n1"), holder("low"), settings=evicting()) as bench:
        made = bench.kube.create(high())
        await bench.scheduler.filter(made)
        assert (await bench.scheduler.preempt(made, {"n1": [bench.kube.pod("low")["metadata"]["uid"]]})).keys() == {
            "n1"
        }
        other = bench.kube.create(high("other"))
        await bench.scheduler.filter(other)
        bench.kube.set_status("other", {"nominatedNodeName": "n1"})
        assert await unevicted_after(bench, 60.0)


async def test_victims_take_their_grace_period_and_what_they_free_is_kept_meanwhile() -> None:
    objects = [node("n1"), holder("low", grace_seconds=60)]
    async with running(*objects, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(high())
        await eventually(lambda: evicted(bench) == ["low"])
        await eventually(lambda: bench.kube.pod("low")["metadata"].get("deletionTimestamp") is not None)
        # Those of the same priority find nobody else, and nothing of what will be free.
        bench.kube.create(high("racing", memory=200))
        bench.kube.create(with_priority(pod("small", memory=600), LOW))
        await passes(60.0)
        assert (evicted(bench), names_left(bench)) == (["low"], {"high", "racing", "small"})
        bench.kube.delete_pod("low")
        await is_bound(bench, "high", "n1")
        # Beside it there is room for the smaller one.
        await is_bound(bench, "racing", "n1")
        await passes(10.0)
        assert bench.kube.node_of("small") is None
        assert "small" not in woken(bench)
        await bench.agrees()


async def test_a_higher_priority_is_never_refused_what_is_kept() -> None:
    async with running(node("n1"), holder("low", grace_seconds=60), settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(high())
        await eventually(lambda: evicted(bench) == ["low"])
        higher = bench.kube.create(with_priority(pod("higher", memory=700), HIGH + 1))
        await passes(5.0)
        bench.kube.delete_pod("low")
        await is_bound(bench, "higher", "n1")
        assert higher["spec"]["priority"] > HIGH
        assert bench.kube.node_of("high") is None
        assert evicted(bench) == ["low"]
        await eventually(lambda: bench.live.evictor.counts.ends[End.USELESS] == 1)
        await bench.agrees()


async def test_of_two_that_race_for_one_card_one_gets_it_and_one_victim_goes() -> None:
    async with running(node("n1"), holder("low"), settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        for name in ("first", "second"):
            bench.kube.create(high(name, memory=600))
        await eventually(lambda: any(bench.kube.node_of(name) for name in ("first", "second")))
        await passes(30.0)
        assert [bench.kube.node_of(name) for name in ("first", "second")].count("n1") == 1
        assert evicted(bench) == ["low"]
        await bench.agrees()


async def test_a_quota_is_helped_by_pods_of_its_namespace_alone() -> None:
    limit = quota({"limits.nvidia.com/gpumem": "1000"})
    mine = holder("mine", "n1", 900, priority=MIDDLE)
    objects = [node("n1"), node("n2"), limit, mine, holder("other", "n2", 900, namespace="team")]
    async with running(*objects, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(high())
        await is_bound(bench, "high", "n1")
        assert evicted(bench) == ["mine"]


# -- budgets and the API server's refusals -----------------------------------------------------------------------------


async def test_a_budget_that_allows_one_lets_one_go_and_the_other_when_it_allows_it_again() -> None:
    objects = [node("n1"), *both("web"), budget(1, app="web")]
    async with running(*objects, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        await eventually(lambda: bench.live.cluster.residents.budgets.known)
        bench.kube.create(high(memory=800))
        await eventually(lambda: len(evicted(bench)) > 3)
        left = names_left(bench) - {"high"}
        assert len(left) == 1
        # What the one that went has left is not for others, though the pod does not fit yet.
        bench.kube.create(with_priority(pod("small", memory=250), LOW))
        await passes(20.0)
        assert bench.kube.node_of("small") is None
        assert names_left(bench) == {"high", "small", *left}
        allow(bench, 1)
        await is_bound(bench, "high", "n1")
        assert bench.live.evictor.counts.victims == 2
        assert bench.live.evictor.counts.not_accepted >= 3
        assert bench.kube.node_of("small") is None
        await bench.agrees()


async def test_whom_no_budget_guards_goes_before_whom_one_does() -> None:
    objects = [
        node("n1"),
        node("n2"),
        holder("guarded", labels={"app": "web"}),
        holder("free", "n2", priority=MIDDLE),
        budget(0, app="web"),
    ]
    async with running(*objects, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        await eventually(lambda: bench.live.cluster.residents.budgets.known)
        bench.kube.create(high())
        await is_bound(bench, "high", "n2")
        assert evicted(bench) == ["free"]


async def test_who_is_guarded_is_asked_first_so_that_a_no_costs_nobody_else() -> None:
    objects = [
        node("n1"),
        holder("guarded", memory=400, labels={"app": "web"}),
        holder("free", memory=500, priority=MIDDLE),
        budget(0, app="web"),
    ]
    async with running(*objects, settings=evicting(timeout_seconds=60.0)) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        await eventually(lambda: bench.live.cluster.residents.budgets.known)
        bench.kube.create(high(memory=900))
        await eventually(lambda: bench.live.evictor.counts.ends[End.TIMEOUT] == 1)
        assert set(evicted(bench)) == {"guarded"}
        assert names_left(bench) == {"guarded", "free", "high"}
        await eventually(lambda: "PreemptionGivenUp" in notes(bench))
        assert "disruption budget" in notes(bench)["PreemptionGivenUp"][1]


async def test_what_is_not_accepted_is_tried_again_later_each_time_and_not_before_it_was_said() -> None:
    async with running(node("n1"), holder("low"), settings=evicting()) as bench, Beside() as beside:
        times: list[float] = []
        loop = asyncio.get_running_loop()

        async def note_times() -> None:
            while True:
                await eventually(lambda: len(evicted(bench)) > len(times))
                times.append(loop.time())

        bench.api.faults.add(fault="status", code=429, resource="pods/eviction", times=4)
        bench.api.faults.add(
            fault="status", code=429, resource="pods/eviction", skip=4, times=1, retry_after_seconds=20
        )
        beside.start(note_times())
        beside.start(queue(bench).run())
        bench.kube.create(high())
        await is_bound(bench, "high")
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert len(pauses) == 5
        for tried, pause in enumerate(pauses[:4]):
            # Half of it at least, and a look more at most.
            assert 0.5 * 2**tried <= pause <= 2**tried + 1.0
        assert 20.0 <= pauses[4] <= 21.0


@pytest.mark.parametrize("code, target", [(403, "pods/eviction"), (422, "pods")])
async def test_what_the_api_server_takes_from_nobody_is_given_up_and_said(code: int, target: str) -> None:
    async with running(node("n1"), holder("low"), settings=evicting()) as bench, Beside() as beside:
        rule = bench.api.faults.add(
            fault="status", code=code, resource=target, method="POST" if "/" in target else "PATCH"
        )
        beside.start(queue(bench).run())
        bench.kube.create(high())
        await eventually(lambda: bench.live.evictor.counts.ends[End.REFUSED] == 1)
        await eventually(lambda: bench.live.evictor.under_way == 0)
        assert names_left(bench) == {"low", "high"}
        await eventually(lambda: "PreemptionGivenUp" in notes(bench))
        assert kept_for(bench, "high") is None
        bench.api.faults.remove(rule.id)
        # It is tried again.
        await is_bound(bench, "high")


# -- what happens half-way ---------------------------------------------------------------------------------------------


async def test_for_a_pod_that_was_deleted_nobody_else_goes_and_nothing_is_kept() -> None:
    objects = [node("n1"), *both("web"), budget(1, app="web")]
    async with running(*objects, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        await eventually(lambda: bench.live.cluster.residents.budgets.known)
        bench.kube.create(high(memory=800))
        await eventually(lambda: len(evicted(bench)) > 1)
        bench.kube.delete_pod("high")
        await eventually(lambda: bench.live.evictor.under_way == 0)
        allow(bench, 5)
        bench.kube.create(with_priority(pod("small", memory=300), LOW))
        await is_bound(bench, "small")
        await passes(60.0)
        assert len(names_left(bench)) == 2
        assert bench.live.evictor.counts.ends[End.GONE] == 1


async def test_a_victim_that_ends_by_itself_is_not_evicted_and_saves_another() -> None:
    objects = [node("n1"), *both("web"), budget(0, app="web")]
    async with running(*objects, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        await eventually(lambda: bench.live.cluster.residents.budgets.known)
        bench.kube.create(high(memory=600))
        await eventually(lambda: len(evicted(bench)) > 1)
        # Without this one the pod fits.
        bench.kube.delete_pod("one")
        await is_bound(bench, "high")
        assert names_left(bench) == {"two", "high"}
        assert bench.live.evictor.counts.victims == 0


@pytest.mark.parametrize("accepted", [True, False], ids=["after the eviction", "before it was accepted"])
async def test_a_process_that_ends_half_way_leaves_the_next_one_what_it_needs(accepted: bool) -> None:
    objects = [node("n1"), holder("low", grace_seconds=60, labels={"app": "web"}), budget(int(accepted), app="web")]
    async with running(*objects, settings=evicting()) as bench:
        await eventually(lambda: bench.live.cluster.residents.budgets.known)
        made = bench.kube.create(high())
        bench.kube.set_status("high", {"conditions": [{"type": "PodScheduled", "status": "False"}]})
        await bench.scheduler.filter(made)
        await eventually(lambda: evicted(bench) == ["low"])
        await bench.restart()
        if not accepted:
            # Nobody is evicted before kube-scheduler has offered the node once more.
            allow(bench, 1)
            await passes(30.0)
            assert evicted(bench) == ["low"]
            assert "high" in woken(bench)
            assert not (await bench.scheduler.filter(bench.kube.pod("high"))).passed
            await eventually(lambda: evicted(bench) == ["low", "low"])
        bench.kube.delete_pod("low")
        await eventually(lambda: "high" in woken(bench))
        await bench.caught_up()
        small = bench.kube.create(with_priority(pod("small", memory=600), LOW))
        assert not (await bench.scheduler.filter(small)).passed
        assert await bench.scheduler.place(bench.kube.pod("high")) == "n1"
        assert evicted(bench) == ["low"] * (1 if accepted else 2)
        await bench.agrees()


async def test_a_preemption_that_does_not_help_in_its_time_is_given_up_and_keeps_nothing() -> None:
    async with running(node("n1"), holder("low"), settings=evicting(timeout_seconds=60.0)) as bench:
        made = bench.kube.create(high())
        await bench.scheduler.filter(made)
        await eventually(lambda: evicted(bench) == ["low"])
        small = bench.kube.create(with_priority(pod("small", memory=600), LOW))
        await bench.caught_up()
        assert not (await bench.scheduler.filter(small)).passed
        # Something else than cards keeps the pod out, so kube-scheduler does not bind it.
        assert 55.0 <= await eventually(lambda: bench.live.evictor.counts.ends[End.TIMEOUT] == 1) <= 65.0
        await eventually(lambda: kept_for(bench, "high") is None)
        await eventually(lambda: "PreemptionGivenUp" in notes(bench))
        await bench.caught_up()
        assert await bench.scheduler.place(small) == "n1"


async def test_an_annotation_whose_time_is_over_is_taken_off_and_one_that_nobody_wrote_keeps_nothing() -> None:
    over = '{"node":"n1","until":"2020-01-01T00:00:00Z","victims":[]}'
    async with running(node("n1"), settings=evicting()) as bench:
        bench.kube.create(high("old", annotations={"gpu-extender.io/preempting": over}))
        bench.kube.create(high("odd", annotations={"gpu-extender.io/preempting": '{"node":7}'}))
        await eventually(lambda: kept_for(bench, "old") is None)
        await bench.caught_up()
        assert bench.live.cluster.nominations.nodes() == []
        assert kept_for(bench, "odd") is not None


async def test_where_evicting_is_off_the_annotation_keeps_nothing() -> None:
    text = '{"node":"n1","until":"2999-01-01T00:00:00Z","victims":[]}'
    async with running(node("n1"), settings=evicting(evicts=False)) as bench:
        bench.kube.create(high("old", memory=900, annotations={"gpu-extender.io/preempting": text}))
        await bench.caught_up()
        assert await bench.scheduler.place(bench.kube.create(pod("small", memory=900))) == "n1"


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_while_the_stop_file_exists_nobody_goes(tmp_path_factory: pytest.TempPathFactory) -> None:
    stop = tmp_path_factory.mktemp("stop") / "stop"
    stop.touch()
    async with running(node("n1"), *both(), settings=evicting(stop_file=str(stop))) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(high(memory=800))
        assert await unevicted_after(bench, 60.0)
        assert kept_for(bench, "high") is None
        stop.unlink()
        await is_bound(bench, "high")


async def test_the_stop_file_stops_a_preemption_half_way(tmp_path_factory: pytest.TempPathFactory) -> None:
    stop = tmp_path_factory.mktemp("stop") / "stop"
    settings = evicting(stop_file=str(stop), per_minute=1)
    async with running(node("n1"), *both(), settings=settings) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(high(memory=800))
        await eventually(lambda: len(evicted(bench)) == 1)
        stop.touch()
        await passes(90.0)
        assert len(evicted(bench)) == 1
        stop.unlink()
        await is_bound(bench, "high")


async def test_no_more_are_evicted_in_a_minute_than_allowed() -> None:
    holders = [holder(f"low-{at}", f"n{at}") for at in range(5)]
    nodes = [node(f"n{at}") for at in range(5)]
    async with running(*nodes, *holders, settings=evicting(per_minute=2)) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        for at in range(5):
            bench.kube.create(high(f"high-{at}", memory=600))
        await eventually(lambda: len(evicted(bench)) == 2)
        assert await unevicted_after(bench, 55.0, already=2)
        await eventually(lambda: len(evicted(bench)) == 4)
        assert await unevicted_after(bench, 55.0, already=4)
        await eventually(lambda: all(bench.kube.node_of(f"high-{at}") for at in range(5)))
        assert sorted(evicted(bench)) == [f"low-{at}" for at in range(5)]


async def test_many_at_once_each_get_one_card_and_nobody_goes_without_need() -> None:
    holders = [holder(f"low-{at:02}", f"n{at:02}") for at in range(12)]
    nodes = [node(f"n{at:02}") for at in range(12)]
    async with running(*nodes, *holders, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        for at in range(9):
            bench.kube.create(high(f"high-{at}", memory=600))
        await eventually(lambda: all(bench.kube.node_of(f"high-{at}") for at in range(9)))
        await passes(30.0)
        assert len(evicted(bench)) == len(set(evicted(bench))) == 9
        await bench.agrees()
