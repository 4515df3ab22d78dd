"""The smallest plan measures every cost curve that is promised.

It exists because the full run takes minutes. It must not judge times.
"""

from importlib.util import find_spec
from pathlib import Path

import orjson
import pytest

from accounting.policy import NodePolicy
from benchmarks import curves


@pytest.mark.timeout(300)
def test_every_curve_has_its_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = curves.Plan(40, 2, 60, 2, (20, 40), (1, 2), (1, 2, 8), (0, 60))
    monkeypatch.setattr(curves, "QUICK", tiny)
    output, base = tmp_path / "curves.json", tmp_path / "curves"
    plot = ["--plot", str(base)] if find_spec("matplotlib") else []
    assert curves.main(["--quick", "-o", str(output), *plot]) == 0
    found = orjson.loads(output.read_bytes())["curves"]
    assert {name: [point["value"] for point in points] for name, points in found.items()} == {
        "nodes": ["20", "40"],
        "cards": ["1", "2"],
        "pods": ["0", "60"],
        "containers": ["1", "2", "8"],
        "node policies": [policy.value for policy in NodePolicy],
        "card policies": ["binpack", "spread", "numa", "mutex", "topology-aware", "binpack,numa"],
    }
    assert all(point[verb]["calls"] == 2 for points in found.values() for point in points for verb in ("filter",))
    for suffix in (".svg", ".png") if plot else ():
        assert base.with_suffix(suffix).stat().st_size > 1000
