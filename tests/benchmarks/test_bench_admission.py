"""A small run of the benchmark of admission: what it reports, and that a certificate change amid it loses nothing."""

import json
from pathlib import Path

import pytest

from benchmarks.bench_admission import main


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    assert main(["--admissions", "120", "--burst", "60", "-o", str(output)]) == 0
    report = json.loads(output.read_text())
    assert json.loads(capsys.readouterr().out) == report
    assert (report["paced"]["failed"], report["paced"]["failures"]) == (0, [])
    assert report["burst"]["failed"] == 0
    assert report["certificate"] == {"replaced": 1}
    assert report["cluster"]["quotas"] == 5_000
    for run in ("paced", "burst"):
        for times in ("mutate ms", "validate ms", "both since due ms"):
            summary = report[run][times]
            assert 0 < summary["p50"] <= summary["p90"] <= summary["p99"] <= summary["max"]
