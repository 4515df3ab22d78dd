"""The benchmark runs, measures what it promises and writes what it measured. No test judges a time.

The test must not know how the extender decides. Invariant: it runs on a cluster of a few nodes, in seconds.
"""

import json
import socket
from pathlib import Path
from xml.etree import ElementTree as ET

import orjson
import pytest

from benchmarks import bench_filter, chart, targets
from benchmarks.figures import ECHO, EXTENDER, PAIR, PRIORITIZE, Figures, Kind, Size, Step, Summary
from benchmarks.http_load import Address, Connection
from benchmarks.questions import INIT_SIDECAR_APP, Changes, Questions, cards_with_room
from extender.wire.extender_v1 import decode_args

NODES = 20


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the figures and the picture of one small run."""
    folder = tmp_path_factory.mktemp("bench")
    files = ["-o", str(folder / "figures.json"), "--plot", str(folder / "figures.svg")]
    assert bench_filter.main(["--size", f"{NODES}x100", "--calls", "4", "--warm-up", "1", *files]) == 0
    return folder


@pytest.fixture(scope="module")
def figures(written: Path) -> dict:
    return json.loads((written / "figures.json").read_bytes())


def test_every_case_was_asked_of_both_servers(figures: dict) -> None:
    assert [row["kind"] for row in figures["rows"]] == [
        kind.value for kind in (Kind.NEW, Kind.NEW, Kind.OTHER, Kind.AGAIN, Kind.REFUSED, Kind.GREEDY)
    ]
    for row in figures["rows"]:
        assert set(row["summaries"]) == {EXTENDER, ECHO}
        for parts in row["summaries"].values():
            for part in parts.values():
                assert part["calls"] == 4
                assert 0 < part["p50_us"] <= part["p90_us"] <= part["p99_us"] <= part["max_us"]


def test_prioritize_follows_only_where_a_node_passed(figures: dict) -> None:
    for row in figures["rows"]:
        asked = PRIORITIZE in row["summaries"][EXTENDER]
        assert asked == (row["passed"] > 0)
        assert PRIORITIZE in row["summaries"][ECHO]
    refused = next(row for row in figures["rows"] if row["kind"] == Kind.REFUSED)
    assert refused["passed"] == 0


def test_the_pods_of_a_row_are_those_of_its_cluster(figures: dict) -> None:
    empty, full = figures["started"]
    assert (empty["nodes"], empty["cards"], empty["pods"]) == (NODES, 8 * NODES, 0)
    assert 0 < full["pods"] <= 100
    assert [row["pods"] for row in figures["rows"]] == [0, *[full["pods"]] * 4, 0]


def test_the_reference_is_measured_beside_the_fast_code(figures: dict) -> None:
    functions = [step["function"] for step in figures["steps"]]
    assert functions[-2:] == ["filter_nodes", "reference.filter_nodes"]
    assert figures["targets"][-1]["what"].endswith("reference.filter_nodes to filter_nodes")


def test_the_machine_is_described(figures: dict) -> None:
    assert set(figures["machine"]) == {"cpu", "cores", "system", "python", "numpy", "load_average"}


def test_the_picture_is_svg_with_a_bar_per_server_and_row(written: Path, figures: dict) -> None:
    root = ET.parse(written / "figures.svg").getroot()  # noqa: S314 - made a moment ago
    bars = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("height") == "14"]
    assert len(bars) == 2 * len(figures["rows"])


def test_percentiles_are_times_that_were_measured() -> None:
    assert Summary.of([1000 * us for us in range(1, 201)]) == Summary(200, 100, 180, 198, 200)
    assert Summary.of([7000]) == Summary(1, 7, 7, 7, 7)
    assert Summary.of([2000, 1000]) == Summary(2, 1, 2, 2, 2)


def row(kind: Kind, size: Size, p50_us: int, p99_us: int) -> Figures:
    pair = Summary(200, p50_us, p50_us, p99_us, p99_us)
    return Figures(kind, size, size.pods, size.nodes, {EXTENDER: {PAIR: pair}, ECHO: {PAIR: pair}})


def test_targets_are_judged_on_their_own_clusters_only() -> None:
    rows = [
        row(Kind.NEW, Size(10_000, 0), 5_000, 9_000),
        row(Kind.NEW, targets.LARGE, 7_000, 16_000),
        row(Kind.GREEDY, Size(10_000, 0), 9_000, 49_000),
        row(Kind.NEW, Size(500, 0), 9_000_000, 9_000_000),
    ]
    judged = {target.what: (target.measured, target.limit, target.met) for target in targets.judge(rows, [])}
    assert judged == {
        "10,000 nodes, 100,000 pods: init + sidecar + app: p50": (7.0, 8.0, True),
        "10,000 nodes, 100,000 pods: init + sidecar + app: p99": (16.0, 15.0, False),
        "10,000 nodes, 0 pods: greedy finds none: p99": (49.0, 50.0, True),
        "10,000 nodes: p50 with 100,000 pods to that with none": (1.4, 1.2, False),
    }


def test_the_ratio_to_the_reference_has_no_target() -> None:
    steps = [
        Step("filter_nodes", 200, 2_000, Summary(9, 100, 1, 1, 1)),
        Step("reference.filter_nodes", 200, 2_000, Summary(9, 5_000, 1, 1, 1)),
    ]
    (ratio,) = targets.judge([], steps)
    assert (ratio.measured, ratio.met) == (50.0, None)


def test_a_question_is_what_kube_scheduler_sends() -> None:
    body = Questions(["n1", "n2"], INIT_SIDECAR_APP, seed=1).next().body()
    assert list(json.loads(body)) == ["Pod", "Nodes", "NodeNames"]
    args = decode_args(body)
    assert args.items is None
    assert args.by_name
    assert 1_000 < len(args.raw_pod) < 4_000


def test_every_question_has_a_new_pod_and_a_new_order() -> None:
    names = [f"n{number}" for number in range(50)]
    first, again = (Questions(names, INIT_SIDECAR_APP, seed=1) for _ in range(2))
    asked = [first.next() for _ in range(3)]
    assert [question.body() for question in asked] == [again.next().body() for _ in range(3)]
    assert len({question.pod for question in asked}) == len({question.names for question in asked}) == 3
    assert all(sorted(question.names) == sorted(names) for question in asked)


def test_changes_come_and_go() -> None:
    changes = Changes([("n1", "GPU-a")], seed=1)
    calls = [changes.next() for _ in range(4)]
    assert [call.method for call in calls] == ["POST", "DELETE"] * 2
    created = orjson.loads(calls[0].body)
    assert calls[1].path == f"/api/v1/pods/{created['metadata']['namespace']}/{created['metadata']['name']}"
    assert created["spec"]["nodeName"] == "n1"
    assert calls[0].body != calls[2].body


def test_changes_go_to_cards_that_take_another_pod() -> None:
    card = {"uuid": "a", "overcommitted": False, "blocked": [], "exclusive": False}
    free = {"free": {"slots": 1, "memory": 16, "cores": 1}}
    full = [{"free": {**free["free"], name: 0}} for name in ("slots", "memory", "cores")]
    cards = [
        card | free,
        card | free | {"exclusive": True, "uuid": "b"},
        *(card | each | {"uuid": "c"} for each in full),
    ]
    assert cards_with_room([{"node": "n1", "devices": cards}]) == [("n1", "a")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--size", "10"],
        ["--size", "0x5"],
        ["--calls", "0"],
        ["--calls", "x"],
        ["--against", "/nowhere"],
        ["-o", "/nowhere/figures.json"],
        ["--plot", "figures.gif"],
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_filter.main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: command line: ")
    assert err.count("\n") == 1


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must end in"):
        chart.write([row(Kind.NEW, Size(1, 0), 10, 20)], tmp_path / "figures.gif", "")
    assert list(tmp_path.iterdir()) == []


def test_the_same_figures_give_the_same_picture() -> None:
    rows = [row(Kind.NEW, Size(1, 0), 1_234, 5_678)]
    assert chart.svg(rows, "a < b") == chart.svg(rows, "a < b")
    assert "a &lt; b" in chart.svg(rows, "a < b")


def test_a_closed_connection_is_an_error() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Connection(Address(*server.getsockname()), timeout_seconds=5) as connection,
    ):
        accepted, _ = server.accept()
        accepted.close()
        with pytest.raises(OSError, match=r"closed|reset|[Bb]roken"):
            connection.call("GET", "/")
