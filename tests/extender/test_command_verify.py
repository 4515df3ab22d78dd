"""`verify` shows everything that is wrong with a cluster, beside correct numbers for the rest.

It exists because one bad object must neither hide the others nor become free room. It must not change anything.
Invariant: the numbers of a card are the sums over the pods that can be read.
"""

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.extender.nesting import NESTED_ANNOTATION, SAID
from tests.extender.objects import REGISTER, Json, bound, card, container, held, listed, node, pod, quota, status_of
from tests.extender.processes import ROOT, Result, run, run_fresh

DEVICE_KEYS = {"node", "uuid", "capacity", "requested", "free", "overcommitted", "blocked", "pods"}


def verify(folder: Path, *cluster: Json) -> Result:
    path = folder / "cluster.json"
    path.write_text(listed(*cluster), encoding="utf-8")
    return run("verify", "--cluster", path, "-o", "json")


def found(result: Result) -> list[tuple[str, str]]:
    """Return code and object of every problem."""
    assert (result.status, result.err) == (1, "")
    problems = result.json()["problems"]
    assert all(each.keys() == {"code", "object", "message"} and each["message"] for each in problems)
    return [(each["code"], each["object"]) for each in problems]


def requested(result: Result) -> dict[tuple[str, str], Json]:
    """Return what is held, by node and card, where anything is."""
    devices = result.json()["devices"]
    return {(each["node"], each["uuid"]): each["requested"] for each in devices if each["requested"]["slots"]}


def test_a_cluster_in_order_has_no_problems(tmp_path: Path) -> None:
    result = verify(tmp_path, node("n1", 2), bound("p", "n1", "GPU-n1-0", 30, cores=5), pod("pending"))
    assert (result.status, result.err) == (0, "")
    answer = result.json()
    assert answer.keys() == {"devices", "problems"}
    assert answer["problems"] == []
    first, second = answer["devices"]
    assert first.keys() >= DEVICE_KEYS
    assert {key: first[key] for key in DEVICE_KEYS} == {
        "node": "n1",
        "uuid": "GPU-n1-0",
        "capacity": held(10, 1000, 100),
        "requested": held(1, 30, 5),
        "free": held(9, 970, 95),
        "overcommitted": False,
        "blocked": [],
        "pods": ["default/p"],
    }
    assert (second["uuid"], second["requested"], second["pods"]) == ("GPU-n1-1", held(0, 0), [])


def test_a_cluster_without_nodes_has_no_problems(tmp_path: Path) -> None:
    result = verify(tmp_path)
    assert (result.status, result.json()) == (0, {"devices": [], "problems": []})


def test_the_example_cluster_has_the_problems_that_it_describes() -> None:
    result = run_fresh("verify", "--cluster", ROOT / "manifests" / "examples" / "cluster.yaml", "-o", "json")
    assert Counter(code for code, _ in found(result)) == {
        "OrphanedDevice": 1,
        "Overcommitted": 1,
        "UndecodableAllocation": 1,
    }


class Bad(NamedTuple):
    """A bad object: the code and the object of its problem, and what the message must say."""

    value: Json
    code: str
    where: str
    text: str


