"""The page of figures says what was measured, and a run keeps the figures of other runs."""

from pathlib import Path

import orjson

from tests.e2e.figures import write_figures

_BURST = {
    "first to last placed, seconds": 4.2,
    "binds": {"bound": 300, "InsufficientMemory": 3},
    "share of binds refused for lack of room": 0.0099,
    "watch events": 2000,
}
_WAY = {"pods per second": 100.0, "ratio to no extender": 0.5, "processor ms per pod": {"extender": 1.5}}


def test_what_another_run_measured_stays(tmp_path: Path) -> None:
    path = tmp_path / "e2e.json"
    write_figures(path, {"1.37.2": {"2-burst, none": _BURST}})
    write_figures(path, {"1.37.2": {"2-throughput, 1000 nodes": {"load average before": 0.5, "gpu-extender": _WAY}}})
    write_figures(path, {"1.34.4": {"3-end, none": {"placed after seconds": {"a": 0.1, "b": 0.2}}}})
    preemption = {"victims": ["a", "b", "a"], "binds": {"bound": 2}, "watch events": 7}
    nobody = preemption | {"victims": []}
    write_figures(path, {"1.34.4": {"10-killed, none": preemption, "9-ends, none": nobody}})
    known = orjson.loads(path.read_bytes())
    assert set(known["1.37.2"]) == {"2-burst, none", "2-throughput, 1000 nodes"}
    page = (tmp_path / "e2e-figures.md").read_text()
    for row in (
        "| 2-burst, none | 4.2 | 300 | 1.0 % | 2000 |",
        "| gpu-extender | 100.0 | 0.5 |  | 1.5 |",
        "| 3-end, none | b | 0.2 |",
        "| 9-ends, none | none | 2 | 7 |\n| 10-killed, none | a 2 times, b | 2 | 7 |",
    ):
        assert row in page
    assert page.index("1.37.2") < page.index("1.34.4")
