"""The synthetic cluster keeps its promises, judged by arithmetic of this file's own.

The test must not know how the generator draws or places: it reads the objects as any other reader would. Invariant:
whatever the seed, no card is over-committed and every row belongs to a container.
"""

import io
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import ArgumentError, generate, main, write

ROOT = Path(__file__).resolve().parents[2]
ALLOCATED = "hami.io/vgpu-devices-allocated"
Three = tuple[int, int, int]


class Cluster:
    """The objects of one run, by kind."""

    def __init__(self, nodes: int, pods: int, seed: int, cards: int) -> None:
        self.items = list(generate(nodes, pods, seed, cards))
        self.nodes, self.pods, self.quotas = (
            [item for item in self.items if item["kind"] == kind] for kind in ("Node", "Pod", "ResourceQuota")
        )
        self.cards: dict[str, dict[str, Any]] = {}
        for node in self.nodes:
            for card in json.loads(node["metadata"]["annotations"]["hami.io/node-nvidia-register"]):
                self.cards[card["id"]] = card | {"node": node["metadata"]["name"]}


@pytest.fixture(scope="module")
def roomy() -> Cluster:
    return Cluster(nodes=150, pods=1500, seed=7, cards=8)


@pytest.fixture(scope="module")
def crowded() -> Cluster:
    return Cluster(nodes=6, pods=900, seed=3, cards=4)


