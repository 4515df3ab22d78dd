"""Cards in MIG mode from the manifest to the annotations and back, as kube-scheduler, the plugin and users see them.

It exists because the places of instances travel in an annotation of their own. It must not test which place is chosen.
Invariant: what a Binding writes is read back as the same pod.
"""

import json
from pathlib import Path

import msgspec
import pytest

from accounting.mig_profiles import MigInstance
from accounting.pod import Pod
from extender.config import Settings
from extender.convert.annotations import MIG, bind_annotations
from extender.convert.pod import convert_pod
from extender.wire import core_v1
from tests.extender.inside import run_inside
from tests.extender.objects import (
    ALLOCATION,
    CORES,
    MEMORY,
    Json,
    asks,
    card,
    container,
    listed,
    node,
    pod,
    quota,
)
from tests.extender.serving import serving
from tests.live.harness import running


def profile(name: str, mib: int, cores: int, size: int, *starts: int) -> Json:
    places = [{"start": start, "size": size} for start in starts]
    return {"name": name, "memoryMB": mib, "core": cores, "sliceCount": size, "placements": places}


PROFILES = [
    profile("1g.5gb", 4864, 15, 1, *range(7)),
    profile("2g.10gb", 9984, 29, 2, 0, 2, 4),
    profile("3g.20gb", 20_096, 43, 4, 0, 4),
    profile("7g.40gb", 40_448, 100, 8, 0),
]
MIG_NODE = node("n1", [card("GPU-a", memory=40_960, slots=7, mode="mig", migProfiles=PROFILES)])
ROWS = "GPU-a,NVIDIA,9984,29:GPU-a,NVIDIA,9984,29:;"
INSTANCES = (
    '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"2g.10gb","placement":{"start":0,"size":2}},'
    '{"containerIndex":0,"deviceIndex":1,"gpuUUID":"GPU-a","profile":"2g.10gb","placement":{"start":2,"size":2}}]'
)


def read(value: Json) -> Pod:
    return convert_pod(msgspec.json.decode(json.dumps(value), type=core_v1.Pod), Settings())


def holder(name: str = "p", rows: str = ROWS, instances: str = INSTANCES) -> Json:
    app = container("main", asks(2, 8000))
    return pod(name, [app], node="n1", annotations={ALLOCATION: rows, MIG: instances}, status={"phase": "Running"})


async def test_a_binding_writes_rows_and_places_byte_for_byte_as_hami_does() -> None:
    async with running(MIG_NODE) as bench:
        made = bench.kube.create(pod("p", [container("main", asks(2, 8000))]))
        await bench.scheduler.place(made)
        annotations = bench.kube.pod("p")["metadata"]["annotations"]
        assert (annotations[ALLOCATION], annotations[MIG]) == (ROWS, INSTANCES)
        await bench.caught_up()
        (record,) = bench.live.cluster.cache.pods.values()
        assert record.held[0][:4] == ("GPU-a", 2, 19_968, 58)
        # The plugin adds the instance that it made; that does not count as an edit, and a restart changes nothing.
        real = [
            each | {"migUUID": "MIG-1", "gpuInstanceID": 1, "computeInstanceID": 0} for each in json.loads(INSTANCES)
        ]
        bench.kube.annotate_pod("p", {MIG: json.dumps(real)})
        await bench.caught_up()
        assert bench.live.cluster.problems() == []
        await bench.restart()
        assert (await bench.scheduler.filter(pod("q", [container("main", asks(1, 30_000))]), "n1")).passed == []
        assert (await bench.scheduler.filter(pod("r", [container("main", asks(1, 20_000))]), "n1")).passed == ["n1"]


def test_what_was_written_is_read_back() -> None:
    converted = read(holder())
    assert isinstance(converted.allocation, tuple)
    ((one, two),) = converted.allocation
    assert (one.instance, two.instance) == (MigInstance("2g.10gb", 0, 2), MigInstance("2g.10gb", 2, 2))
    written = bind_annotations(Settings().vendors, "n1", converted.allocation, 0, lock_mode=False)
    assert (written[ALLOCATION], written[MIG]) == (ROWS, INSTANCES)


def test_a_pod_without_instances_blanks_the_annotation() -> None:
    converted = read(pod("p", node="n1", allocation="GPU-a,NVIDIA,100,0:;"))
    assert isinstance(converted.allocation, tuple)
    assert bind_annotations(Settings().vendors, "n1", converted.allocation, 0, lock_mode=False)[MIG] == ""


@pytest.mark.parametrize(
    "rows,instances",
    [
        (ROWS, ""),
        (ROWS, "not JSON"),
        (ROWS, INSTANCES.replace('"size":2', '"size":0', 1)),
        (ROWS, INSTANCES.replace("2g.10gb", "2g.20gb")),
        (ROWS, INSTANCES.replace("GPU-a", "GPU-b")),
        ("GPU-a[3-1],NVIDIA,9984,29:;", ""),
    ],
    ids=["absent", "no JSON", "refused", "unknown profile", "another card", "an index into a template"],
)
async def test_a33_what_cannot_be_told_holds_the_whole_card_and_warns(rows: str, instances: str) -> None:
    async with serving(MIG_NODE, holder(rows=rows, instances=instances)) as client:
        (node_entry,) = await client.get("/api/v1/nodes")
        (device,) = node_entry["devices"]
        assert device["requested"]["memory"] in (9984, 19_968)
        verified = await client.get("/api/v1/verify")
        assert [(each["code"], each["object"]) for each in verified["problems"]] == [
            ("UndecodableAllocation", "pod default/p")
        ]
        assert (await client.filter(pod("q", memory=1), "n1"))["NodeNames"] == []


