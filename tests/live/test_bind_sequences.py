"""Sequences of filter, bind, API answers and watch events, in every order that has been seen or is feared.

It exists because each of these orders has given a card away twice somewhere. It must not use the extender's state to
decide what is right, but the API server's pods on nodes, with their annotations. Invariant: after every scenario the
extender's state is the reference's, and no card was over-committed after any write.
"""

import asyncio

import pytest

from accounting.pod_state import PodState
from extender.convert.annotations import RETRY_AT
from tests.extender.objects import ALLOCATION, card, node, pod, rows
from tests.live.harness import eventually, running
from tests.live.harness_pods import bound_by_card, state, whole
from tests.live.harness_scheduler import Scheduler
from tests.virtual_time import passes

BINDING = "pods/binding"


# -- (a) and (b): two filters before the first bind --------------------------------------------------------------------


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids=["a-filter-A-filter-B-bind-A", "b-bind-order-reversed"])
async def test_a_and_b_two_filters_before_the_first_bind_with_room_for_one(order: tuple[str, str]) -> None:
    async with running(node("n1")) as bench:
        pods = {name: bench.kube.create(whole(name)) for name in "ab"}
        for name in "ab":
            assert (await bench.scheduler.filter(pods[name])).passed == ["n1"]
        first, second = order
        assert await bench.scheduler.bind(pods[first], "n1") == ""
        assert (await bench.scheduler.bind(pods[second], "n1")).startswith("Insufficient")
        assert bench.audit.bound() == {first: "n1"}
        await bench.agrees()
        # The pod that lost is asked about again, is refused, and is not lost.
        assert (await bench.scheduler.filter(pods[second])).passed == []
        bench.kube.delete_pod(first)
        await eventually(lambda: RETRY_AT in bench.kube.pod(second)["metadata"].get("annotations", {}))
        assert await bench.scheduler.place(bench.kube.pod(second)) == "n1"


async def test_a_and_b_two_binds_at_once_with_room_for_one() -> None:
    async with running(node("n1")) as bench:
        pods = [bench.kube.create(whole(name)) for name in "ab"]
        answers = await asyncio.gather(*(bench.scheduler.bind(each, "n1") for each in pods))
        assert sorted(bool(answer) for answer in answers) == [False, True]
        assert len(bench.audit.bound()) == 1
        await bench.agrees()


# -- (d) and (e): filter without bind, refilter ------------------------------------------------------------------------


async def test_d_filter_without_bind_leaves_a_claim_that_ends_by_age() -> None:
    async with running(node("n1"), node("n2")) as bench:
        made, other = (bench.kube.create(whole(name)) for name in "pq")
        claimed = await bench.scheduler.choose(made)
        assert claimed is not None
        assert bench.live.claims is not None
        assert len(bench.live.claims) == 1
        elsewhere = {"n1": "n2", "n2": "n1"}[claimed]
        # The claim moves the other pod to another node, and refuses nothing.
        assert sorted((await bench.scheduler.filter(other)).passed) == ["n1", "n2"]
        assert (await bench.scheduler.prioritize(other, "n1", "n2"))[elsewhere] == 10
        await passes(2.1)
        assert (await bench.scheduler.prioritize(other, "n1", "n2"))["n1"] == 10
        assert bench.audit.holding() == {}
        await bench.agrees()


async def test_e_refilter_with_a_smaller_list() -> None:
    async with running(*(node(f"n{number}") for number in range(4))) as bench:
        made = bench.kube.create(whole("p"))
        first = await bench.scheduler.choose(made)
        assert first is not None
        rest = sorted({"n0", "n1", "n2", "n3"} - {first})[:2]
        assert sorted((await bench.scheduler.filter(made, *rest)).passed) == rest
        second = max((await bench.scheduler.prioritize(made, *rest)).items(), key=lambda entry: entry[1])[0]
        assert second in rest
        assert bench.live.claims is not None
        assert bench.live.claims.node_of(made["metadata"]["uid"]) == second
        assert await bench.scheduler.bind(made, second) == ""
        await bench.agrees()


async def test_e_refilter_with_one_node_that_does_not_fit_ends_the_claim() -> None:
    async with running(node("n1"), node("n2", memory=10)) as bench:
        made = bench.kube.create(whole("p"))
        assert await bench.scheduler.choose(made) == "n1"
        assert bench.live.claims is not None
        assert len(bench.live.claims) == 1
        assert (await bench.scheduler.filter(made, "n2")).passed == []
        assert len(bench.live.claims) == 0


# -- (f): pod deleted between ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", [True, False], ids=["the-watch-has-told", "the-watch-is-late"])
async def test_f_pod_deleted_between_filter_and_bind(seen: bool) -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(whole("p"))
        assert (await bench.scheduler.filter(made)).passed == ["n1"]
        if not seen:
            await bench.caught_up()
            bench.api.faults.add(fault="delay", seconds=0.3, resource="pods", verb="watch")
        bench.kube.delete_pod("p")
        if seen:
            await bench.caught_up()
        error = await bench.scheduler.bind(made, "n1")
        assert error.startswith("Gone" if seen else ("Gone", "Refused"))
        bench.api.faults.clear()
        await eventually(lambda: bench.live.cluster.pods() == [])
        await bench.agrees()


