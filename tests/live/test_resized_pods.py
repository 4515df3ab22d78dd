"""Events that release nothing: in-place resizes, restarts, and the ends of native sidecars.

R-01 to R-10, N-01 to N-06, V-01 and V-02 through the watch. They exist because much in a status looks like an end or
like other amounts. They must not call conversion. Invariant: what a pod holds follows only from its allocation, the
order of its containers and the progress of its inits; a pod of 2, 20 and 10 GiB holds 22528 MiB, then 12288.
"""

import copy
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from extender.cluster import Cluster
from extender.config import Settings
from extender.convert import convert_node
from extender.kube.reflector import Change
from extender.live.watching import PodInformer, PodSink
from extender.wire import core_v1, watched
from tests.apiserver.resources import PODS
from tests.extender.objects import (
    Json,
    asks,
    card,
    container,
    node,
    pod,
    rows,
    sidecar,
    status_of,
    terminated,
)
from tests.extender.objects import (
    running as runs,
)
from tests.extender.vmis import K, raw_node, raw_pod
from tests.live.harness import Bench, eventually, running

SIDE, INIT, APP = 2048, 20480, 10240
PEAK, AFTER = SIDE + INIT, SIDE + APP
STARTING = status_of("Pending", runs("side"), runs("init"))
DONE = status_of("Running", runs("side"), terminated("init"))
RESIZING = [{"type": "PodResizeInProgress", "status": "True"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


def cards(name: str = "n1", count: int = 1) -> Json:
    return node(name, [card(f"GPU-{name}-{index}", index, memory=24576) for index in range(count)])


def seed(status: Json, name: str = "p", uuid: str = "GPU-n1-0", **spec: object) -> Json:
    """The pod of 2, 20 and 10 GiB on one card."""
    inits = [sidecar("side", asks(1, SIDE)), container("init", asks(1, INIT))]
    share = rows(*([(uuid, memory, 0)] for memory in (SIDE, INIT, APP)))
    made = pod(name, [container("main", asks(1, APP))], inits=inits, node="n1", allocation=share, status=status)
    return made | {"spec": made["spec"] | spec}


def held(bench: Bench, name: str = "p") -> int:
    record = bench.live.cluster.cache.pods.get(f"uid-{name}")
    return 0 if record is None else sum(use.memory for use in record.held)


def requested(bench: Bench) -> list[tuple[int, int]]:
    """Return slots and memory of every card of n1, from the arrays."""
    cache = bench.live.cluster.cache
    arrays, row = cache.snapshot().requested, cache.snapshot().rows["n1"]
    return [(int(arrays.slots[at, row]), int(arrays.memory[at, row])) for at in cache.positions("n1").values()]


async def change(bench: Bench, *changes: Callable[[Json], None], name: str = "p") -> None:
    """Change a pod as the resize subresource or a kubelet does, and wait until the watch has shown everything."""
    for alter in changes:
        row = bench.api.store.get(PODS, f"default/{name}")
        assert row is not None
        obj = copy.deepcopy(row.decode())
        alter(obj)
        bench.api.store.put(PODS, obj, row)
    await bench.caught_up()


def status(**fields: object) -> Callable[[Json], None]:
    return lambda obj: obj["status"].update(fields)


def resized(cpu: str = "8", memory: str = "8Gi", at: int = 0, where: str = "containers") -> Callable[[Json], None]:
    def alter(obj: Json) -> None:
        resources = obj["spec"][where][at]["resources"]
        for part in ("limits", "requests"):
            resources[part] = resources[part] | {"cpu": cpu, "memory": memory}

    return alter


def test_an_event_that_is_older_than_what_was_shown_before_is_dropped() -> None:
    """REQ-R5. A read of our own bind may be ahead of the watch; a list is never behind."""
    cluster = Cluster(Settings(), deletions_are_told=True)
    informer = PodInformer(cluster)
    sink = PodSink(cluster, informer)
    cluster.put_node(convert_node(msgspec.convert(cards(), core_v1.Node), cluster.settings))

    def told(version: str, status: Json) -> msgspec.Raw:
        made = seed(status)
        return msgspec.Raw(json.dumps(made | {"metadata": made["metadata"] | {"resourceVersion": version}}).encode())

    def memory() -> int:
        record = cluster.cache.pods.get("uid-p")
        return 0 if record is None else sum(use.memory for use in record.held)

    sink.change(Change.PUT, told("8", STARTING))
    assert memory() == PEAK
    informer.read(watched.decode_pod(told("10", DONE)))
    assert memory() == AFTER
    sink.change(Change.PUT, told("9", STARTING))
    assert memory() == AFTER
    # Versions that cannot be compared are taken as they come, and so is what a list shows after data was restored.
    sink.change(Change.PUT, told("x9", STARTING))
    assert memory() == PEAK
    sink.change(Change.PUT, told("10", DONE))
    sink.change(Change.LISTED, told("7", STARTING))
    assert memory() == PEAK
    sink.change(Change.PUT, told("8", DONE))
    assert memory() == AFTER
    sink.change(Change.DELETED, told("1", STARTING))
    assert memory() == 0


async def test_r_01_a_resize_of_cpu_is_no_change_of_cards() -> None:
    share = pod(
        "p", [container("main", asks(1, 4000))], node="n1", allocation=rows([("GPU-n1-0", 4000, 0)]), status=runs_only()
    )
    async with running(cards(), share) as bench:
        await change(bench, resized("4", "1Gi"))
        cache = bench.live.cluster.cache
        before, cells = cache.generation, requested(bench)
        # Scores depend on the CPU; so the same event without a change of CPU writes nothing at all.
        await change(bench, resized("4", "2Gi"), status(conditions=RESIZING))
        assert cache.generation - before == CAUGHT_UP
        await change(bench, resized("8", "2Gi"), status(conditions=RESIZING))
        assert (held(bench), requested(bench)) == (4000, cells)
        assert requested(bench) == [(1, 4000)]
        assert len(cache.pods) == 1


def runs_only() -> Json:
    return {"phase": "Running"}


#: `caught_up` creates a node and deletes it.
CAUGHT_UP = 2


async def test_r_02_a_resize_after_the_shrink_brings_nothing_back() -> None:
    async with running(cards(), seed(STARTING)) as bench:
        assert held(bench) == PEAK
        await change(bench, lambda obj: obj.update(status=DONE))
        assert held(bench) == AFTER
        await change(bench, resized(memory="9Gi"), status(conditions=RESIZING), status(conditions=[]))
        assert held(bench) == AFTER
        assert requested(bench) == [(2, AFTER)]


async def test_r_03_what_a_kubelet_says_it_allocated_is_not_added() -> None:
    allocated = [{"name": "compute", "allocatedResources": {K: "1"}, "resources": {"limits": {K: "1"}}}]
    async with raw_bench(raw_node(), raw_pod("p", 1, node="n1")) as bench:
        await change(bench, status(containerStatuses=allocated))
        assert units(bench) == 1


async def test_r_04_a_sidecar_that_is_restarted_by_a_resize_loses_nothing() -> None:
    async with running(cards(), seed(DONE)) as bench:
        seen = []
        for side in (terminated("side"), {"name": "side", "state": {"waiting": {}}}, runs("side")):
            await change(bench, status(initContainerStatuses=[side, terminated("init")]))
            seen.append(held(bench))
        assert seen == [AFTER] * 3


async def test_r_05_a_resize_while_the_init_runs_ends_no_peak() -> None:
    async with running(cards(), seed(STARTING)) as bench:
        seen = []
        for conditions in (DEFERRED, RESIZING, []):
            await change(bench, resized(where="initContainers"), status(conditions=conditions))
            seen.append(held(bench))
        assert seen == [PEAK] * 3


async def test_r_06_a_thousand_statuses_write_nothing() -> None:
    async with running(cards(), seed(DONE)) as bench:
        cache = bench.live.cluster.cache
        record, before = cache.pods["uid-p"], cache.generation
        ready = (status(conditions=[{"type": "Ready", "status": str(number % 2 == 0)}]) for number in range(1000))
        await change(bench, *ready)
        assert cache.pods["uid-p"] is record
        assert cache.generation - before == CAUGHT_UP


async def test_r_06_a_thousand_statuses_of_a_pod_with_whole_devices_write_nothing() -> None:
    async with raw_bench(raw_node(), raw_pod("p", 3, node="n1")) as bench:
        cluster = bench.live.cluster
        kept, version = cluster.registry.kept_pod("uid-p"), cluster.raw.version
        ready = (status(conditions=[{"type": "Ready", "status": str(number % 2 == 0)}]) for number in range(1000))
        await change(bench, *ready)
        assert cluster.registry.kept_pod("uid-p") is kept
        assert (cluster.raw.version, units(bench)) == (version, 3)


async def test_r_07_the_allocation_counts_and_not_the_spec() -> None:
    share = pod(
        "p", [container("main", asks(1, 4000))], node="n1", allocation=rows([("GPU-n1-0", 4000, 0)]), status=runs_only()
    )
    async with running(cards(), share) as bench:
        await change(bench, lambda obj: obj["spec"]["containers"][0].update(resources=asks(1, 8000)))
        assert held(bench) == 4000


async def test_r_08_a_resize_that_cannot_be_leaves_whole_devices_as_they_are() -> None:
    async with raw_bench(raw_node(), raw_pod("p", 3, node="n1")) as bench:
        await change(bench, resized("64", "1Ti"), status(conditions=INFEASIBLE))
        assert units(bench) == 3


async def test_r_09_a_deletion_after_resizes_leaves_nothing() -> None:
    async with raw_bench(cards(), raw_node("n2"), seed(DONE), raw_pod("q", 3, node="n2")) as bench:
        for number in range(3):
            await change(bench, resized(str(number + 1)), status(conditions=RESIZING))
            await change(bench, resized(str(number + 1)), name="q")
        for name in ("p", "q"):
            bench.kube.delete_pod(name)
        await bench.caught_up()
        assert requested(bench) == [(0, 0)]
        assert dict(bench.live.cluster.raw.units.on_nodes()) == {}


async def test_r_10_a_pod_whose_inits_may_run_again_stays_at_its_peak() -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    asking = seed(DONE)
    asking["spec"]["containers"][0] |= {"restartPolicyRules": [rule]}
    async with running(cards(), asking) as bench:
        assert held(bench) == PEAK
        await change(bench, status(conditions=[{"type": "AllContainersRestarting", "status": "True"}]))
        assert held(bench) == PEAK


# -- native sidecars, and the versions of a cluster --------------------------------------------------------------------


def steady_pods() -> list[Json]:
    """Return one pod per case, each on a card of its own."""

    def on(number: int, name: str, apps: Sequence[Json], inits: Sequence[Json], memory: Sequence[int]) -> Json:
        share = rows(*([(f"GPU-n1-{number}", each, 0)] for each in memory))
        return pod(name, apps, inits=inits, node="n1", allocation=share, status=status_of("Running"))

    app = container("main", asks(1, 2000))
    return [
        seed(DONE, "n-01", "GPU-n1-0"),
        seed(DONE, "n-02", "GPU-n1-1"),
        seed(DONE, "n-03", "GPU-n1-2"),
        on(
            3,
            "n-04",
            [container("main", asks(1, 3000))],
            [container("i", asks(1, 6000), restartPolicy="OnFailure")],
            (6000, 3000),
        ),
        on(
            4,
            "n-05",
            [container("main", asks(1, 3000), restartPolicy="Always"), container("b", asks(1, 2000))],
            [],
            (3000, 2000),
        ),
        on(5, "n-06", [app], [sidecar("s", asks(1, 1000)), sidecar("t", asks(1, 500))], (1000, 500, 2000)),
    ]


def of_version(kubelet: str) -> Json:
    made = cards(count=6)
    return made | {"status": {"nodeInfo": {"kubeletVersion": kubelet}}}


@pytest.mark.parametrize(
    "served, kubelet",
    [
        pytest.param(("resource.k8s.io/v1",), "v1.37.1", id="all-1.37"),
        pytest.param(("resource.k8s.io/v1beta2",), "v1.33.4", id="V-01-apiserver-1.33-with-beta"),
        pytest.param((), "v1.33.4", id="V-01-apiserver-1.33"),
        pytest.param(("resource.k8s.io/v1",), "v1.34.2", id="V-02-kubelet-1.34"),
    ],
)
async def test_n_01_to_n_06_on_clusters_of_several_versions(served: Sequence[str], kubelet: str) -> None:
    async with running(of_version(kubelet), *steady_pods(), served=served) as bench:
        # N-01: the app is over, the sidecar stops, the phase is still Running.
        stopping = {"containerStatuses": [terminated("main")], "initContainerStatuses": DONE["initContainerStatuses"]}
        await change(bench, status(**stopping), name="n-01")
        # N-03: a deletion has begun.
        bench.kube.delete_pod("n-03", grace_seconds=30)
        await bench.caught_up()
        # N-05: an app that restarts always is no sidecar, so it counts beside the other: 5000.
        names = [f"n-0{number}" for number in range(1, 7)]
        assert [held(bench, name) for name in names] == [AFTER, AFTER, AFTER, 6000, 5000, 3500]
        # N-02: the phase ends the pod.
        bench.kube.set_status("n-02", {"phase": "Succeeded"})
        # N-04: it was an ordinary init, so its end counts; N-06: sidecars alone never shrink.
        await change(bench, status(initContainerStatuses=[terminated("i")]), name="n-04")
        await change(bench, status(initContainerStatuses=[terminated("s"), terminated("t")]), name="n-06")
        await eventually(lambda: held(bench, "n-02") == 0)
        assert [held(bench, name) for name in names] == [AFTER, 0, AFTER, 3000, 5000, 3500]


def raw_bench(*objects: Json) -> AbstractAsyncContextManager[Bench]:
    return running(*objects, cluster=Settings(raw_keys=(K,)))


def units(bench: Bench) -> int:
    return bench.live.cluster.raw.units.used_on("n1", K)