BAD = [
    Bad(node("text", 0, annotations={REGISTER: "GPU-1,10:"}), "UnreadableRegister", "node text", "JSON"),
    Bad(node("object", 0, annotations={REGISTER: "{}"}), "UnreadableRegister", "node object", "list"),
    Bad(node("deep", 0, annotations={REGISTER: NESTED_ANNOTATION}), "UnreadableRegister", "node deep", SAID),
    Bad(node("entry", [card("GPU-e", memory=-1)]), "UnreadableRegister", "node entry", "devmem of GPU-e: -1"),
    Bad({"kind": "Node", "metadata": {}}, "UnreadableRegister", "node (no name)", "metadata.name"),
    Bad(
        {"kind": "Node", "metadata": {"name": "seventeen", "annotations": {"a": 17}}},
        "UnreadableRegister",
        "node seventeen",
        "metadata.annotations[a]: 17",
    ),
    Bad({"kind": "Pod", "metadata": [7]}, "UndecodableAllocation", "pod (no name)", "metadata: [7]"),
    Bad(
        pod("containers") | {"spec": {"containers": "main"}},
        "UndecodableAllocation",
        "pod default/containers",
        'spec.containers: "main"',
    ),
    Bad(
        pod("unreadable", node="n2", allocation="GPU-n2-1,NVIDIA,x,30:;"),
        "UndecodableAllocation",
        "pod default/unreadable",
        "'x' is not an integer",
    ),
    Bad(pod("missing", node="n3"), "MissingAllocation", "pod default/missing", "node n3"),
    Bad(
        quota({"requests.nvidia.com/gpux": "1"}, name="unknown"),
        "UnknownQuotaKey",
        "resourcequota default/unknown",
        "requests.nvidia.com/gpux",
    ),
    Bad(
        quota({"requests.nvidia.com/gpu": "many"}, name="many"),
        "UnknownQuotaKey",
        "resourcequota default/many",
        "many",
    ),
    Bad(
        {"kind": "ResourceQuota", "metadata": {"name": "list", "namespace": "default"}, "spec": {"hard": []}},
        "UnknownQuotaKey",
        "resourcequota default/list",
        "spec.hard: []",
    ),
    Bad(bound("orphan", "n2", "GPU-lost"), "OrphanedDevice", "node n2 device GPU-lost", "default/orphan"),
    Bad(bound("stray", "lost", "GPU-1"), "OrphanedDevice", "node lost device GPU-1", "default/stray"),
    Bad(
        bound("large", "n2", "GPU-n2-0", 1001),
        "Overcommitted",
        "node n2 device GPU-n2-0",
        "memory 1001 held of 1000",
    ),
]


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_bad_objects_among_good_ones_are_named_and_stop_nobody(tmp_path: Path, kind: str) -> None:
    objects = [node("n1"), node("n2", 2), node("n3"), bound("p", "n1", "GPU-n1-0", 30), *(bad.value for bad in BAD)]
    if kind == "json":
        result = verify(tmp_path, *objects)
    else:
        path = tmp_path / "cluster.yaml"
        path.write_text("---\n" + "\n---\n".join(map(json.dumps, objects)), encoding="utf-8")
        result = run("verify", "--cluster", path, "-o", "json")
    # An orphaned card, whose capacity is 0, is also over-committed, and still one problem.
    assert found(result) == sorted((bad.code, bad.where) for bad in BAD)
    messages = {(each["code"], each["object"]): each["message"] for each in result.json()["problems"]}
    assert [bad for bad in BAD if bad.text not in messages[bad.code, bad.where]] == []
    assert requested(result) == {
        ("n1", "GPU-n1-0"): held(1, 30),
        ("n2", "GPU-n2-0"): held(1, 1001),
        ("n2", "GPU-lost"): held(1, 100),
        ("lost", "GPU-1"): held(1, 100),
    }
    blocked = {each["uuid"]: each["blocked"] for each in result.json()["devices"] if each["blocked"]}
    assert blocked == {"GPU-n2-1": ["UndecodableAllocation"], "GPU-n3-0": ["MissingAllocation"]}


def test_a_uuid_twice_in_one_register_blocks_that_card(tmp_path: Path) -> None:
    result = verify(tmp_path, node("n1", [card("GPU-a"), card("GPU-a", 1), card("GPU-b", 2)]))
    assert found(result) == [("DuplicateDevice", "node n1 device GPU-a")]
    assert [(each["uuid"], each["blocked"]) for each in result.json()["devices"]] == [
        ("GPU-a", ["DuplicateDevice"]),
        ("GPU-b", []),
    ]


def test_a_uuid_on_two_nodes_is_two_cards_and_a_problem(tmp_path: Path) -> None:
    result = verify(tmp_path, node("n1", [card("GPU-a")]), node("n2", [card("GPU-a")]), bound("p", "n2", "GPU-a", 30))
    assert found(result) == [("DuplicateDevice", "device GPU-a")]
    assert requested(result) == {("n2", "GPU-a"): held(1, 30)}
    assert [each["blocked"] for each in result.json()["devices"]] == [[], []]


def test_an_unhealthy_card_is_a_problem_while_pods_hold_it(tmp_path: Path) -> None:
    ill = node("n1", [card("GPU-a", health=False), card("GPU-b", 1, health=False), card("GPU-c", 2)])
    ended = pod("ended", node="n1", status=status_of("Failed"), allocation="GPU-b,NVIDIA,30,0:;")
    result = verify(tmp_path, ill, bound("p", "n1", "GPU-a", 30), bound("q", "n1", "GPU-c", 30), ended)
    assert found(result) == [("UnhealthyDevice", "node n1 device GPU-a")]
    assert result.json()["problems"][0]["message"] == "is unhealthy but held by default/p"