async def test_f_pod_deleted_with_a_grace_period_between_filter_and_bind() -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(whole("p") | {"metadata": {"name": "p", "finalizers": ["test/hold"]}})
        assert (await bench.scheduler.filter(made)).passed == ["n1"]
        bench.kube.delete_pod("p")
        assert (await bench.scheduler.bind(made, "n1")).startswith("Gone")
        assert bench.audit.bound() == {}
        await bench.agrees()


async def test_f_pod_deleted_while_its_binding_is_in_flight() -> None:
    async with running(node("n1")) as bench:
        bench.api.faults.add(fault="latency", seconds=0.2, resource=BINDING)
        made = bench.kube.create(whole("p"))
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: state(bench, made) is PodState.ASSUMED)
        bench.kube.delete_pod("p")
        assert await binding != ""
        assert await bench.scheduler.place(bench.kube.create(whole("q"))) == "n1"
        await bench.agrees()


async def test_f_pod_recreated_with_the_same_name_while_the_bind_is_in_flight() -> None:
    async with running(node("n1"), node("n2")) as bench:
        bench.api.faults.add(fault="latency", seconds=0.2, resource=BINDING, nth=1)
        old = bench.kube.create(whole("p"))
        binding = asyncio.create_task(bench.scheduler.bind(old, "n1"))
        await eventually(lambda: state(bench, old) is PodState.ASSUMED)
        new = bench.kube.recreate(whole("p"))
        assert await bench.scheduler.bind(new, "n2") == ""
        assert (await binding).startswith(("Gone", "Refused"))
        assert bench.kube.node_of("p") == "n2"
        assert state(bench, old) is None
        await bench.agrees()
        assert (await bench.scheduler.bind(old, "n1")).startswith("Gone")


async def test_f_what_the_watch_tells_late_of_the_old_pod_does_not_end_the_new_ones_booking() -> None:
    async with running(node("n1")) as bench:
        old = bench.kube.create(whole("p"))
        await bench.caught_up()
        bench.api.faults.add(fault="delay", seconds=0.05, resource="pods", verb="watch")
        # Five events of the old pod are on their way when the new one is bound.
        for number in range(4):
            bench.kube.annotate_pod("p", {"test/number": str(number)})
        new = bench.kube.recreate(whole("p"))
        assert (await bench.scheduler.filter(new)).passed == ["n1"]
        assert await bench.scheduler.bind(new, "n1") == ""
        other = bench.kube.create(whole("q"))
        while state(bench, new) is not PodState.ADDED:
            assert state(bench, new) is PodState.BOUND
            assert (await bench.scheduler.filter(other)).passed == []
            await passes(0.01)
        assert state(bench, old) is None
        bench.api.faults.clear()
        await bench.agrees()


# -- (g): restarts -----------------------------------------------------------------------------------------------------


async def test_g_restart_between_filter_and_bind() -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(whole("p"))
        assert (await bench.scheduler.filter(made)).passed == ["n1"]
        await bench.restart()
        assert await bench.scheduler.bind(made, "n1") == ""
        assert bench.kube.node_of("p") == "n1"
        await bench.agrees()


async def test_g_restart_between_filter_and_bind_of_a_pod_that_the_new_process_was_not_told_of() -> None:
    """It was created after the new process had listed, and the old one answered its filter while it ended."""
    async with running(node("n1")) as bench:
        old = bench.extender
        await bench.boot()
        bench.api.faults.add(fault="drop", resource="pods", verb="watch")
        made = bench.kube.create(whole("p"))
        assert (await Scheduler(old.session, bench.kube).filter(made)).passed == ["n1"]
        await old.kill()
        assert await bench.scheduler.bind(made, "n1") == ""
        assert bench.audit.uuids("p") == ["GPU-n1-0"]
        assert state(bench, made) is PodState.BOUND


async def test_g_restart_between_binding_and_watch_event() -> None:
    async with running(node("n1")) as bench:
        bench.api.faults.add(fault="drop", resource="pods", verb="watch", event="MODIFIED")
        made = bench.kube.create(whole("p"))
        await bench.scheduler.place(made)
        assert state(bench, made) is PodState.BOUND
        await bench.restart()
        bench.api.faults.clear()
        assert state(bench, made) is PodState.ADDED
        assert await bench.scheduler.bind(made, "n1") == ""
        assert (await bench.scheduler.filter(bench.kube.create(whole("q")))).passed == []
        await bench.agrees()


