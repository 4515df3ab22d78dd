"""Who holds what, by kind and name: pods, DRA claims, VMs and holds, in every answer that people read.

It exists because somebody on call must not take a VM's devices for a pod's. It must not know how holders are counted.
Invariant: one cluster, asked in every way; all ways name the same holders.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from accounting.answers import raw_reports
from accounting.holders import Hold, HoldState, VmiKey
from extender.cli import main
from extender.config import ServerSettings
from extender.server.page.rows import FIELDS, OVERCOMMITTED, RAW_FIELDS, node_line
from tests.extender.dra import gpu, resource_claim, resource_slice, result
from tests.extender.objects import Json, asks, bound, card, container, listed, node, pod
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client, serving
from tests.extender.vmis import K, raw_pod, units_of, vmi

N1 = node("n1", [card("GPU-a", 0, memory=24576), card("GPU-b", 1, memory=24576)])
N1 |= {"status": {"allocatable": {"nvidia.com/gpu": "20", K: "4"}}}
OBJECTS = (
    N1,
    resource_slice(gpu("gpu-0", "GPU-a"), gpu("gpu-1", "GPU-b")),
    resource_claim("c", result("gpu-0")),
    bound("p", "n1", "GPU-b", 4000),
    vmi("a", ["uid-l"], units=2),
    raw_pod("l", 3, node="n1"),
    pod("o", [container("main", units_of(1))], node="n1", status={"phase": "Running"}),
)
UNITS = [
    {"kind": "pod", "name": "default/l", "units": 1},
    {"kind": "pod", "name": "default/o", "units": 1},
    {"kind": "vmi", "name": "default/a", "units": 2},
]
USE = {"key": K, "allocatable": 4, "used": 4, "free": 0, "overcommitted": False, "holders": UNITS}
HELD = [
    ("GPU-a", "claim", "default/c"),
    ("GPU-b", "pod", "default/p"),
]


@asynccontextmanager
async def world(*more: Json, settings: ServerSettings | None = None) -> AsyncIterator[Client]:
    async with serving(cluster=make_raw_cluster(*OBJECTS, *more), settings=settings) as client:
        yield client


async def test_lists_and_verify_name_every_holder() -> None:
    async with world() as client:
        (listed_node,) = await client.get("/api/v1/nodes")
        assert await client.get("/api/v1/nodes/n1") == listed_node
        verified = await client.get("/api/v1/verify")
        assert await client.get("/api/v1/verify?fields=raw.key&limit=1") == {"raw": [{"key": K}]}
    for devices in (listed_node["devices"], verified["devices"]):
        assert [
            (each["uuid"], *map(holder.get, ("kind", "name"))) for each in devices for holder in each["holders"]
        ] == HELD
    assert listed_node["raw"] == [USE]
    assert verified["raw"] == [{"node": "n1"} | USE]


async def test_sums_count_holders_by_kind() -> None:
    async with world() as client:
        client.cluster.raw.put_holds(
            VmiKey("team", "b"), [Hold("b", VmiKey("team", "b"), K, 1, "n1", HoldState.BOUND, "h")]
        )
        counts = (await client.get("/api/v1/summary"))["holders"]
        usage = {each["namespace"]: each for each in await client.get("/api/v1/usage")}
        text = (await client.send("GET", "/metrics")).body.decode().splitlines()
    # The launcher counts as its VM.
    assert counts == {"pod": 2, "claim": 1, "vmi": 1, "hold": 1}
    for kind, count in counts.items():
        assert f'gpu_extender_holders{{kind="{kind}"}} {count}.0' in text
    assert f'gpu_extender_raw_devices{{key="{K}"}} 4.0' in text
    assert f'gpu_extender_raw_devices_used{{key="{K}"}} 5.0' in text
    held = {"slots": 10, "memory": 24576, "cores": 100}
    assert usage["default"]["claims"] == {"claims": 1, "cards": 1, "held": held}
    assert usage["default"]["raw"] == [{"key": K, "used": 4, "hard": None}]
    assert usage["team"]["raw"] == [{"key": K, "used": 1, "hard": None}]


async def test_budgets_stand_beside_what_is_used() -> None:
    cluster = make_raw_cluster(*OBJECTS, budgets={("default", K): 6, ("*", K): 1})
    async with serving(cluster=cluster) as client:
        (usage,) = await client.get("/api/v1/usage")
        text = (await client.send("GET", "/metrics")).body.decode().splitlines()
    assert usage["raw"] == [{"key": K, "used": 4, "hard": 6}]
    assert f'gpu_extender_raw_budget_hard{{key="{K}",namespace="default"}} 6.0' in text
    assert f'gpu_extender_raw_budget_hard{{key="{K}",namespace="*"}} 1.0' in text
    assert f'gpu_extender_raw_budget_used{{key="{K}",namespace="default"}} 4.0' in text


async def test_series_name_who_has_whole_devices() -> None:
    async with world(settings=ServerSettings(port=0, metrics_per_pod=True)) as client:
        text = (await client.send("GET", "/metrics")).body.decode().splitlines()
    labels = 'namespace="default",name="a",node="n1"'
    assert f'gpu_extender_raw_devices_held{{kind="vmi",{labels},key="{K}"}} 2' in text
    assert sum(line.startswith("gpu_extender_raw_devices_held{") for line in text) == len(UNITS)


async def test_why_names_who_has_what_lacks() -> None:
    async with world() as client:
        (cards,) = (await client.post("/api/v1/what-if", pod("q", [container("main", asks(2, 23000))]))).json()
        (few,) = (await client.post("/api/v1/what-if", pod("q", [container("main", units_of(2))]))).json()
        (many,) = (await client.post("/api/v1/what-if", pod("q", [container("main", units_of(3))]))).json()
        (never,) = (await client.post("/api/v1/what-if", pod("q", [container("main", units_of(5))]))).json()
    (near,) = cards["nearest"]
    assert [(each["uuid"], each["holders"][0]["kind"]) for each in near["cards"]] == [
        ("GPU-b", "pod"),
        ("GPU-a", "claim"),
    ]
    assert near["in_the_way"] is None
    assert near["text"].endswith("; no pod's end there would be enough; claim default/c holds cards there")
    (near,) = few["nearest"]
    assert near["raw"] == [{"key": K, "missing": 2, "holders": UNITS}]
    assert [(each["pod"], each["units"]) for each in near["in_the_way"]] == [("default/l", 1), ("default/o", 1)]
    assert few["text"].endswith(
        "the pod adds 2; the node has 4, 4 are used; the pod fits once default/l, default/o end"
    )
    assert many["nearest"][0]["in_the_way"] is None
    assert many["text"].endswith("; vmi default/a has devices there")
    assert never["nearest"] == []


def test_the_commands_name_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, asked = tmp_path / "cluster", tmp_path / "pod"
    cluster.write_text(listed(*OBJECTS))
    options = ["--cluster", str(cluster), "--raw-key", K]
    wants = {"limits": asks(1, 23000)["limits"] | {K: "2"}}
    for resources, who in (
        (asks(2, 23000), {("claim", "default/c"), ("pod", "default/p")}),
        (units_of(2), {("vmi", "default/a"), ("pod", "default/l"), ("pod", "default/o")}),
        (wants, {("claim", "default/c"), ("pod", "default/p")}),
    ):
        asked.write_text(json.dumps(pod("q", [container("main", resources)])))
        assert main(["explain", "-f", str(asked), *options, "-o", "json"]) == 1
        (refused,) = json.loads(capsys.readouterr().out)["nodes"]
        assert {(each["kind"], each["name"]) for each in refused["holders"]} == who
        main(["explain", "-f", str(asked), *options])
        said = capsys.readouterr().out
        assert all(f"{kind} {name}" in said for kind, name in who)
    main(["verify", *options])
    said = capsys.readouterr().out
    assert "vmi default/a 2" in said
    assert "claim default/c" in said


async def test_the_page_tells_them_apart() -> None:
    async with world() as client:
        cluster = client.cluster
        cluster.raw.put_holds(VmiKey("team", "b"), [Hold("b", VmiKey("team", "b"), K, 1, "n1", HoldState.BOUND, "h")])
        line = orjson.loads(node_line(cluster, "n1", raw_reports(cluster.raw)["n1"]))
    first, second = (dict(zip(FIELDS, each, strict=True)) for each in line["c"])
    assert (first["claimed"], first["requested memory"], first["pods"]) == ([10, 24576, 100, 1], 24576, 0)
    assert (second["claimed"], second["requested memory"], second["pods"]) == ([], 4000, 1)
    assert [line["s"][each] for each in first["namespaces"]] == ["default"]
    (raw,) = (dict(zip(RAW_FIELDS, each, strict=True)) for each in line["r"])
    assert (raw["key"], raw["marks"], raw["allocatable"]) == (K, OVERCOMMITTED, 4)
    assert (raw["pods"], raw["vmis"], raw["holds"]) == (2, 2, 1)
    assert [line["s"][each] for each in raw["namespaces"]] == ["default", "team"]


async def test_without_raw_keys_there_is_nothing_of_them() -> None:
    async with serving(node("n1")) as client:
        (entry,) = await client.get("/api/v1/nodes")
        assert (entry.keys(), (await client.get("/api/v1/verify")).keys()) == (
            {"node", "devices"},
            {"devices", "problems"},
        )
        assert b"raw_devices" not in (await client.send("GET", "/metrics")).body
