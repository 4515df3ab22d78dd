"""Probes and metrics over real HTTP.

They exist because a deployment depends on them first. They must not know how a number is computed. Invariant: what
Prometheus reads follows the state, and no label names a pod, a card or a node.
"""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from accounting.cards import exact_fit
from tests.extender.objects import STEADY, asks, bound, container, node, phased, pod, quota
from tests.extender.serving import Client, asked, serving

MIB = 1 << 20
DIMENSIONS = ("slots", "memory_bytes", "cores_ratio")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def samples(client: Client) -> Samples:
    """Return every sample by its name and sorted labels, as Prometheus would read them."""
    answer = await client.send("GET", "/metrics")
    assert answer.status == 200
    families = text_string_to_metric_families(answer.body.decode())
    found = [sample for family in families for sample in family.samples]
    read = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in found}
    assert len(read) == len(found)
    return read


def value(read: Samples, name: str, **labels: str) -> float:
    return read[f"gpu_extender_{name}", tuple(sorted(labels.items()))]


def calls(read: Samples, verb: str, result: str = "ok") -> float:
    return value(read, "request_duration_seconds_count", verb=verb, result=result)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_probes_answer(path: str) -> None:
    async with serving() as client:
        for method in ("GET", "HEAD"):
            assert (await client.send(method, path)).status == 200


async def test_the_root_answers() -> None:
    async with serving() as client:
        answer = await client.send("GET", "/")
        assert answer.status == 200
        assert answer.body


async def test_a_new_server_shows_zeros() -> None:
    async with serving() as client:
        read = await samples(client)
        assert value(read, "cache_nodes") == value(read, "cache_pods") == 0
        assert calls(read, "filter") == calls(read, "bind", "error") == 0
        assert value(read, "capacity_memory_bytes") == 0
        assert value(read, "problems", code="OrphanedDevice") == 0


async def test_calls_are_counted_by_verb_and_result() -> None:
    async with serving(node("n1"), max_body_bytes=4096) as client:
        await client.place(pod(), "n1")
        await client.prioritize(pod(), "n1")
        for body in (b"", b"{}", b" " * 5000):
            await client.post("/filter", body)
        await client.post("/scheduler/filter", asked(pod(), "n1"))
        read = await samples(client)
    assert (calls(read, "filter"), calls(read, "filter", "error")) == (2, 3)
    assert (calls(read, "prioritize"), calls(read, "bind"), calls(read, "preempt")) == (1, 1, 0)
    buckets = [labels for name, labels in read if name == "gpu_extender_request_duration_seconds_bucket"]
    assert len(buckets) > 10


async def test_refused_nodes_are_counted_by_code_and_memory_answers_are_counted() -> None:
    async with serving(node("n1"), node("n2", 0), bound("p", "n1", "GPU-n1-0", 950)) as client:
        for _ in range(3):
            await client.filter(pod("q"), "n1", "n2", "n3")
        read = await samples(client)
    assert value(read, "nodes_rejected_total", code="InsufficientMemory") == 1
    assert value(read, "nodes_rejected_total", code="NoDevices") == 1
    assert value(read, "nodes_rejected_total", code="NodeUnknown") == 1
    assert value(read, "answers_from_memory_total") == 2


async def test_exact_searches_and_their_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # 700 + 300 + 200 and 400 three times, on two cards of 1200: no greedy order finds it.
    apps = [container(f"c{place}", asks(memory=size)) for place, size in enumerate((400, 400, 400, 700, 300, 200))]
    async with serving(node("n1", 2, memory=1200)) as client:
        read = await samples(client)
        assert value(read, "exact_searches_total") == value(read, "exact_search_limits_total") == 0
        found = await client.filter(pod("p", apps), "n1")
        assert found["NodeNames"] == ["n1"]
        monkeypatch.setattr(exact_fit, "STEPS", 0)
        cut_off = await client.filter(pod("q", apps), "n1")
        assert cut_off["FailedNodes"]["n1"].startswith("SearchLimit: ")
        read = await samples(client)
    assert (value(read, "exact_searches_total"), value(read, "exactly_searched_nodes_total")) == (2, 2)
    assert value(read, "exact_search_limits_total") == value(read, "nodes_rejected_total", code="SearchLimit") == 1


async def test_gauges_follow_the_state() -> None:
    async with serving(node("n1", 2), node("n2"), quota({"limits.nvidia.com/gpumem": "500"})) as client:
        read = await samples(client)
        assert (value(read, "cache_nodes"), value(read, "cache_pods")) == (2, 0)
        assert [value(read, f"capacity_{each}") for each in DIMENSIONS] == [30, 3000 * MIB, 3]
        await client.create(phased())
        await client.create(bound("q", "n2", "GPU-n2-0", 100, cores=10))
        read = await samples(client)
        assert value(read, "cache_pods") == 2
        assert [value(read, f"requested_{each}") for each in DIMENSIONS] == [3, 122 * MIB, 0.1]
        labels = {"namespace": "default", "resource": "nvidia.com/gpumem"}
        assert value(read, "quota_hard_memory_bytes", **labels) == 500 * MIB
        assert value(read, "quota_used_memory_bytes", **labels) == 122 * MIB
        await client.create(phased(STEADY), 200)
        read = await samples(client)
        assert value(read, "requested_memory_bytes") == value(read, "quota_used_memory_bytes", **labels) == 112 * MIB
        await client.delete("p")
        await client.delete("q")
        read = await samples(client)
        assert value(read, "requested_slots") == value(read, "quota_used_memory_bytes", **labels) == 0


async def test_problems_are_counted_by_code() -> None:
    objects = [
        bound("lost", "n1", "GPU-lost", 1),
        bound("large", "n1", "GPU-n1-0", 5000),
        pod("unreadable", node="n1", allocation="GPU-n1-1,NVIDIA,x,0:;"),
        pod("missing", node="n2"),
    ]
    async with serving(node("n1", 2), node("n2"), *objects) as client:
        read = await samples(client)
        report = await client.get("/api/v1/verify")
    for code, count in {
        "OrphanedDevice": 1,
        "Overcommitted": 1,
        "UndecodableAllocation": 1,
        "MissingAllocation": 1,
        "DuplicateDevice": 0,
    }.items():
        assert value(read, "problems", code=code) == count
        assert [each["code"] for each in report["problems"]].count(code) == count


async def test_no_label_names_a_pod_a_card_or_a_node() -> None:
    objects = [
        node("some-node", 2),
        bound("some-pod", "some-node", "GPU-some-node-0", namespace="team"),
        quota({"requests.nvidia.com/gpu": "3"}, namespace="team"),
        bound("lost-pod", "lost-node", "GPU-lost"),
    ]
    async with serving(*objects) as client:
        asking = pod("asking-pod", [container("some-container", asks(1, 5000))])
        await client.filter(asking, "some-node", "lost-node", "other-node")
        await client.bind(asking, "some-node")
        read = await samples(client)
    names = {label for _, labels in read for label, _ in labels}
    of_python = {"implementation", "version", "major", "minor", "patchlevel", "generation"}
    assert (
        names
        <= {"verb", "result", "code", "dimension", "namespace", "resource", "le", "message", "python", "kubernetes"}
        | {"port", "why", "kind"}
        | of_python
    )
    of_the_process = {name for name, _ in read if name.startswith(("process_", "python_"))}
    assert {
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_cpu_seconds_total",
        "python_info",
    } <= of_the_process
    text = str(list(read))
    assert all(word not in text for word in ("-node", "-pod", "GPU-", "-container"))
