"""A cluster moves from HAMi's scheduler to ours and back: 200 running pods, with annotations of four HAMi versions.

It exists because docs/migrate.md promises that no pod is restarted and no card given twice. It must not run HAMi: the
Go module proxy does not serve its modules. So pods carry texts in its format (benchmarks/hami_pods.py), and what it
would count is computed from the format alone. v2.4.1 and v2.6.1 encode as v2.7.1 does, and know app containers only
(pkg/util/util.go and pkg/scheduler of these tags). Invariant: the audit computes every card anew at every write.
"""

import json
from collections import Counter
from random import Random
from typing import Any

from benchmarks.hami_pods import Version, WrittenPod, written_pod
from tests.apiserver.server import ApiServer
from tests.extender.objects import card, node, pod
from tests.live.harness import Bench, live_settings
from tests.live.harness_kube import Kube

Json = dict[str, Any]
#: The versions whose writer makes the pods of each version.
WRITERS = {"2.4": Version.V2_7, "2.6": Version.V2_7, "2.8": Version.V2_8, "2.10": Version.V2_10}
ALLOCATED, BY = "hami.io/vgpu-devices-allocated", "written-by"
PODS, CARDS, CARD_MIB, PENDING = 200, 6, 100_000, 60


def fits(written: WrittenPod) -> bool:
    """Whether HAMi could have placed the pod like this: no card is over-committed, and no exclusive card is shared."""
    allocation = written.placed.allocation
    assert isinstance(allocation, tuple)
    rows = [row for rows in allocation for row in rows]
    cores: Counter[str] = Counter()
    for row in rows:
        cores[row.uuid] += row.cores
    exclusive = {row.uuid for row in rows if row.cores == 100}
    alone = all(sum(row.uuid == uuid for row in rows) == 1 for uuid in exclusive)
    # The pod asks for one vendor, and both schedulers read its request alike.
    return written.exact and alone and max(cores.values()) <= 100 and ALLOCATED in annotations(written.manifest)


def annotations(made: Json) -> Json:
    found: Json = made["metadata"]["annotations"]
    return found


def placed_by_hami(random: Random, number: int) -> Json:
    """Return a running pod that a version of HAMi has placed on a node of its own."""
    version = list(WRITERS)[number % len(WRITERS)]
    written = written_pod(random, WRITERS[version])
    while not fits(written) or len(annotations(written.manifest)) > 1:
        written = written_pod(random, WRITERS[version])
    made: Json = json.loads(json.dumps(written.manifest).replace("NVIDIA-", f"GPU-n{number}-"))
    made["metadata"] |= {"name": f"running-{number}", "namespace": "default", "uid": f"uid-{number}"}
    text = annotations(made)[ALLOCATED]
    notes = {"hami.io/vgpu-node": f"n{number}", "hami.io/bind-phase": "success", BY: version}
    made["metadata"]["annotations"] = {ALLOCATED: text, "hami.io/vgpu-devices-to-allocate": "", **notes}
    made["spec"]["nodeName"] = f"n{number}"
    made["spec"]["schedulerName"] = "hami-scheduler"
    return {"apiVersion": "v1", "kind": "Pod", **made}


def counted_by_hami(pods: list[Json]) -> Counter[str]:
    """Return the slots that HAMi counts on each card: one for each readable row of a pod that names its node."""
    slots: Counter[str] = Counter()
    for each in pods:
        if annotations(each).get("hami.io/vgpu-node") == each["spec"].get("nodeName"):
            for row in annotations(each)[ALLOCATED].split(";"):
                slots.update(part.split(",")[0] for part in row.split(":") if "," in part)
    return slots


def as_they_are(kube: Kube) -> dict[str, Json]:
    """Return every running pod, with all that the API server has of it."""
    return {each["metadata"]["name"]: each for each in kube.pods() if each["metadata"]["name"].startswith("running-")}


async def test_a_cluster_moves_from_hami_to_us_and_back() -> None:
    random = Random(15)
    async with ApiServer() as api:
        kube = Kube(api)
        cards = range(CARDS)
        api.load(
            [node(f"n{at}", [card(f"GPU-n{at}-{i}", i, memory=CARD_MIB) for i in cards]) for at in range(PODS)]
            + [placed_by_hami(random, number) for number in range(PODS)]
            + [pod(f"waiting-{number}", memory=random.randint(1, CARD_MIB)) for number in range(PENDING)]
        )
        before = as_they_are(kube)
        assert Counter(annotations(each)[BY] for each in before.values()) == dict.fromkeys(WRITERS, PODS // 4)
        # HAMi's scheduler is gone; ours reads what it left.
        bench = Bench(api, live_settings(lock_mode=True))
        await bench.boot()
        await bench.agrees()
        assert as_they_are(kube) == before
        assert bench.audit.overcommitted == []
        problems = await problems_of(bench)
        assert not set(problems) - {"AmbiguousAllocation"}
        # Pending pods are scheduled on what is really free.
        for number in range(PENDING):
            name = f"waiting-{number}"
            where = await bench.scheduler.place(kube.pod(name))
            allocate_as_the_plugin(kube, name, where)
        await bench.agrees()
        assert bench.audit.overcommitted == []
        assert as_they_are(kube) == before
        # The way back: ours ends, and HAMi counts exactly what it placed.
        await bench.extender.end()
        placed = [each for each in kube.pods() if each["metadata"]["name"].startswith("waiting-")]
        assert all(each["spec"]["nodeName"] for each in placed)
        slots = counted_by_hami([*before.values(), *placed])
        ours = counted_by_hami(placed)
        assert sum(ours.values()) == PENDING
        assert max(slots.values()) <= 10
        assert not [each for each in kube.send("GET", "/api/v1/nodes")["items"] if locked(each)]
        assert as_they_are(kube) == before
        bench.audit.close()
        # Then the cluster moves to ours again, as when the way back is undone.
        again = Bench(api, live_settings(lock_mode=True))
        await again.boot()
        await again.agrees()
        assert await problems_of(again) == problems
        await again.extender.end()
        again.audit.close()


async def problems_of(bench: Bench) -> Counter[str]:
    async with bench.extender.session.get("/api/v1/verify") as response:
        return Counter(each["code"] for each in (await response.json())["problems"])


def allocate_as_the_plugin(kube: Kube, name: str, where: str) -> None:
    """Do what the node's plugin does with the pod: take its row, report that, and unlock the node."""
    kube.annotate_pod(name, {"hami.io/vgpu-devices-to-allocate": "", "hami.io/bind-phase": "success"})
    kube.annotate_node(where, {"hami.io/mutex.lock": None})


def locked(each: Json) -> bool:
    return "hami.io/mutex.lock" in each["metadata"]["annotations"]
