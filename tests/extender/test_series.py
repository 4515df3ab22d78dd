"""Metrics per card and per pod, and HAMi's names, over real HTTP.

They exist because dashboards use them. They must not know how a line is made. Invariant: they say what the lists say,
and promtool finds nothing wrong.
"""

import gzip
import shutil
import subprocess
from collections import Counter

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.config import ServerSettings
from extender.server.series import extra_series
from tests.extender.objects import asks, bound, card, container, node, phased, pod, quota
from tests.extender.serving import Client, make_cluster, serving

PROMTOOL = shutil.which("promtool")
MIB = 1 << 20
OBJECTS = [
    node("n1", 2),
    node("n2"),
    bound("a", "n1", "GPU-n1-0", 300, cores=30),
    bound("b", "n1", "GPU-n1-0", 100),
    quota({"limits.nvidia.com/gpumem": "9000"}),
]
ALL = ServerSettings(port=0, metrics_per_card=True, metrics_per_pod=True, metrics_hami_names=True)
Series = dict[str, dict[tuple[tuple[str, str], ...], float]]


async def scraped(client: Client) -> tuple[str, Series]:
    answer = await client.send("GET", "/metrics")
    assert answer.status == 200
    text = answer.body.decode()
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            own = found.setdefault(sample.name, {})
            assert tuple(sorted(sample.labels.items())) not in own
            own[tuple(sorted(sample.labels.items()))] = sample.value
    return text, found


def of_card(series: Series, name: str, uuid: str, key: str = "uuid") -> float:
    (found,) = [value for labels, value in series[name].items() if (key, uuid) in labels]
    return found


async def test_cards_have_the_numbers_of_the_list() -> None:
    async with serving(*OBJECTS, settings=ServerSettings(port=0, metrics_per_card=True)) as client:
        _, series = await scraped(client)
        devices = [each for entry in await client.get("/api/v1/nodes") for each in entry["devices"]]
    for device in devices:
        uuid = device["uuid"]
        for kind, numbers in (("limit", device["capacity"]), ("allocated", device["requested"])):
            assert of_card(series, f"gpu_extender_card_memory_{kind}_bytes", uuid) == numbers["memory"] * MIB
            assert of_card(series, f"gpu_extender_card_cores_{kind}_ratio", uuid) == numbers["cores"] / 100
            assert of_card(series, f"gpu_extender_card_slots_{kind}", uuid) == numbers["slots"]
        assert of_card(series, "gpu_extender_card_pods", uuid) == len(device["pods"])
        assert of_card(series, "gpu_extender_card_healthy", uuid) == 1
    assert not [name for name in series if "pod_memory" in name or name.startswith(("hami", "GPU"))]


async def test_pods_have_series_only_where_they_were_asked_for() -> None:
    async with serving(*OBJECTS, settings=ServerSettings(port=0, metrics_per_pod=True)) as client:
        await client.create(phased())
        _, series = await scraped(client)
        pods = await client.pods()
    for name, entry in pods.items():
        for uuid, held in entry["held"].items():
            labels = {"namespace": "default", "pod": name.partition("/")[2], "node": entry["node"], "uuid": uuid}
            key = tuple(sorted(labels.items()))
            assert series["gpu_extender_pod_memory_bytes"][key] == held["memory"] * MIB
            assert series["gpu_extender_pod_cores_ratio"][key] == held["cores"] / 100
            assert series["gpu_extender_pod_slots"][key] == held["slots"]
    assert not [name for name in series if "_card_" in name]


