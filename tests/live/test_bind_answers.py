"""The API server's answers to a bind, before and after the write takes effect: sequences (c) and (k).

It exists because a lost answer is not a refusal, and an error does not prove that nothing was written. It must not use
the extender's state to decide what is right. Invariant: success is never answered without a Binding, and after every
scenario the extender's state is the reference's.
"""

import asyncio

import pytest

from accounting.pod_state import PodState
from tests.extender.objects import Json, node
from tests.live.harness import eventually, running
from tests.live.harness_pods import state, whole
from tests.virtual_time import passes

BINDING = "pods/binding"


# -- (c): bind times out after the API accepted ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "reset", "after": True},
        {"fault": "hang", "after": True},
        {"fault": "status", "code": 500, "after": True},
        {"fault": "status", "code": 503, "after": True},
    ],
    ids=["answer-lost", "no-answer", "500-after-the-write", "503-after-the-write"],
)
@pytest.mark.parametrize("watch", [True, False], ids=["watch", "no-watch"])
async def test_c_bind_times_out_after_the_api_accepted(fault: Json, watch: bool) -> None:
    async with running(node("n1"), http_timeout_seconds=0.6) as bench:
        if not watch:
            bench.api.faults.add(fault="drop", resource="pods", verb="watch", event="MODIFIED")
        bench.api.faults.add(resource=BINDING, nth=1, **fault)
        made = bench.kube.create(whole("p"))
        await bench.scheduler.filter(made)
        error = await bench.scheduler.bind(made, "n1")
        # A result that was read back may be answered as success; one that is unknown when time is up is an Error.
        assert error == "" or error.startswith("Unknown")
        assert bench.kube.node_of("p") == "n1"
        assert (await bench.scheduler.filter(bench.kube.create(whole("q")))).passed == []
        await eventually(lambda: state(bench, made) is PodState.ADDED)
        assert await bench.scheduler.bind(made, "n1") == ""
        assert bench.api.requests.count(resource=BINDING) == 1
        bench.api.faults.clear()
        await bench.agrees()


async def test_c_a_bind_without_an_answer_keeps_its_cards_until_that_is_decided() -> None:
    """The write comes long after the bind has answered, and nothing in between gives its card away."""
    async with running(node("n1"), http_timeout_seconds=0.3) as bench:
        reading = bench.api.faults.add(fault="status", code=500, resource="pods", verb="get")
        bench.api.faults.add(fault="latency", seconds=1.2, resource=BINDING, nth=1)
        made, other = (bench.kube.create(whole(name)) for name in "pq")
        await bench.scheduler.filter(made)
        assert (await bench.scheduler.bind(made, "n1")).startswith("Unknown")
        assert bench.kube.node_of("p") is None
        while bench.kube.node_of("p") is None:
            assert state(bench, made) is PodState.ASSUMED
            assert (await bench.scheduler.filter(other)).passed == []
            assert (await bench.scheduler.bind(other, "n1")).startswith("Insufficient")
            await passes(0.02)
        assert reading.hits > 0
        bench.api.faults.clear()
        await bench.agrees()


async def test_c_a_binding_that_never_came_gives_its_cards_back_and_can_come_no_more() -> None:
    async with running(node("n1"), http_timeout_seconds=0.3) as bench:
        bench.api.faults.add(fault="reset", resource=BINDING, nth=1)
        made = bench.kube.create(whole("p"))
        await bench.scheduler.filter(made)
        assert (await bench.scheduler.bind(made, "n1")).startswith("Unknown")
        await eventually(lambda: state(bench, made) is None)
        # The pod has another version now, so the lost Binding names an old one.
        assert bench.kube.pod("p")["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        assert await bench.scheduler.place(bench.kube.pod("p")) == "n1"
        await bench.agrees()


async def test_c_a_late_binding_is_refused_after_its_cards_were_given_back() -> None:
    """The first Binding is on its way for longer than the extender waits; the pod goes to another node meanwhile."""
    async with running(node("n1"), node("n2"), http_timeout_seconds=0.3) as bench:
        bench.api.faults.add(fault="latency", seconds=0.8, resource=BINDING, nth=1)
        made = bench.kube.create(whole("p"))
        await bench.scheduler.filter(made)
        assert (await bench.scheduler.bind(made, "n1")).startswith("Unknown")
        await eventually(lambda: state(bench, made) is None)
        assert await bench.scheduler.bind(bench.kube.pod("p"), "n2") == ""
        other = bench.kube.create(whole("q"))
        assert await bench.scheduler.place(other) == "n1"
        await passes(0.8)
        assert bench.audit.bound() == {"p": "n2", "q": "n1"}
        await bench.agrees()


async def test_c_a_second_bind_waits_for_the_first_ones_outcome() -> None:
    async with running(node("n1"), node("n2"), http_timeout_seconds=2.0) as bench:
        bench.api.faults.add(fault="latency", seconds=0.3, resource=BINDING, after=True, nth=1)
        made = bench.kube.create(whole("p"))
        first = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: bench.kube.node_of("p") == "n1")
        assert (await bench.scheduler.bind(made, "n2")).startswith("AlreadyBound")
        assert await bench.scheduler.bind(made, "n1") == ""
        assert await first == ""
        assert bench.api.requests.count(resource=BINDING) == 1
        await bench.agrees()