def test_a_vanished_card_is_one_problem(tmp_path: Path) -> None:
    pods = [bound("p", "n1", "GPU-gone", 30), bound("q", "n1", "GPU-gone", 2000, cores=100)]
    result = verify(tmp_path, node("n1"), *pods)
    assert found(result) == [("OrphanedDevice", "node n1 device GPU-gone")]


def test_an_exclusive_holder_beside_another_is_over_committed(tmp_path: Path) -> None:
    pods = [bound("whole", "n1", "GPU-n1-0", 30, cores=100), bound("share", "n1", "GPU-n1-0", 30)]
    result = verify(tmp_path, node("n1"), *pods)
    assert found(result) == [("Overcommitted", "node n1 device GPU-n1-0")]
    (device,) = result.json()["devices"]
    assert (device["overcommitted"], device["pods"]) == (True, ["default/share", "default/whole"])


def test_pods_that_have_ended_or_are_pending_hold_and_block_nothing(tmp_path: Path) -> None:
    pods = [
        pod("ended", node="n1", status=status_of("Succeeded"), allocation="junk:"),
        pod("failed", node="n1", status=status_of("Failed")),
        pod("pending", allocation="junk:"),
        pod("plain", [container("main")], node="n1", allocation="junk:"),
    ]
    result = verify(tmp_path, node("n1"), *pods)
    assert [device["blocked"] for device in result.json()["devices"]] == [[]]
    assert requested(result) == {}


def test_several_files_are_one_cluster_and_the_last_object_of_a_name_stands(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.json", tmp_path / "pods.yaml"
    nodes.write_text(listed(node("n1"), node("n1", memory=500)), encoding="utf-8")
    pods.write_text(json.dumps(bound("p", "n1", "GPU-n1-0", 30)), encoding="utf-8")
    result = run("verify", "--cluster", nodes, "--cluster", pods, "-o", "json")
    (device,) = result.json()["devices"]
    assert (device["capacity"], device["requested"]) == (held(10, 500, 100), held(1, 30))


def test_text_for_a_person_counts_the_problems(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1"), bound("p", "n1", "GPU-lost")), encoding="utf-8")
    result = run("verify", "--cluster", path)
    text = result.out.decode()
    assert result.status == 1
    assert all(part in text for part in ("GPU-n1-0", "0/1000", "orphaned", "default/p", "1 problem", "OrphanedDevice:"))


def malformed(rng: random.Random, uuid: str) -> str:
    """An annotation that no reader can use."""
    return rng.choice(
        [
            f"{uuid},NVIDIA,x,30:;",
            f"{uuid},NVIDIA,-1,30:;",
            f"{uuid},NVIDIA,10,1.5:;",
            f"{uuid},NVIDIA,10:;",
            f"{uuid},NVIDIA,10,",
            f"{uuid}:;",
            ",NVIDIA,10,0:;",
            f"{uuid},NVIDIA,99999999999999999999,0:;",
            "junk",
            "null",
            "{}",
        ]
    )


@pytest.mark.timeout(60)
def test_three_hundred_malformed_annotations_among_ten_thousand_good_ones(tmp_path: Path) -> None:
    rng = random.Random(7)
    cards = [(f"n{n:03}", f"GPU-{n:03}-{c}") for n in range(400) for c in range(8)]
    nodes = [
        node(f"n{n:03}", [card(f"GPU-{n:03}-{c}", c, memory=81920, slots=100) for c in range(8)]) for n in range(400)
    ]
    expected: Counter[tuple[str, str]] = Counter()
    objects = []
    for number in range(10_000):
        (where, uuid), memory = rng.choice(cards), rng.randrange(1, 3000)
        expected[where, uuid] += memory
        objects.append(bound(f"good-{number}", where, uuid, memory))
    for number in range(300):
        where, uuid = rng.choice(cards)
        objects.append(pod(f"bad-{number}", node=where, allocation=malformed(rng, uuid)))
    rng.shuffle(objects)
    started = time.monotonic()
    result = verify(tmp_path, *nodes, *objects)
    assert time.monotonic() - started < 30
    problems = result.json()["problems"]
    assert len(problems) == 300
    assert {each["code"] for each in problems} == {"UndecodableAllocation"}
    assert {each["object"] for each in problems} == {f"pod default/bad-{number}" for number in range(300)}
    assert {key: use["memory"] for key, use in requested(result).items()} == expected
