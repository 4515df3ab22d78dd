"""`explain`: which nodes take a pod, on which cards, and why not, with the numbers behind every reason.

It exists because the wire carries one short code per node. It must not know how the answer is found. Invariant: a node
fits here exactly if filter would pass it, and the pod's own booking never counts against it.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.extender.inside import run_inside
from tests.extender.objects import (
    CORDON,
    REGISTER,
    Json,
    asks,
    bound,
    card,
    container,
    held,
    listed,
    node,
    pod,
    quota,
    rows,
    sidecar,
)
from tests.extender.processes import Result, run, run_fresh

#: Asks for 400 MiB and 30 percent of a card that is no T4 and not GPU-banned.
ASKING = pod(
    "p",
    [container("main", asks(1, 400, 30))],
    annotations={"nvidia.com/nouse-gputype": "T4", "nvidia.com/nouse-gpuuuid": "GPU-banned"},
)


class Refusing(NamedTuple):
    """A node that refuses: the deciding code, what the message must say, the cards concerned, and the objects."""

    code: str
    texts: tuple[str, ...]
    cards: tuple[str, ...]
    objects: tuple[Json, ...]


def alone(
    name: str, code: str, *texts: str, entry: Json | None = None, more: tuple[Json, ...] = (), **of: object
) -> Refusing:
    """A refusing node with one card GPU-<name>, whose entry in the register has these changes."""
    known = card(f"GPU-{name}", **of) if entry is None else entry  # type: ignore[arg-type]
    return Refusing(code, texts, (known["id"],), (node(name, [known]), *more))


REFUSING = {
    "memory": Refusing(
        "InsufficientMemory",
        ("app container main wants 1 card", "400 MiB wanted", "350 MiB free of 1000"),
        ("GPU-m0", "GPU-m1"),
        (
            node("memory", [card("GPU-m0"), card("GPU-m1", 1)]),
            bound("m0", "memory", "GPU-m0", 700),
            bound("m1", "memory", "GPU-m1", 650),
        ),
    ),
    "cores": alone(
        "cores",
        "InsufficientCores",
        "cores 30 wanted",
        "25 free",
        more=(bound("c", "cores", "GPU-cores", 1, cores=75),),
    ),
    "slots": alone("slots", "InsufficientSlots", "slots", "1", count=1, more=(bound("s", "slots", "GPU-slots", 1),)),
    "exclusive": alone(
        "exclusive", "ExclusiveConflict", more=(bound("e", "exclusive", "GPU-exclusive", 1, cores=100),)
    ),
    "unhealthy": alone("unhealthy", "DeviceUnhealthy", health=False),
    "model": alone("model", "TypeMismatch", type="NVIDIA Tesla T4"),
    "banned": alone("banned", "UUIDMismatch", id="GPU-banned"),
    "mig": alone("mig", "ModeMismatch", mode="mig"),
    "cordoned": Refusing(
        "DeviceCordoned", (), ("GPU-co",), (node("cordoned", [card("GPU-co")], annotations={CORDON: "GPU-x,GPU-co"}),)
    ),
    "doubled": Refusing("DeviceBlocked", (), ("GPU-d",), (node("doubled", [card("GPU-d"), card("GPU-d", 1)]),)),
    "unreadable-card": alone(
        "unreadable-card",
        "DeviceBlocked",
        more=(pod("u", node="unreadable-card", allocation="GPU-unreadable-card,NVIDIA,x,0:;"),),
    ),
    "overcommitted": alone(
        "overcommitted", "DeviceOvercommitted", more=(bound("o", "overcommitted", "GPU-overcommitted", 1001),)
    ),
    "unreadable-node": Refusing(
        "AllocationUnreadable",
        ("default/missing",),
        (),
        (node("unreadable-node"), pod("missing", node="unreadable-node")),
    ),
    "no-cards": Refusing("NoDevices", (), (), (node("no-cards", 0),)),
    "gone": Refusing("NodeUnknown", (), (), (bound("g", "gone", "GPU-g"),)),
    "count": Refusing(
        "InsufficientNodeCount",
        ("count of 1", "allows 2", "take 2"),
        (),
        (node("count", 4, allocatable="2"), *(bound(f"n{i}", "count", f"GPU-count-{i}") for i in range(2))),
    ),
    "plugin-gone": Refusing(
        "InsufficientNodeCount", ("allows 0", "plugin is gone"), (), (node("plugin-gone", allocatable="0"),)
    ),
}


def run_explain(folder: Path, asking: Json, *cluster: Json) -> Result:
    path = folder / "cluster.json"
    path.write_text(listed(*cluster), encoding="utf-8")
    return run_inside("explain", "-f", "-", "--cluster", path, "-o", "json", stdin=json.dumps(asking).encode())


def explain(folder: Path, asking: Json, *cluster: Json, status: int = 0) -> dict[str, Json]:
    """Return node name -> its part of the answer, whose shape is checked."""
    result = run_explain(folder, asking, *cluster)
    assert (result.status, result.err) == (status, "")
    answer: Json = result.json()
    assert answer.keys() - {"quotas", "preemption"} == {"pod", "nodes"}
    names = [each["node"] for each in answer["nodes"]]
    assert names == sorted(names)
    for each in answer["nodes"]:
        assert each.keys() - {"holders"} == {"node", "fits"} | ({"devices", "score"} if each["fits"] else {"reasons"})
        named = {uuid for reason in each.get("reasons", ()) for uuid in reason["devices"]}
        assert {holder["uuid"] for holder in each.get("holders", ())} <= named
        assert all(reason.keys() == {"code", "message", "devices"} for reason in each.get("reasons", ()))
    return {each["node"]: each for each in answer["nodes"]}


def codes(part: Json) -> list[str]:
    return [reason["code"] for reason in part["reasons"]]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    """Return what one run says of all refusing nodes and of one that fits."""
    objects = [each for refusing in REFUSING.values() for each in refusing.objects]
    return explain(tmp_path_factory.mktemp("refusing"), ASKING, *objects, node("open"))


def test_the_nodes_that_fit_show_their_cards_and_scores(refusals: dict[str, Json]) -> None:
    assert {name for name, part in refusals.items() if part["fits"]} == {"open"}
    assert refusals.keys() == {"open", *REFUSING}
    assert refusals["open"] == {
        "node": "open",
        "fits": True,
        "devices": {"GPU-open-0": held(1, 400, 30)},
        "score": 10,
    }


@pytest.mark.parametrize("name", REFUSING)
def test_a_refusal_has_its_code_its_numbers_and_its_cards(refusals: dict[str, Json], name: str) -> None:
    refusing, (first, *others) = REFUSING[name], refusals[name]["reasons"]
    assert first["code"] == refusing.code
    assert first["message"]
    assert [text for text in refusing.texts if text not in first["message"]] == []
    assert (tuple(first["devices"]), others) == (refusing.cards, [])


def test_several_cards_are_refused_one_by_one(tmp_path: Path) -> None:
    cluster = [
        node("n1", [card("GPU-a"), card("GPU-b", 1, health=False), card("GPU-c", 2), card("GPU-d", 3)]),
        bound("full", "n1", "GPU-a", 990),
        bound("busy", "n1", "GPU-d", 1, cores=95),
    ]
    parts = explain(tmp_path, pod("p", [container("main", asks(2, 100, 10))]), *cluster, status=1)
    assert {reason["code"]: reason["devices"] for reason in parts["n1"]["reasons"]} == {
        "InsufficientCores": ["GPU-d"],
        "InsufficientMemory": ["GPU-a"],
        "DeviceUnhealthy": ["GPU-b"],
    }
    assert "wants 2 cards, 1 fit" in parts["n1"]["reasons"][0]["message"]


def test_too_few_cards_and_too_few_of_one_numa_node(tmp_path: Path) -> None:
    two = [container("main", asks(2, 100))]
    cluster = [node("few"), node("split", [card("GPU-a"), card("GPU-b", 1, numa=1)])]
    parts = explain(tmp_path, pod("p", two, annotations={"nvidia.com/numa-bind": "true"}), *cluster, status=1)
    assert (codes(parts["few"])[0], codes(parts["split"])[0]) == ("InsufficientDevices", "NUMAMismatch")
    assert "wants 2 cards; the node has 1" in parts["few"]["reasons"][0]["message"]


@pytest.mark.parametrize(
    "quantities, texts",
    [
        pytest.param(asks(1, "16Gi"), ("limits[nvidia.com/gpumem]", "16Gi", "unit is MiB, write 16384"), id="bytes"),
        pytest.param(asks("-1"), ("limits[nvidia.com/gpu]", "-1"), id="negative count"),
    ],
)
def test_an_invalid_request_fits_nowhere(tmp_path: Path, quantities: Json, texts: tuple[str, ...]) -> None:
    parts = explain(tmp_path, pod("p", [container("main", quantities)]), node("n1"), node("n2"), status=1)
    for part in parts.values():
        assert codes(part) == ["InvalidRequest"]
        assert all(text in part["reasons"][0]["message"] for text in ("spec.containers[main]", *texts))


def test_an_exceeded_quota_fits_nowhere_and_says_by_how_much(tmp_path: Path) -> None:
    limits = quota({"limits.nvidia.com/gpumem": "500", "requests.nvidia.com/gpu": "9"})
    cluster = [node("n1"), node("n2"), bound("other", "n1", "GPU-n1-0", 200), limits]
    parts = explain(tmp_path, ASKING, *cluster, status=1)
    for part in parts.values():
        assert codes(part) == ["QuotaExceeded"]
        assert all(text in part["reasons"][0]["message"] for text in ("default", "gpumem", "500", "200", "400"))


@pytest.mark.parametrize(
    "booked_uid, asking_uid, own",
    [
        pytest.param("uid-p", "uid-p", True, id="the same UID"),
        pytest.param("uid-p", None, True, id="no UID in the manifest"),
        pytest.param(None, "uid-p", True, id="no UID in the cluster"),
        pytest.param(None, None, True, id="no UID at all"),
        pytest.param("uid-p", "uid-new", False, id="another UID under the same name"),
    ],
)
def test_the_own_booking_does_not_count(
    tmp_path: Path, booked_uid: str | None, asking_uid: str | None, own: bool
) -> None:
    booking = bound("p", "n1", "GPU-n1-0", 700, uid=booked_uid)
    limits = quota({"limits.nvidia.com/gpumem": "1000"})
    asking = pod("p", memory=700, uid=asking_uid)
    parts = explain(tmp_path, asking, node("n1"), node("n2"), booking, limits, status=0 if own else 1)
    assert [part["fits"] for part in parts.values()] == [own, own]
    if own:
        assert parts["n1"]["devices"] == {"GPU-n1-0": held(1, 700)}


def test_phases_are_packed_on_one_card(tmp_path: Path) -> None:
    inits = [sidecar("side", asks(1, 2)), container("init", asks(1, 20))]
    packed = {"hami.io/gpu-scheduler-policy": "binpack"}
    asking = pod("p", [container("main", asks(1, 10))], inits=inits, annotations=packed)
    parts = explain(tmp_path, asking, node("n1", 2))
    assert list(parts["n1"]["devices"].values()) == [held(2, 22)]


def test_a_pod_that_asks_for_nothing_fits_everywhere(tmp_path: Path) -> None:
    parts = explain(tmp_path, pod("p", [container("main")]), node("n1"), node("none", 0))
    assert [(part["fits"], part["devices"]) for part in parts.values()] == [(True, {}), (True, {})]


def test_one_pod_of_several_that_fits_nowhere_decides_the_exit_status(tmp_path: Path) -> None:
    pods = {"kind": "List", "items": [pod("small"), pod("large", memory=5000)]}
    result = run_explain(tmp_path, pods, node("n1"))
    assert result.status == 1
    assert [(each["pod"], each["nodes"][0]["fits"]) for each in result.json()] == [
        ("default/small", True),
        ("default/large", False),
    ]


def test_a_process_answers_the_same(tmp_path: Path) -> None:
    cluster = [node("n1"), node("n2", memory=300)]
    expected = run_explain(tmp_path, ASKING, *cluster)
    asking, path = json.dumps(ASKING).encode(), tmp_path / "cluster.json"
    assert run_fresh("explain", "-f", "-", "--cluster", path, "-o", "json", stdin=asking) == expected
    path.write_text(listed(*cluster[1:]), encoding="utf-8")
    assert run("explain", "-f", "-", "--cluster", path, stdin=asking).status == 1


def test_a_cluster_without_nodes_has_no_node_that_fits(tmp_path: Path) -> None:
    assert explain(tmp_path, ASKING, status=1) == {}


def test_text_for_a_person_has_the_reasons_and_says_what_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1"), node("n2", memory=300)), encoding="utf-8")
    result = run("explain", "-f", "-", "--cluster", path, stdin=json.dumps(ASKING).encode())
    text = result.out.decode()
    assert result.status == 0
    assert all(
        part in text for part in ("fits 1 of 2 nodes", "GPU-n1-0", "InsufficientMemory", "400 MiB", "not judged")
    )


def test_a_pod_explained_after_its_rows_are_known_shows_what_it_would_get_now(tmp_path: Path) -> None:
    # The manifest's own annotation is not an answer: it names a card that does not exist.
    asking = pod("p", node="n9", allocation=rows([("GPU-old", 1, 0)]))
    assert explain(tmp_path, asking, node("n1"))["n1"]["devices"] == {"GPU-n1-0": held(1, 100)}


def test_of_a_card_that_does_not_tell_its_memory_no_part_is_promised(tmp_path: Path) -> None:
    """A GB10 registers no memory. Whole cards and plain counts remain possible."""
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1", [card("GPU-a", memory=0)])), encoding="utf-8")

    def asked(resources: Json) -> Json:
        stdin = json.dumps(pod("p", [container("main", resources)])).encode()
        answer = run_inside("explain", "-f", "-", "--cluster", path, "-o", "json", stdin=stdin).json()
        return dict(answer["nodes"][0])

    for percentage in (1, 50, 100):
        (reason,) = asked(asks(1, percentage=percentage))["reasons"]
        assert reason["code"] == "InsufficientMemory"
        assert f"{percentage} percent wanted, of cards that do not tell their memory" in reason["message"]
    assert asked(asks(1, 100))["reasons"][0]["code"] == "InsufficientMemory"
    for whole in (asks(1), asks(1, cores=100), asks(1, cores=10)):
        assert asked(whole)["fits"], whole


@pytest.mark.parametrize("text, why", [("[", "is not JSON"), ("{}", "must be a list"), ('[{"id": 7}]', "entry 0")])
def test_a_register_that_cannot_be_read_is_not_called_empty(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1", 0, annotations={REGISTER: text})), encoding="utf-8")
    result = run_inside("explain", "-f", "-", "--cluster", path, "-o", "json", stdin=json.dumps(pod("p")).encode())
    (reason,) = result.json()["nodes"][0]["reasons"]
    assert reason["code"] == "NoDevices"
    assert reason["message"].startswith("the node's register of cards cannot be read: ")
    assert why in reason["message"]
