"""What a bind writes, and that no watch event or list takes it away.

It exists because the Binding is the write that gives out cards. It must not test when a bind succeeds. Invariant: the
first version of a pod that has a node has its cards.
"""

import asyncio
import json

import pytest

from accounting.pod_state import PodState
from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.convert.annotations import BIND_PHASE, BIND_TIME, MIG, NODE, TIME, first_illegal_key
from tests.apiserver.resources import PODS
from tests.builders import app, make_allocation, make_node, make_pod
from tests.extender.objects import ALLOCATION, Json, asks, container, node, pod, rows, sidecar
from tests.live.harness import Bench, Extender, eventually, running
from tests.live.harness_pods import state, whole
from tests.live.harness_scheduler import Scheduler
from tests.virtual_time import passes

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
SCHEDULER_KEYS = (NODE, TIME, TO_ALLOCATE, ALLOCATION, MIG, BIND_PHASE, BIND_TIME)
BINDING = "pods/binding"


# -- what is written ---------------------------------------------------------------------------------------------------


def binding_seen(bench: Bench) -> list[Json]:
    """Record every Binding that the API server gets from now on."""
    seen: list[Json] = []
    bind = bench.api.registry.bind

    def spy(call: object, binding: Json) -> None:
        seen.append(json.loads(json.dumps(binding)))
        bind(call, binding)  # type: ignore[arg-type]

    bench.api.registry.bind = spy  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("lock_mode", [False, True], ids=["none", "hami"])