async def test_hami_names_have_hamis_labels_and_units() -> None:
    async with serving(*OBJECTS, settings=ALL) as client:
        await client.create(pod("two", [container("x"), container("y", asks(1, 50, 10))], node="n2"))
        _, series = await scraped(client)
    card = {"node": "n1", "device_uuid": "GPU-n1-0", "device_index": "0", "zone": "vGPU"}
    model = dict(next(iter(series["hami_gpu_shared_count"])))["device_type"]
    typed = tuple(sorted((card | {"device_type": model}).items()))
    assert series["hami_gpu_memory_limit_bytes"][typed] == 1000 * MIB
    assert (series["hami_gpu_core_limit_ratio"][typed], series["hami_gpu_core_allocated_ratio"][typed]) == (100, 30)
    assert series["hami_gpu_shared_count"][typed] == 2
    assert series["hami_node_gpu_memory_allocated_ratio"][tuple(sorted(card.items()))] == 0.4
    for old in (
        "GPUDeviceMemoryLimit",
        "GPUDeviceCoreLimit",
        "GPUDeviceMemoryAllocated",
        "GPUDeviceSharedNum",
        "GPUDeviceCoreAllocated",
        "nodeGPUOverview",
        "nodeGPUMemoryPercentage",
    ):
        assert len(series[old]) == 3
        assert {"nodeid", "deviceuuid", "deviceidx", "zone"} <= {label for label, _ in next(iter(series[old]))}
    assert series["QuotaUsed"] == {
        tuple(
            sorted(
                {"quotanamespace": "default", "quotaName": "nvidia.com/gpumem", "limit": "9000", "zone": "vGPU"}.items()
            )
        ): 450
    }
    given = {
        (dict(labels)["pod"], dict(labels)["container_index"]): value
        for labels, value in series["hami_vgpu_memory_allocated_bytes"].items()
    }
    assert given[("a", "0")] == 300 * MIB


async def test_every_metric_stands_together_with_one_help_and_type() -> None:
    async with serving(*OBJECTS, settings=ALL) as client:
        text, _ = await scraped(client)
    heads = Counter(line.split()[2] for line in text.splitlines() if line.startswith("# TYPE"))
    assert set(heads.values()) == {1}
    seen: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            seen.append(line.split()[2])
        elif not line.startswith("#"):
            assert line.startswith(seen[-1])


async def test_a_compressed_scrape_has_the_same_samples() -> None:
    async with serving(*OBJECTS, settings=ALL) as client:
        plain = await client.send("GET", "/metrics", headers={"Accept-Encoding": "identity"})
        async with (
            aiohttp.ClientSession(client.url, auto_decompress=False) as session,
            session.get("/metrics", headers={"Accept-Encoding": "gzip"}) as answer,
        ):
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.content_type == "text/plain"
            packed = gzip.decompress(await answer.read())
    assert [line for line in packed.splitlines() if b"uuid=" in line] == [
        line for line in plain.body.splitlines() if b"uuid=" in line
    ]


def test_a_step_is_short_however_many_pods_there_are() -> None:
    pods = [bound(f"p{number}", f"n{number % 7}", f"GPU-n{number % 7}-0", 1) for number in range(1200)]
    cluster = make_cluster(*(node(f"n{number}") for number in range(7)), *pods)
    texts = [text.decode() for text in extra_series(cluster, ALL)]
    assert max(text.count("\n") for text in texts) <= 1000
    assert sum(text.count("gpu_extender_pod_memory_bytes{") for text in texts) == len(pods)
    assert sum(text.count("hami_vgpu_memory_allocated_bytes{") for text in texts) == len(pods)


async def test_texts_of_labels_are_quoted() -> None:
    odd = 'GPU-"\\x'
    holder = bound("p", "n1", odd)
    async with serving(node("n1", [card(odd)]), holder, settings=ALL) as client:
        _, series = await scraped(client)
    for name in ("gpu_extender_pod_slots", "gpu_extender_card_slots_allocated"):
        assert [dict(labels)["uuid"] for labels in series[name]] == [odd]
    assert [dict(labels)["device_uuid"] for labels in series["hami_vgpu_core_allocated_ratio"]] == [odd]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: apt-get install prometheus)")
async def test_promtool_finds_nothing_wrong() -> None:
    own = ServerSettings(port=0, metrics_per_card=True, metrics_per_pod=True)
    async with serving(*OBJECTS, settings=own) as client:
        await client.filter(pod("q"), "n1", "n2")
        text, _ = await scraped(client)
    checked = subprocess.run(  # noqa: ASYNC221 - nobody else runs in this loop
        [str(PROMTOOL), "check", "metrics"], input=text.encode(), capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
