"""DRA's objects in cluster files: verify, explain, and files that are read again.

It exists because a dump of a cluster must give the reports that the cluster itself does. It must not repeat the rules.
Invariant: what a file no longer has holds nothing.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from extender.cli import main
from extender.cluster import Cluster, load_objects
from extender.config import Settings
from tests.extender.dra import gpu, resource_claim, resource_slice, result
from tests.extender.objects import Json, bound, card, listed, node, pod

N1 = node("n1", [card("GPU-a", 0, memory=24576), card("GPU-b", 1, memory=24576)])
SLICE = resource_slice(gpu("gpu-0", "GPU-a"), gpu("gpu-1", "GPU-b"))


def dump(path: Path, *objects: Json) -> str:
    path.write_text(listed(N1, SLICE, *objects), encoding="utf-8")
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    status = main([*arguments, "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_verify_names_both_sides_of_an_over_committed_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dump(tmp_path / "d", bound("p", "n1", "GPU-a", 4000), resource_claim("c", result("gpu-0")))
    status, report = said(capsys, "verify", "--cluster", path)
    (problem,) = report["problems"]
    assert (status, problem["code"], problem["object"]) == (1, "Overcommitted", "node n1 device GPU-a")
    assert problem["message"].endswith("; held by DRA claims: default/c; by pods: default/p")
    main(["verify", "--cluster", path])
    assert "default/p, claim default/c" in capsys.readouterr().out


def test_explain_names_who_holds_the_cards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims = resource_claim("c", result("gpu-0"), result("gpu-1"))
    path, asked = dump(tmp_path / "d", claims), tmp_path / "p"
    asked.write_text(json.dumps(pod("q", memory=10)), encoding="utf-8")
    status, answer = said(capsys, "explain", "-f", str(asked), "--cluster", path)
    (refused,) = answer["nodes"]
    assert (status, refused["reasons"][0]["code"]) == (1, "ExclusiveConflict")
    assert [(each["uuid"], each["kind"], each["name"]) for each in refused["holders"]] == [
        ("GPU-a", "claim", "default/c"),
        ("GPU-b", "claim", "default/c"),
    ]
    main(["explain", "-f", str(asked), "--cluster", path])
    assert "held by: claim default/c" in capsys.readouterr().out


def test_files_that_are_read_again_free_what_they_no_longer_have(tmp_path: Path) -> None:
    cluster, settings = Cluster(Settings()), Settings()
    cluster.load(load_objects([dump(tmp_path / "d", resource_claim("c", result("gpu-0")))], settings))
    assert cluster.cache.claimed.on("n1").keys() == {"GPU-a"}
    cluster.load(load_objects([dump(tmp_path / "d")], settings))
    assert cluster.cache.claimed.on("n1") == {}


def test_a_claim_that_cannot_be_read_is_a_problem_and_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = resource_claim("broken") | {"status": {"allocation": 7}}
    path = dump(tmp_path / "d", broken, resource_claim("c", result("gpu-1")))
    status, report = said(capsys, "verify", "--cluster", path)
    assert (status, [each["code"] for each in report["problems"]]) == (1, ["UnmappedDevice"])
    assert [each["requested"]["slots"] for each in report["devices"]] == [0, 10]


def test_unmapped_devices_can_be_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dump(tmp_path / "d", resource_claim("c", result("gpu-9")))
    assert said(capsys, "verify", "--cluster", path)[0] == 1
    assert said(capsys, "verify", "--cluster", path, "--ignore-unmapped-devices") == (
        0,
        {
            "devices": [{**each, "blocked": []} for each in said(capsys, "verify", "--cluster", path)[1]["devices"]],
            "problems": [],
        },
    )
