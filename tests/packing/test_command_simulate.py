"""`gpu-extender simulate`."""

import json
from pathlib import Path

import pytest
import yaml

from extender.cli import main
from tests.packing.traces import write_trace


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["simulate", *arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_trace_under_two_policies_and_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--trace-dir", write_trace(tmp_path), "--policy", "fragmentation", "--policy", "random"]
    answer = _json(capsys, *arguments, "--seed", "1", "--seed", "2")
    assert (answer["nodes"], answer["cards"], answer["pods"], answer["demand"]) == (4, 14, 29, 130)
    assert [entry["policy"] for entry in answer["policies"]] == ["fragmentation", "random"]
    for entry in answer["policies"]:
        assert entry["seeds"] == [1, 2]
        runs = [run["allocated"]["100"] for run in entry["runs"]]
        assert entry["allocated"]["100"]["mean"] == pytest.approx(sum(runs) / 2, abs=1e-3)
        assert 0 < entry["allocated"]["130"]["mean"] <= 100
    assert _json(capsys, *arguments, "--seed", "1", "--seed", "2") == answer


def test_text_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, base = write_trace(tmp_path), str(tmp_path / "curve")
    assert main(["simulate", "--trace-dir", folder, "--policy", "fgd", "--plot", base]) == 0
    shown = capsys.readouterr()
    assert "4 nodes, 14 cards, 29 pods to draw from" in shown.out
    assert f"wrote {base}.svg" in shown.out
    assert not shown.err
    svg = Path(f"{base}.svg").read_bytes()
    assert b"<svg" in svg
    assert Path(f"{base}.png").read_bytes()[1:4] == b"PNG"
    assert main(["simulate", "--trace-dir", folder, "--policy", "fgd", "--plot", base + ".svg"]) == 0
    assert Path(f"{base}.svg").read_bytes() == svg


def test_a_dump_and_the_example_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = "manifests/examples/cluster.yaml"
    answer = _json(capsys, "--cluster", example, "--policy", "binpack", "--policy", "spread", "--demand", "60")
    assert answer["nodes"] == 14
    assert answer["cards"] > 0
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump(pod))
    answer = _json(capsys, "--cluster", example, "-f", str(path), "--policy", "fragmentation", "--demand", "30")
    assert answer["pods"] == 1
    # Half of each of the cards that still take pods, one pod after another.
    assert answer["policies"][0]["runs"][0]["allocated"]["20"] == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "error: --trace-dir, --cluster: (none): one of them must say what to replay"),
        (["--trace-dir", "/nowhere"], "error: --trace-dir: /nowhere/openb_node_list_gpu_node.csv: No such file"),
        (["--trace-dir", "x", "--policy", "best"], "invalid choice: 'best'"),
        (["--trace-dir", "x", "--demand", "0"], "must be from 1 to 1000"),
        (["--trace-dir", "x", "--seed", "-1"], "must be a whole number"),
        (["--trace-dir", "x", "--expected-workload", "/nowhere.yaml"], "error:"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["simulate", *arguments])
    except SystemExit as stopped:
        status = int(str(stopped.code))
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert message in shown.err
    assert shown.err.count("\n") == 1
