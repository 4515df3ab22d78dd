"""Runs a few seconds of the steady load, and checks that its verdict follows the numbers.

It exists because the full run takes an hour. It must not judge times.
"""

import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from benchmarks import steady_books, steady_hour
from benchmarks.figures import Size
from benchmarks.steady_figures import Interval, Times, drifts, memory_drifts
from benchmarks.steady_pods import VERBS

_TINY = ["--size", "20x100", "--pods", "20", "--events", "40", "--life", "0.3", "--interval", "0.4"]
_HOUR = 3600.0
_INTERVALS = 4


@pytest.mark.timeout(120)
def test_an_interrupted_run_loses_nothing_and_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "steady.json"
    take = steady_hour.Run._take

    def interrupted(run: steady_hour.Run, *given: object) -> None:
        take(run, *given)  # type: ignore[arg-type]
        if len(run.intervals) == _INTERVALS:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(steady_hour.Run, "_take", interrupted)
    before = set(threading.enumerate())
    assert steady_hour.main([*_TINY, "-o", str(output)]) == 130
    assert set(threading.enumerate()) <= before
    found = orjson.loads(output.read_bytes())
    totals = found["totals"]
    assert totals["created"] == totals["bound"] > totals["deleted"] > 0
    assert found["lost"] == 0
    assert found["interrupted"]
    assert "failure" not in found
    assert found["books"]["clean"]
    assert found["books"]["cards"] == 160
    assert len(found["intervals"]) == _INTERVALS
    assert sum(each["events"] for each in found["intervals"]) > 0
    assert all(each["extender_kib"] > 0 and each["watch_lag_us"] > 0 for each in found["intervals"])
    assert {verb for each in found["intervals"] for verb, times in each["verbs"].items() if times} == set(VERBS)
    assert [each["what"] for each in found["drift"]][:3] == ["extender MiB", "API server MiB", "harness MiB"]


def test_the_exit_status_says_whether_the_run_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(run: steady_hour.Run, folder: Path) -> None:
        assert folder.is_dir()
        run._ended = {"lost": 0, "books": steady_books.Books(1, 1, [], [], []).as_json()}

    def failed(run: steady_hour.Run, folder: Path) -> None:
        ended(run, folder)
        raise RuntimeError("the maker of events has ended")

    monkeypatch.setattr(steady_hour.Run, "_run", ended)
    assert steady_hour.main([]) == 0
    monkeypatch.setattr(steady_hour.Run, "_run", failed)
    assert steady_hour.main([]) == 1


def test_what_is_wrong_ends_with_an_error() -> None:
    run = steady_hour.Run(steady_hour.Plan(_HOUR, 300, 50, Size(1, 1), 20, 10), None)
    clean = steady_books.Books(1, 1, [], [], [])
    wrong = [clean._replace(overcommitted=["x"]), clean._replace(different=["x"]), clean._replace(problems=[{}])]
    assert not run.holds()
    run._ended = {"lost": 0, "books": clean.as_json()}
    assert run.holds()
    for each in wrong:
        run._ended = {"lost": 0, "books": each.as_json()}
        assert not run.holds()
    for more in ({"lost": 1}, {"failure": "x"}):
        run._ended = {"lost": 0, "books": clean.as_json()} | more
        assert not run.holds()
    run._ended = {"lost": 0, "books": clean.as_json()}
    run._seconds = _HOUR
    run.intervals = _intervals([200, *range(200, 280, 10)])
    assert not run.holds()


@pytest.mark.parametrize(
    "given",
    [
        ["--seconds", "-1"],
        ["--pods", "0"],
        ["--events", "0"],
        ["--events", "x"],
        ["--life", "nan"],
        ["--interval", "inf"],
    ],
)
def test_a_number_that_cannot_be_used_is_an_error_that_names_it(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        steady_hour.main(given)
    assert ended.value.code == 2
    assert f"argument {given[0]}: '{given[1]}': must be a" in capsys.readouterr().err


@pytest.mark.parametrize(
    "mib, seconds, drifting",
    [
        ([100, 180, 200, 200, 200, 200, 200, 200], _HOUR, False),
        ([100, 180, 200, 200, 205, 210, 230, 230], _HOUR, True),
        ([100, 180, 200, 200, 205, 210, 230, 230], 60.0, False),
        ([100, 100, 100, 100, 100, 100, 109, 109], _HOUR, False),
        ([400, 400, 400, 400, 400, 400, 415, 415], _HOUR, False),
        ([400, 400, 400, 400, 400, 400, 350, 350], _HOUR, False),
    ],
)
def test_memory_drifts_by_its_own_quarters(mib: list[int], seconds: float, drifting: bool) -> None:
    assert memory_drifts(drifts(_intervals(mib)), seconds) is drifting


def test_drift_is_the_last_quarter_to_the_second_with_the_median_slope() -> None:
    memory = drifts(_intervals([999, 999, 100, 110, 120, 130, 140, 150]))[0]
    assert (memory.second, memory.last) == (105.0, 145.0)
    assert memory.slope_per_hour == pytest.approx(10 / 10 * 3600)


def test_percentiles_are_times_that_were_measured() -> None:
    assert Times.of([]) is None
    assert Times.of([number * 1000 for number in range(200, 0, -1)]) == Times(200, 100, 198, 200)


def _intervals(mib: Sequence[int]) -> list[Interval]:
    times: dict[str, Times | None] = dict.fromkeys(VERBS, Times(1, 1, 1, 1))
    return [
        Interval(10.0 * at, 10.0, value * 1024, 1, 1, 0, 0, 0, times, 1, 1, 1, 1, 1, 0, 0, {})
        for at, value in enumerate(mib, start=1)
    ]