async def test_g_restart_with_a_binding_in_flight() -> None:
    """The old process is dead; its Binding arrives after the new one has listed everything."""
    async with running(node("n1")) as bench:
        bench.api.faults.add(fault="latency", seconds=0.4, resource=BINDING, nth=1)
        made = bench.kube.create(whole("p"))
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: bench.api.requests.count(resource=BINDING) == 1)
        old = bench.extender
        await bench.boot()
        await old.kill()
        await asyncio.gather(binding, return_exceptions=True)
        again = await bench.scheduler.bind(made, "n1")
        await eventually(lambda: bench.kube.node_of("p") == "n1")
        assert again == "" or again.startswith("Unknown")
        assert await bench.scheduler.bind(made, "n1") == ""
        await bench.agrees()


# -- (h): delete event seen by the scheduler first ---------------------------------------------------------------------


async def test_h_delete_event_seen_by_the_scheduler_first() -> None:
    """The scheduler's filter comes before our watch shows the deletion, is refused, and no further question follows."""
    async with running(node("n1")) as bench:
        first, second = (bench.kube.create(whole(name)) for name in "ab")
        await bench.scheduler.place(first)
        await bench.caught_up()
        bench.api.faults.add(fault="delay", seconds=0.1, resource="pods", verb="watch")
        bench.kube.delete_pod("a")
        assert (await bench.scheduler.filter(second)).passed == []
        bench.api.faults.clear()
        await eventually(lambda: RETRY_AT in bench.kube.pod("b")["metadata"].get("annotations", {}), seconds=1.0)
        assert await bench.scheduler.place(bench.kube.pod("b")) == "n1"
        await bench.agrees()


# -- (i): two schedulers -----------------------------------------------------------------------------------------------


async def test_i_two_schedulers_in_parallel() -> None:
    async with running(*(node(f"n{number}", 2) for number in range(4))) as bench:
        pods = [bench.kube.create(pod(f"p{number}", memory=400)) for number in range(40)]
        second = Scheduler(bench.extender.session, bench.kube, seed=1)
        results = await asyncio.gather(bench.scheduler.burst(pods[:20]), second.burst(pods[20:]))
        placed = sum(each.ok for found in results for each in found)
        # 8 cards take two pods of 400 each.
        assert placed == len(bench.audit.bound()) <= 16
        assert all(len(on) <= 2 for on in bound_by_card(bench).values())
        await bench.agrees()


async def test_i_two_schedulers_bind_one_pod_to_different_nodes() -> None:
    async with running(node("n1"), node("n2")) as bench:
        made = bench.kube.create(whole("p"))
        answers = await asyncio.gather(*(bench.scheduler.bind(made, name) for name in ("n1", "n2")))
        assert sorted(answer.partition(":")[0] for answer in answers) == ["", "AlreadyBound"]
        await bench.agrees()


async def test_i_another_scheduler_binds_the_pod_without_cards() -> None:
    """The other scheduler wrote no allocation: the pod's node is blocked, and our assumption does not count."""
    async with running(node("n1")) as bench:
        bench.api.faults.add(fault="latency", seconds=0.1, resource=BINDING, nth=1)
        made = bench.kube.create(whole("p"))
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: state(bench, made) is PodState.ASSUMED)
        bench.kube.bind("p", "n1")
        assert await binding == ""
        await bench.agrees()
        other = await bench.scheduler.filter(bench.kube.create(pod("q", memory=1)))
        assert other.failed["n1"].startswith("AllocationUnreadable")


async def test_i_the_record_after_a_conflict_is_what_the_annotation_says() -> None:
    cards = [card("GPU-a", 0), card("GPU-b", 1)]
    async with running(node("n1", cards)) as bench:
        bench.api.faults.add(fault="latency", seconds=0.1, resource=BINDING, nth=1)
        made = bench.kube.create(whole("p"))
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: state(bench, made) is PodState.ASSUMED)
        assumed = bench.live.cluster.cache.pods[made["metadata"]["uid"]].peak[0].uuid
        other = {"GPU-a": "GPU-b", "GPU-b": "GPU-a"}[assumed]
        bench.kube.bind("p", "n1", {ALLOCATION: rows([(other, 700, 0)])})
        assert await binding == ""
        await bench.agrees()
        record = bench.live.cluster.cache.pods[made["metadata"]["uid"]]
        assert [(use.uuid, use.memory) for use in record.held] == [(other, 700)]


# -- (j): many at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reorder", [False, True], ids=["in-order", "answers-reordered"])
async def test_j_64_concurrent_binds_on_one_node(reorder: bool) -> None:
    async with running(node("n1", 8)) as bench:
        if reorder:
            bench.api.faults.add(fault="reorder", size=8, resource=BINDING)
        pods = [bench.kube.create(pod(f"p{number:02}", memory=240)) for number in range(64)]
        await bench.caught_up()
        for made in pods:
            assert (await bench.scheduler.filter(made)).passed == ["n1"]
        answers = await asyncio.gather(*(bench.scheduler.bind(made, "n1") for made in pods))
        # 8 cards of 1000 take four pods of 240 each.
        assert answers.count("") == 32 == len(bench.audit.bound())
        assert {answer.partition(":")[0] for answer in answers if answer} == {"InsufficientMemory"}
        assert all(len(on) == 4 for on in bound_by_card(bench).values())
        await bench.agrees()