def test_an_account_shows_the_places_and_explain_why_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(holder()))
    account = json.loads(run_inside("account", "-f", tmp_path / "p.json", "-o", "json").out)
    assert account["containers"][0]["devices"][1]["instance"] == {"profile": "2g.10gb", "start": 2, "size": 2}
    assert run_inside("account", "-f", tmp_path / "p.json").status == 0
    (tmp_path / "c.json").write_text(listed(MIG_NODE, holder()))
    (tmp_path / "q.json").write_text(json.dumps(pod("q", [container("main", asks(1, 30_000))])))
    files = ("-f", tmp_path / "q.json", "--cluster", tmp_path / "c.json")
    (only,) = json.loads(run_inside("explain", *files, "-o", "json").out)["nodes"]
    (reason,) = only["reasons"]
    assert (reason["code"], reason["devices"]) == ("InsufficientMemory", ["GPU-a"])
    assert "no free place for an instance of at least 30000 MiB" in reason["message"]


async def test_bind_on_an_embedded_cluster_takes_places_too() -> None:
    async with serving(MIG_NODE) as client:
        for number in range(7):
            await client.place(pod(f"p{number}", [container("main", asks(1, 4864))]), "n1")
        assert (await client.filter(pod("last", memory=1), "n1"))["NodeNames"] == []
        verified = await client.get("/api/v1/verify")
        assert verified["problems"] == []
        assert verified["devices"][0]["free"] == {"slots": 0, "memory": 40_960 - 7 * 4864, "cores": 0}


# -- quotas ------------------------------------------------------------------------------------------------------------


def instance(name: str = "p", mib: int = 4000, count: int = 1) -> Json:
    return pod(name, [container("main", asks(count, mib))])


@pytest.mark.parametrize(
    "resource,profile_has", [(f"limits.{MEMORY}", 4864), (f"requests.{CORES}", 15)], ids=["memory", "cores"]
)
async def test_a_quota_counts_the_profile_and_not_what_is_asked(resource: str, profile_has: int) -> None:
    async with serving(MIG_NODE, quota({resource: 2 * profile_has - 1})) as client:
        await client.place(instance("first"), "n1")
        answer = await client.filter(instance("second"), "n1")
        assert answer["NodeNames"] == []
        refusal = answer["FailedAndUnresolvableNodes"]["n1"]
        assert refusal.startswith("QuotaExceeded: ")
        assert await client.bind(instance("second"), "n1") == refusal
        (row,) = await client.get("/api/v1/quotas")
        assert (row["used"], row["exceeded"]) == (profile_has, False)
    async with serving(MIG_NODE, quota({resource: 2 * profile_has})) as client:
        await client.place(instance("first"), "n1")
        await client.place(instance("second"), "n1")
        (row,) = await client.get("/api/v1/quotas")
        assert (row["used"], row["exceeded"]) == (2 * profile_has, False)


async def test_a_quota_that_no_instance_keeps_leaves_the_shared_cards() -> None:
    shared = node("n2", [card("GPU-s", memory=8000)])
    async with serving(MIG_NODE, shared, quota({f"limits.{MEMORY}": 8000, f"limits.{CORES}": 0})) as client:
        answer = await client.filter(instance(), "n1", "n2")
        assert (answer["NodeNames"], list(answer["FailedAndUnresolvableNodes"])) == (["n2"], ["n1"])
        await client.place(instance("first"), "n2")
        await client.place(instance("second"), "n2")
        used = {row["resource"]: row["used"] for row in await client.get("/api/v1/quotas")}
        assert used == {MEMORY: 8000, CORES: 0}


async def test_why_the_api_server_charges_less_than_an_instance_has() -> None:
    async with serving(MIG_NODE, quota({f"limits.{MEMORY}": 9000})) as client:
        await client.place(instance(), "n1")
        (row,) = await client.get("/api/v1/quotas?namespace=default")
        assert (row["used"], row["api_charge"]) == (4864, 4000)
        (why,) = row["differs"]
        assert "an instance of a card in mig mode may have more than is asked" in why


def test_explain_says_at_least_and_names_the_quota(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(listed(MIG_NODE, quota({f"limits.{MEMORY}": 4863})))
    (tmp_path / "p.json").write_text(json.dumps(instance()))
    files = ("-f", tmp_path / "p.json", "--cluster", tmp_path / "c.json")
    said = json.loads(run_inside("explain", *files, "-o", "json").out)
    (row,) = said["quotas"]
    assert (row["adds"], row["at_least"]) == (4000, True)
    (reason,) = said["nodes"][0]["reasons"]
    assert reason["code"] == "QuotaExceeded"
    assert "default/gpus: nvidia.com/gpumem: hard 4863, used 0, the pod adds 4864 MiB" in reason["message"]
