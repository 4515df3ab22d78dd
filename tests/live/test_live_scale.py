"""The live benchmark produces its numbers on a small cluster. No test judges their size."""

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks import bench_live, live_dump
from benchmarks.figures import Size
from benchmarks.live_events import INITS, STATUS, patches
from extender.live.collector import LoopMonitor
from tests.virtual_time import passes, stall

SMALL = Size(60, 600)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_live_benchmark_measures_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    sizes = ["--size", str(SMALL), "--events", "100", "--calls", "10", "--per-second", "100"]
    assert bench_live.main([*sizes, "-o", str(output)]) == 0
    figures = json.loads(output.read_bytes())
    sync = figures["sync"]
    assert sync["nodes"] == 60
    assert 450 < sync["pods"] <= 600
    assert sync["cpu_ms"] > 0
    assert sync["peak_kib"] > 50_000
    # The loop was busy at some time during the lists.
    assert sync["stall"]["wall_us"] > 0
    assert [(stream["kind"], stream["events"]) for stream in figures["streams"]] == [(STATUS, 100), (INITS, 10)]
    assert all(stream["event_us"] > 0 and stream["resident_after_kib"] > 0 for stream in figures["streams"])
    pairs = figures["pairs"]
    assert pairs["quiet"]["calls"] == pairs["under_events"]["calls"] == 10
    # No number is judged on a cluster of the wrong size.
    limits = {target["what"]: target["limit"] for target in figures["targets"]}
    assert limits["initial sync"] is None
    assert limits["initial sync: longest stall"] == 50
    shown = capsys.readouterr().out
    assert all(target["what"][:20] in shown for target in figures["targets"])


async def test_the_stall_gauge_moves_when_the_loop_is_kept() -> None:
    monitor = LoopMonitor()
    watching = asyncio.create_task(monitor.run())
    await passes(0.05)
    stall(0.12)
    await passes(0.05)
    watching.cancel()
    assert monitor.worst_seconds >= 0.1
    # The gauge of its own CPU shows that the thread did not run.
    assert monitor.worst_cpu_seconds < monitor.worst_seconds


def test_the_dump_has_pods_of_the_size_that_the_numbers_are_about(tmp_path: Path) -> None:
    dump = live_dump.write(Size(20, 150), 1, tmp_path)
    pods = [item for item in json.loads(dump.path.read_bytes())["items"] if item["kind"] == "Pod"]
    assert len(pods) == 150
    for pod in pods:
        spec = pod["spec"]
        assert len(spec["containers"]) + len(spec.get("initContainers", [])) >= live_dump.CONTAINERS
        assert len(json.dumps(pod, separators=(",", ":"))) >= live_dump.POD_BYTES
    assert dump.pods == sum(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in pods)


def test_every_patch_of_a_pod_differs_from_the_one_before(tmp_path: Path) -> None:
    targets = live_dump.read_targets(live_dump.write(Size(20, 60), 1, tmp_path).targets)
    for kind in (STATUS, INITS):
        chosen = [target for target in targets if kind == STATUS or target.inits]
        source = patches(targets, kind)
        first, second = ([next(source) for _ in chosen] for _ in range(2))
        assert [patch.path for patch in first] == [patch.path for patch in second]
        assert all(one.body != other.body for one, other in zip(first, second, strict=True))