async def test_c_a_bind_after_one_without_an_answer_waits_until_that_one_is_settled() -> None:
    async with running(node("n1"), node("n2"), http_timeout_seconds=0.4) as bench:
        bench.api.faults.add(fault="drop", resource="pods", verb="watch", event="MODIFIED")
        bench.api.faults.add(fault="reset", after=True, resource=BINDING, nth=1)
        reading = bench.api.faults.add(fault="status", code=500, resource="pods", verb="get")
        made = bench.kube.create(whole("p"))
        await bench.caught_up()
        assert (await bench.scheduler.bind(made, "n1")).startswith("Unknown")
        # kube-scheduler may choose another node now; nothing is assumed there.
        assert (await bench.scheduler.bind(made, "n2")).startswith("Unknown")
        assert state(bench, made) is PodState.ASSUMED
        again = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await passes(0.1)
        bench.api.faults.remove(reading.id)
        assert await again == ""
        assert (await bench.scheduler.bind(made, "n2")).startswith("AlreadyBound")
        assert bench.api.requests.count(resource=BINDING) == 1
        await bench.agrees()


# -- (k): the API server's answers, before and after the write took effect ---------------------------------------------


@pytest.mark.parametrize("fault", ["409", "429", "500", "reset", "hang", "403"])
@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-the-write"])
async def test_k_the_binding_is_answered_with(fault: str, after: bool) -> None:
    async with running(node("n1"), http_timeout_seconds=0.6) as bench:
        rule: Json = {"fault": "status", "code": int(fault)} if fault.isdigit() else {"fault": fault}
        bench.api.faults.add(resource=BINDING, nth=1, after=after, **rule)
        made, other = (bench.kube.create(whole(name)) for name in "pq")
        await bench.scheduler.filter(made)
        error = await bench.scheduler.bind(made, "n1")
        if not error:
            assert bench.kube.node_of("p") == "n1", "success without a Binding"
        await eventually(lambda: state(bench, made) is not PodState.ASSUMED)
        await bench.agrees()
        # Nothing was lost: either the pod is bound, or it can be placed now.
        assert await bench.scheduler.bind(bench.kube.pod("p"), "n1") == ""
        assert (await bench.scheduler.bind(other, "n1")).startswith("Insufficient")
        assert bench.audit.bound() == {"p": "n1"}
        await bench.agrees()


@pytest.mark.parametrize("fault", ["429", "500", "reset", "hang"])
async def test_k_the_read_after_a_conflict_is_answered_with(fault: str) -> None:
    async with running(node("n1"), http_timeout_seconds=0.6) as bench:
        made = bench.kube.create(whole("p"))
        await bench.caught_up()
        bench.api.faults.add(fault="drop", resource="pods", verb="watch")
        rule: Json = {"fault": "status", "code": int(fault)} if fault.isdigit() else {"fault": fault}
        bench.api.faults.add(resource="pods", verb="get", nth=1, **rule)
        bench.kube.annotate_pod("p", {"test/changed": "1"})
        error = await bench.scheduler.bind(made, "n1")
        assert error == "" or error.startswith("Unknown")
        await eventually(lambda: state(bench, made) is not PodState.ASSUMED)
        assert await bench.scheduler.bind(bench.kube.pod("p"), "n1") == ""
        assert bench.kube.node_of("p") == "n1"


async def test_k_a_pod_that_changed_is_read_and_bound_all_the_same() -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(whole("p"))
        await bench.caught_up()
        bench.api.faults.add(fault="delay", seconds=0.2, resource="pods", verb="watch")
        bench.kube.annotate_pod("p", {"test/changed": "1"})
        before = bench.requests
        assert await bench.scheduler.bind(made, "n1") == ""
        assert bench.requests - before == 3  # Binding, read, Binding
        bench.api.faults.clear()
        await bench.agrees()


async def test_k_a_pod_with_scheduling_gates_is_refused_at_once() -> None:
    async with running(node("n1")) as bench:
        gated = whole("p")
        gated["spec"]["schedulingGates"] = [{"name": "test/gate"}]
        made = bench.kube.create(gated)
        before = bench.requests
        assert (await bench.scheduler.bind(made, "n1")).startswith("Refused: 409")
        assert bench.requests - before <= 3
        assert state(bench, made) is None
        await bench.agrees()


async def test_k_the_api_server_is_not_there() -> None:
    async with running(node("n1", 2), http_timeout_seconds=0.5) as bench:
        made, other = (bench.kube.create(whole(name)) for name in "pq")
        await bench.scheduler.filter(made)
        await bench.caught_up()
        url, port = bench.api.url, int(bench.api.url.rpartition(":")[2])
        await bench.api.stop()
        assert await bench.scheduler.bind(made, "n1") != ""
        # No connection is left by now: nothing is sent, so nothing is unknown.
        assert (await bench.scheduler.bind(other, "n1")).startswith("Refused")
        assert state(bench, other) is None
        await bench.api.start(port=port)
        assert bench.api.url == url
        await eventually(lambda: state(bench, made) is not PodState.ASSUMED)
        for name in "pq":
            assert await bench.scheduler.bind(bench.kube.pod(name), "n1") == ""
        await bench.agrees()