async def test_one_binding_carries_everything(lock_mode: bool) -> None:
    async with running(node("n1"), lock_mode=lock_mode) as bench:
        seen = binding_seen(bench)
        made = bench.kube.create(pod("p", memory=300))
        await bench.scheduler.place(made)
        (binding,) = seen
        meta = binding["metadata"]
        assert (meta["uid"], meta["resourceVersion"]) == (
            made["metadata"]["uid"],
            made["metadata"]["resourceVersion"],
        )
        assert binding["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        written = meta["annotations"]
        text = rows([("GPU-n1-0", 300, 0)])
        assert written.keys() == set(SCHEDULER_KEYS)
        assert (written[ALLOCATION], written[TO_ALLOCATE], written[NODE]) == (text, text, "n1")
        assert written[MIG] == ""
        assert written[TIME].isdigit()
        assert written[BIND_PHASE] == ("allocating" if lock_mode else "")
        assert written[BIND_TIME].isdigit() is lock_mode
        assert meta["labels"] == {NODE: "n1"}
        # One write: the first version of the pod that has a node has its cards.
        versions = [event.row.decode() for event in bench.api.store.tables[PODS].history.after(0)]
        first = next(version for version in versions if version["spec"].get("nodeName"))
        assert first["metadata"]["annotations"][ALLOCATION] == text


async def test_forged_scheduler_annotations_are_blanked_by_the_binding() -> None:
    async with running(node("n1", 2)) as bench:
        forged = dict.fromkeys(SCHEDULER_KEYS, rows([("GPU-n1-1", 1, 0)])) | {NODE: "n9"}
        made = pod("p", memory=300, annotations=forged)
        made["metadata"]["labels"] = {NODE: "n9"}
        await bench.scheduler.place(bench.kube.create(made))
        meta = bench.kube.pod("p")["metadata"]
        (uuid,) = bench.audit.uuids("p")
        assert meta["annotations"][ALLOCATION] == rows([(uuid, 300, 0)])
        assert {key: meta["annotations"][key] for key in (MIG, BIND_PHASE, BIND_TIME)} == dict.fromkeys(
            (MIG, BIND_PHASE, BIND_TIME), ""
        )
        assert (meta["annotations"][NODE], meta["labels"][NODE]) == ("n1", "n1")
        await bench.agrees()


async def test_a_node_name_that_is_no_label_value_leaves_the_label_blank() -> None:
    long = f"{'a' * 40}.{'b' * 40}"
    async with running(node(long)) as bench:
        made = pod("p", memory=300)
        made["metadata"]["labels"] = {NODE: "forged"}
        await bench.scheduler.place(bench.kube.create(made))
        meta = bench.kube.pod("p")["metadata"]
        assert (meta["labels"][NODE], meta["annotations"][NODE]) == ("", long)


def test_keys_that_the_api_server_would_store_and_then_refuse() -> None:
    legal = ("a", "a.b/c_D-e.f", "hami.io/vgpu-node", f"{'a' * 63}.b/{'n' * 63}")
    assert first_illegal_key(legal) is None
    for key in ("", "/a", "a/", "A.b/c", "a/b/c", "-a", "a/b c", f"a/{'n' * 64}", f"{'a.' * 127}b/n"):
        assert first_illegal_key((*legal, key)) == key


async def test_a_forged_allocation_of_a_pending_pod_counts_nothing() -> None:
    async with running(node("n1")) as bench:
        bench.kube.create(pod("forged", annotations={ALLOCATION: rows([("GPU-n1-0", 1000, 0)])}))
        await bench.caught_up()
        assert await bench.scheduler.place(bench.kube.create(whole("p"))) == "n1"
        await bench.agrees()


def test_a_booked_pod_is_not_forgotten_when_filter_asks_about_many_others() -> None:
    cluster = Cluster(Settings(), remembered_pods=2)
    cluster.cache.add_node(make_node("n1"))
    asked = make_pod("p", [app(100)])
    cluster.remember(asked)
    cluster.registry.assume(asked._replace(node="n1", allocation=make_allocation([("GPU-0", 100, 0)])))
    for number in range(5):
        cluster.remember(make_pod(f"other-{number}", [app(100)]))
    assert cluster.cache.state(asked.uid) is PodState.ASSUMED
    assert cluster.pod(asked.uid) is not None


@pytest.mark.parametrize("told_by", ["watch", "filter"])
async def test_oversized_annotations_are_refused_before_binding(told_by: str) -> None:
    async with running(node("n1")) as bench:
        if told_by == "filter":
            bench.api.faults.add(fault="drop", resource="pods", verb="watch")
        made = bench.kube.create(pod("p", annotations={"test/large": "x" * (256 * 1024 - 30)}))
        assert (await bench.scheduler.filter(made)).passed == ["n1"]
        if told_by == "watch":
            await bench.caught_up()
        assert (await bench.scheduler.bind(made, "n1")).startswith("AnnotationsTooLarge")
        assert bench.api.requests.count(resource=BINDING) == 0
        assert bench.audit.bound() == {}
        if told_by == "watch":
            await bench.agrees()


async def test_a_large_pod_that_just_fits_can_still_be_updated() -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(pod("p", annotations={"test/large": "x" * 250_000}))
        await bench.scheduler.place(made)
        bench.kube.set_status("p", {"phase": "Running"})
        await bench.agrees()


async def test_the_same_bind_twice_has_the_same_answer_and_one_binding() -> None:
    async with running(node("n1"), node("n2")) as bench:
        made = bench.kube.create(whole("p"))
        assert await asyncio.gather(*(bench.scheduler.bind(made, "n1") for _ in range(3))) == ["", "", ""]
        assert await bench.scheduler.bind(made, "n1") == ""
        assert (await bench.scheduler.bind(made, "n2")).startswith("AlreadyBound")
        await bench.caught_up()
        assert await bench.scheduler.bind(made, "n1") == ""
        assert bench.api.requests.count(resource=BINDING) == 1
        await bench.agrees()


async def test_the_same_refused_bind_twice_has_the_same_answer() -> None:
    async with running(node("n1")) as bench:
        await bench.scheduler.place(bench.kube.create(whole("p")))
        made = bench.kube.create(whole("q"))
        first, second = [await bench.scheduler.bind(made, "n1") for _ in range(2)]
        assert first == second
        assert first.startswith("InsufficientMemory")
        unknown = await bench.scheduler.bind({"metadata": made["metadata"] | {"uid": "other"}}, "n1")
        assert unknown.startswith("Gone")
        assert (await bench.scheduler.bind(made, "n9")).startswith("NodeUnknown")


async def test_stale_watch_events_never_take_a_booking_away() -> None:
    """The pod is read as bound; then events from before its Binding come, one by one."""
    async with running(node("n1"), http_timeout_seconds=1.0) as bench:
        made = bench.kube.create(whole("p"))
        await bench.caught_up()
        bench.api.faults.add(fault="delay", seconds=0.05, resource="pods", verb="watch")
        for number in range(5):
            bench.kube.annotate_pod("p", {"test/number": str(number)})
        # The conflict makes bind read the pod; the lost answer makes it read again: it is added before the watch tells.
        bench.api.faults.add(fault="reset", after=True, resource=BINDING, nth=2)
        assert await bench.scheduler.bind(made, "n1") == ""
        assert state(bench, made) is PodState.ADDED
        other = bench.kube.create(whole("q"))
        for _ in range(40):
            assert state(bench, made) is PodState.ADDED
            assert (await bench.scheduler.filter(other)).passed == []
            await passes(0.01)
        bench.api.faults.clear()
        await bench.agrees()


async def test_a_list_that_is_older_than_a_bind_does_not_end_it() -> None:
    async with running(node("n1"), http_timeout_seconds=2.0) as bench:
        bench.api.faults.add(fault="latency", seconds=0.3, resource=BINDING, nth=1)
        bench.api.faults.add(fault="latency", seconds=0.2, after=True, resource="pods", verb="list", nth=1)
        listing = asyncio.create_task(bench.live.reflectors[1].list_again())
        await eventually(lambda: bench.api.requests.count(verb="list", resource="pods") == 2)
        made = bench.kube.create(whole("p"))
        binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
        await eventually(lambda: state(bench, made) is PodState.ASSUMED)
        await listing
        assert state(bench, made) is PodState.ASSUMED
        assert await binding == ""
        await bench.agrees()


@pytest.mark.parametrize("accepted", [False, True], ids=["assumed", "bound"])
async def test_a_list_that_does_not_name_a_pod_whose_bind_is_under_way_does_not_end_it(accepted: bool) -> None:
    """An API server may answer a list from a cache that is behind; for such a pod a read decides."""
    async with running(node("n1"), http_timeout_seconds=2.0) as bench:
        made = bench.kube.create(whole("p"))
        async with bench.watch_gap():
            if not accepted:
                bench.api.faults.add(fault="latency", seconds=0.2, resource=BINDING, nth=1)
            binding = asyncio.create_task(bench.scheduler.bind(made, "n1"))
            wanted = PodState.BOUND if accepted else PodState.ASSUMED
            await eventually(lambda: state(bench, made) is wanted)
            bench.live.reflectors[1].sink.replaced(set())
            assert state(bench, made) is wanted
            assert (await bench.scheduler.filter(bench.kube.create(whole("q")))).passed == []
            assert await binding == ""
            # Only a read can have shown it.
            await eventually(lambda: state(bench, made) is PodState.ADDED)
        await bench.live.reflectors[1].list_again()
        await bench.agrees()


async def test_the_newest_version_that_anybody_told_of_is_the_precondition() -> None:
    """Filter's question is ahead of the watch; what the watch shows afterwards is older and causes no conflict."""
    async with running(node("n1")) as bench:
        bench.kube.create(whole("p"))
        await bench.caught_up()
        bench.api.faults.add(fault="delay", seconds=0.15, resource="pods", verb="watch")
        for number in range(3):
            bench.kube.annotate_pod("p", {"test/number": str(number)})
        made = bench.kube.pod("p")
        assert (await bench.scheduler.filter(made)).passed == ["n1"]
        events = bench.live.reflectors[1].state.last_event_at
        await eventually(lambda: bench.live.reflectors[1].state.last_event_at != events, "one of three events is there")
        before = bench.requests
        assert await bench.scheduler.bind(made, "n1") == ""
        assert bench.requests - before == 1


@pytest.mark.parametrize("inits", [True, False])
async def test_a_pod_of_many_containers_is_bound_with_one_row_each(inits: bool) -> None:
    """A pod whose GPUs are only in an init and a sidecar has a row for its app too."""
    async with running(node("n1")) as bench:
        first = [container("i", asks(1, 700))] if inits else []
        made = pod("p", [container("main")], inits=[*first, sidecar("s", asks(1, 300))])
        await bench.scheduler.place(bench.kube.create(made))
        text = bench.kube.pod("p")["metadata"]["annotations"][ALLOCATION]
        own = [[("GPU-n1-0", 700, 0)]] if inits else []
        assert text == rows(*own, [("GPU-n1-0", 300, 0)], [])
        assert bench.audit.holding()["GPU-n1-0"].memory == (700 if inits else 300)
        await bench.agrees()


async def test_the_quota_counts_what_is_only_assumed() -> None:
    quota = {"requests.nvidia.com/gpumem": "1000"}
    limits = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": quota}}
    async with running(node("n1", 4), limits) as bench:
        bench.api.faults.add(fault="latency", seconds=0.2, resource=BINDING)
        pods = [bench.kube.create(pod(f"p{number}", memory=600)) for number in range(2)]
        answers = await asyncio.gather(*(bench.scheduler.bind(made, "n1") for made in pods))
        assert sorted(answer.partition(":")[0] for answer in answers) == ["", "QuotaExceeded"]
        assert (await bench.scheduler.filter(pods[1])).unresolvable["n1"].startswith("QuotaExceeded")
        await bench.agrees()


async def test_two_replicas_that_both_think_they_lead_are_told_apart_by_the_api_server() -> None:
    """No pod is bound twice; the audit and the replicas report a card that both gave out."""
    async with running(node("n1")) as bench:
        other = await Extender.boot(bench.api.url, bench.settings)
        await other.ready()
        made = bench.kube.create(whole("p"))
        second = Scheduler(other.session, bench.kube)
        answers = await asyncio.gather(bench.scheduler.bind(made, "n1"), second.bind(made, "n1"))
        assert list(answers) == ["", ""]
        assert bench.api.requests.count(resource=BINDING) <= 2
        await bench.agrees()
        assert bench.audit.difference(other.live.cluster) is None
        await other.kill()