@pytest.fixture(scope="module", params=["roomy", "crowded"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Cluster)
    return found


def containers(pod: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    inits = [
        ("sidecar" if c.get("restartPolicy") == "Always" else "init", c) for c in pod["spec"].get("initContainers", [])
    ]
    return inits + [("app", c) for c in pod["spec"]["containers"]]


def rows(pod: dict[str, Any]) -> list[list[tuple[str, int, int]]]:
    """Read the allocation annotation: one list of (UUID, MiB, cores) per container."""
    text = pod["metadata"]["annotations"][ALLOCATED]
    assert text.endswith(";")
    found = []
    for part in text[:-1].split(";"):
        assert part == "" or part.endswith(":")
        devices = [device.split(",") for device in part.split(":")[:-1]]
        assert all(len(device) == 4 and device[1] == "NVIDIA" for device in devices)
        found.append([(device[0], int(device[2]), int(device[3])) for device in devices])
    return found


def peak_of(entries: list[tuple[str, Three]]) -> Three:
    result = []
    for dimension in range(3):
        sidecars = apps = highest = 0
        for kind, three in entries:
            if kind == "init":
                highest = max(highest, sidecars + three[dimension])
            elif kind == "sidecar":
                sidecars += three[dimension]
            else:
                apps += three[dimension]
        result.append(max(highest, sidecars + apps))
    return result[0], result[1], result[2]


def peaks(pod: dict[str, Any]) -> dict[str, Three]:
    """Return what a pod that is not terminal holds at its peak, by card."""
    entries: dict[str, list[tuple[str, Three]]] = defaultdict(list)
    for (kind, _), row in zip(containers(pod), rows(pod), strict=True):
        for uuid, memory, cores in row:
            entries[uuid].append((kind, (1, memory, cores)))
    return {uuid: peak_of(uses) for uuid, uses in entries.items()}


def holders(cluster: Cluster) -> list[dict[str, Any]]:
    return [pod for pod in cluster.pods if pod["status"]["phase"] not in {"Succeeded", "Failed"}]


def used(cluster: Cluster) -> dict[str, Three]:
    sums: dict[str, Three] = dict.fromkeys(cluster.cards, (0, 0, 0))
    for pod in holders(cluster):
        for uuid, (slots, memory, cores) in peaks(pod).items():
            assert cluster.cards[uuid]["node"] == pod["spec"]["nodeName"]
            old = sums[uuid]
            sums[uuid] = (old[0] + slots, old[1] + memory, old[2] + cores)
    return sums


def number(quantity: str) -> int:
    for suffix, factor in (("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000), ("Mi", 2**20), ("Gi", 2**30)):
        if quantity.endswith(suffix):
            return int(quantity.removesuffix(suffix)) * factor
    return int(quantity)


def text(seed: int) -> bytes:
    sink = io.BytesIO()
    write(generate(20, 200, seed, 4), sink)
    return sink.getvalue()


# ------------------------------------------------------------------------------------------------------- repeatability


def test_the_same_arguments_give_the_same_bytes() -> None:
    assert text(5) == text(5)


def test_another_seed_gives_other_bytes() -> None:
    assert text(5) != text(6)


def test_more_pods_extend_the_same_cluster() -> None:
    few, many = list(generate(20, 50, 5, 4)), list(generate(20, 200, 5, 4))
    assert many[: 20 + 50] == few[: 20 + 50]


# ------------------------------------------------------------------------------------------------------------ capacity


def test_no_card_is_overcommitted_at_the_peak(cluster: Cluster) -> None:
    for uuid, (slots, memory, cores) in used(cluster).items():
        card = cluster.cards[uuid]
        assert slots <= card["count"]
        assert memory <= card["devmem"]
        assert cores <= card["devcore"]


def test_an_exclusive_pod_is_alone_on_its_card(cluster: Cluster) -> None:
    on_card: dict[str, set[str]] = defaultdict(set)
    exclusive = set()
    for pod in holders(cluster):
        for uuid, _, cores in (device for row in rows(pod) for device in row):
            on_card[uuid].add(pod["metadata"]["uid"])
            if cores == 100:
                exclusive.add(uuid)
    assert exclusive
    assert all(len(on_card[uuid]) == 1 for uuid in exclusive)


def test_no_pod_joins_a_card_without_cores_left(cluster: Cluster) -> None:
    """As pods arrive, none joins an exclusive one, and no row with cores 0 joins a card without free cores."""
    sums: dict[str, int] = defaultdict(int)
    for pod in holders(cluster):
        for uuid, cores in {(uuid, cores) for row in rows(pod) for uuid, _, cores in row}:
            assert sums[uuid] < 100 if cores == 0 else sums[uuid] + cores <= 100
        for uuid, (_, _, cores) in peaks(pod).items():
            sums[uuid] += cores


def test_a_crowded_cluster_is_filled_to_the_last_card(crowded: Cluster) -> None:
    assert 0 < len(crowded.pods) < 900
    for uuid, (slots, memory, cores) in used(crowded).items():
        card = crowded.cards[uuid]
        smallest = card["devmem"] // 1600 * 100
        assert slots == card["count"] or cores == card["devcore"] or card["devmem"] - memory < smallest


def test_a_roomy_cluster_takes_every_pod(roomy: Cluster) -> None:
    assert len(roomy.pods) == 1500


def test_cpu_memory_and_pods_of_a_node_suffice(cluster: Cluster) -> None:
    asked: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in holders(cluster):
        for _, container in containers(pod):
            cpu, memory = (container["resources"]["requests"][name] for name in ("cpu", "memory"))
            asked[pod["spec"]["nodeName"]]["cpu"] += int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)
            asked[pod["spec"]["nodeName"]]["memory"] += number(memory)
        asked[pod["spec"]["nodeName"]]["pods"] += 1
    for node in cluster.nodes:
        sums, allocatable = asked[node["metadata"]["name"]], node["status"]["allocatable"]
        assert sums["cpu"] <= int(allocatable["cpu"].removesuffix("m"))
        assert sums["memory"] <= number(allocatable["memory"])
        assert sums["pods"] <= int(allocatable["pods"])


# ------------------------------------------------------------------------------------------------------------- objects


def test_every_row_is_what_its_container_asks_for(cluster: Cluster) -> None:
    for pod in cluster.pods:
        for (_, container), row in zip(containers(pod), rows(pod), strict=True):
            limits = container["resources"]["limits"]
            assert limits == container["resources"]["requests"]
            assert len({uuid for uuid, _, _ in row}) == len(row) == int(limits.get("nvidia.com/gpu", 0))
            for uuid, memory, cores in row:
                whole = cluster.cards[uuid]["devmem"]
                percent = int(limits.get("nvidia.com/gpumem-percentage", 100))
                asked = limits.get("nvidia.com/gpumem")
                assert memory == (whole * percent // 100 if asked is None else number(asked)) > 0
                assert cores == int(limits.get("nvidia.com/gpucores", 0))


def test_registers_are_what_the_nodes_offer(roomy: Cluster) -> None:
    assert len(roomy.cards) == 150 * 8
    assert len({card["devmem"] for card in roomy.cards.values()}) > 3
    assert all(card["health"] is True and card["mode"] == "hami-core" for card in roomy.cards.values())
    assert {card.get("index", 0) for card in roomy.cards.values()} == set(range(8))
    for node in roomy.nodes:
        for name in ("capacity", "allocatable"):
            assert node["status"][name]["nvidia.com/gpu"] == "80"


def test_names_and_uids_are_unique(cluster: Cluster) -> None:
    names = [(i["kind"], i["metadata"].get("namespace"), i["metadata"]["name"]) for i in cluster.items]
    uids = [item["metadata"]["uid"] for item in cluster.items]
    assert len(set(names)) == len(set(uids)) == len(cluster.items)


def test_the_mix_has_every_kind_of_pod(roomy: Cluster) -> None:
    orders = {tuple(kind for kind, _ in containers(pod)) for pod in roomy.pods}
    assert orders >= {
        ("app",),
        ("sidecar", "app"),
        ("init", "app"),
        ("init", "sidecar", "app"),
        ("sidecar", "init", "app"),
        ("app", "app"),
    }
    devices = [device for pod in roomy.pods for row in rows(pod) for device in row]
    assert {cores for _, _, cores in devices} == {0, 10, 30, 100}
    assert any(len(row) == 2 for pod in roomy.pods for row in rows(pod))
    asked = {name for pod in roomy.pods for _, c in containers(pod) for name in c["resources"]["limits"]}
    assert asked >= {"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"}
    assert {pod["status"]["phase"] for pod in roomy.pods} == {"Running", "Pending", "Succeeded", "Failed"}
    assert {pod["metadata"]["namespace"] for pod in roomy.pods} == {q["metadata"]["namespace"] for q in roomy.quotas}


def test_the_statuses_tell_whether_the_inits_are_over(roomy: Cluster) -> None:
    seen: Counter[bool] = Counter()
    for pod in roomy.pods:
        kinds = [kind for kind, _ in containers(pod)]
        statuses = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
        assert {s["name"] for s in statuses} == {c["name"] for _, c in containers(pod)}
        assert len(statuses) == len(kinds)
        ends = [s["state"].get("terminated", {}) for kind, s in zip(kinds, statuses, strict=True) if kind == "init"]
        if pod["status"]["phase"] == "Pending":
            assert not any("running" in s["state"] for s in pod["status"]["containerStatuses"])
        over = all(end.get("exitCode") == 0 for end in ends)
        assert over == (pod["status"]["phase"] != "Pending") or not ends
        if over:
            assert all(a["finishedAt"] <= b["startedAt"] for a, b in pairwise(ends))
        if ends:
            seen[over] += 1
    assert seen[True] > seen[False] > 0


def test_quotas_hold_what_the_pods_are_charged(cluster: Cluster) -> None:
    charged: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    count: Counter[str] = Counter()
    for pod in holders(cluster):
        entries = []
        for (kind, _), row in zip(containers(pod), rows(pod), strict=True):
            entries.append((kind, (len(row), sum(r[1] for r in row), sum(r[2] for r in row))))
        namespace = pod["metadata"]["namespace"]
        charged[namespace] = [a + b for a, b in zip(charged[namespace], peak_of(entries), strict=True)]
        count[namespace] += 1
    for quota in cluster.quotas:
        namespace, hard = quota["metadata"]["namespace"], quota["spec"]["hard"]
        assert charged[namespace][0] <= number(hard["requests.nvidia.com/gpu"])
        assert charged[namespace][1] <= number(hard["limits.nvidia.com/gpumem"])
        assert charged[namespace][2] <= number(hard["limits.nvidia.com/gpucores"])
        assert number(quota["status"]["used"]["requests.nvidia.com/gpu"]) == charged[namespace][0]
        assert number(quota["status"]["used"]["pods"]) == count[namespace]


def test_a_pod_is_about_as_large_as_a_real_one(roomy: Cluster) -> None:
    sizes = [len(json.dumps(pod, separators=(",", ":"))) for pod in roomy.pods]
    assert 2_000 < sum(sizes) / len(sizes) < 4_000


def test_progress_counts_every_object() -> None:
    seen: list[int] = []
    objects = list(generate(5, 30, 1, 2, seen.append))
    assert seen == list(range(1, len(objects) + 1))


# -------------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize(
    "arguments,line",
    [
        (["--nodes", "0"], "error: nodes: 0: must be 1 to 20000"),
        (["--nodes", "20001"], "error: nodes: 20001: must be 1 to 20000"),
        (["--cards", "0"], "error: cards: 0: must be 1 to 16"),
        (["--cards", "17"], "error: cards: 17: must be 1 to 16"),
        (["--pods", "-1"], "error: pods: -1: must be at least 0"),
        (["--seed", "-1"], "error: seed: -1: must be at least 0"),
        (["--pods", "many"], "error: pods: many: must be an integer"),
        (
            ["-o", "missing-folder/cluster.json"],
            "error: output: missing-folder/cluster.json: No such file or directory",
        ),
    ],
)
def test_a_bad_argument_is_named(arguments: list[str], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == line + "\n"


def test_a_bad_argument_leaves_the_file_alone(tmp_path: Path) -> None:
    kept = tmp_path / "cluster.json"
    kept.write_text("kept")
    assert main(["--nodes", "0", "-o", str(kept)]) == 2
    assert kept.read_text() == "kept"


def test_generate_refuses_at_once() -> None:
    with pytest.raises(ArgumentError, match=r"^cards: 17: must be 1 to 16$"):
        generate(1, 1, 1, cards=17)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.synthetic", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def lines_of_progress(stderr: str) -> Iterator[str]:
    return (line.split(" (")[0] for line in stderr.splitlines())


def test_the_command_writes_a_list(tmp_path: Path) -> None:
    to_file = run("--nodes", "10", "--pods", "60", "--seed", "4", "--cards", "2", "-o", str(tmp_path / "c.json"))
    assert (to_file.returncode, to_file.stdout) == (0, "")
    to_stdout = run("--nodes", "10", "--pods", "60", "--seed", "4", "--cards", "2")
    assert to_stdout.stdout == (tmp_path / "c.json").read_text()
    assert list(lines_of_progress(to_stdout.stderr)) == [f"{percent} %" for percent in range(10, 101, 10)]
    document = json.loads(to_stdout.stdout)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    assert Counter(item["kind"] for item in document["items"]) == {"Node": 10, "Pod": 60, "ResourceQuota": 8}


def test_the_command_says_how_many_pods_fitted() -> None:
    done = run("--nodes", "1", "--pods", "500", "--cards", "1")
    placed = sum(item["kind"] == "Pod" for item in json.loads(done.stdout)["items"])
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == f"placed {placed} of 500 pods: no card has room for more"


def test_a_usage_error_has_the_same_form() -> None:
    done = run("--nodes")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: command line: --nodes: argument --nodes: expected one argument\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_named() -> None:
    done = run("--nodes", "1", "--pods", "3", "-o", "/dev/full")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: output: /dev/full: No space left on device"
