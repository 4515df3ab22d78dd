"""Whether a pod's status says that its ordinary inits are over.

It exists because one wrong reading gives away a card that is in use. It must not know what is held in which state.
Invariant: the answer depends on the present status; a missing or malformed time never makes an init run again.
"""

import json
from typing import Any

import msgspec
import pytest

from accounting.pod import Pod
from extender.config import Settings
from extender.convert.pod import convert_pod
from extender.wire import core_v1
from tests.extender.objects import FINISHED, Json, asks, container, pod, running, sidecar, status_of, terminated


def read(value: Json) -> Pod:
    return convert_pod(msgspec.json.decode(json.dumps(value), type=core_v1.Pod), Settings())


def inits_over(*statuses: Json, inits: int = 1, spec: Json | None = None, **status: Any) -> bool:  # noqa: ANN401
    """Whether these statuses say that the inits i0, i1, ... are over."""
    asking = pod("p", inits=[container(f"i{position}", asks(1)) for position in range(inits)])
    asking["spec"] |= spec or {}
    return read(asking | {"status": status_of("Running", *statuses, **status)}).inits_over


def test_inits_are_over_once_each_shows_that_it_succeeded() -> None:
    assert inits_over(terminated("i0"))
    later = terminated("i1", started=FINISHED, finished=None)
    assert inits_over(later, terminated("i0"), inits=2)
    assert not inits_over(terminated("i0"), inits=2)
    assert not inits_over(terminated("i0"), running("i1"), inits=2)
    assert not inits_over(terminated("i0", exit_code=1))
    assert not inits_over(terminated("other"))
    assert not inits_over()


def test_a_pod_without_ordinary_inits_is_over_them_from_the_start() -> None:
    assert read(pod()).inits_over
    assert read(pod("p", inits=[sidecar("s", asks(1))], status={"phase": "Pending"})).inits_over


def test_statuses_of_sidecars_say_nothing() -> None:
    inits = [sidecar("s", asks(1)), container("i", asks(1))]
    assert not read(pod("p", inits=inits, status=status_of("Running", terminated("s"), running("i")))).inits_over
    assert read(pod("p", inits=inits, status=status_of("Running", running("s"), terminated("i")))).inits_over


@pytest.mark.parametrize(
    "finished, started, over",
    [
        pytest.param("10:05:00Z", "10:05:00Z", True, id="at the same second"),
        pytest.param("10:05:00Z", "10:05:01Z", True, id="a second later"),
        pytest.param("10:05:01Z", "10:05:00Z", False, id="a second before"),
        pytest.param("10:05:00+00:00", "12:05:00+02:00", True, id="the same moment in two zones"),
        pytest.param("10:05:00Z", "11:04:59+01:00", False, id="a second before in another zone"),
        pytest.param("10:05:00-05:00", "15:04:59Z", False, id="west of Greenwich"),
        pytest.param("10:05:00.5Z", "10:05:00.499999Z", False, id="a microsecond before"),
        pytest.param("10:05:00.123456789Z", "10:05:00.123456788Z", False, id="a nanosecond before"),
        pytest.param("10:05:00.123456788Z", "10:05:00.123456789Z", True, id="a nanosecond later"),
        pytest.param("10:05:00.1Z", "10:05:00.100000Z", True, id="the same fraction"),
        pytest.param(None, "10:00:00Z", True, id="no end known"),
        pytest.param("10:05:00Z", None, True, id="no start known"),
        pytest.param("10:05:00Z", "yesterday", True, id="no time"),
        pytest.param("10:05:00Z", "10:04:00", True, id="no zone"),
    ],
)
def test_an_init_that_started_before_the_one_ahead_ended_is_of_an_earlier_run(
    finished: str | None, started: str | None, over: bool
) -> None:
    day = "2026-11-29T{}".format
    first = terminated("i0", started=None, finished=None if finished is None else day(finished))
    second = terminated("i1", started=None if started is None else day(started), finished=None)
    assert inits_over(second, first, inits=2) is over


def test_times_of_all_inits_in_a_row_are_compared() -> None:
    clock = "2026-11-29T10:{:02}:00Z".format
    times = [(clock(minute), clock(minute + 1)) for minute in (0, 1, 2)]
    statuses = [terminated(f"i{n}", started=start, finished=end) for n, (start, end) in enumerate(times)]
    assert inits_over(*statuses, inits=3)
    rerun = terminated("i0", started=clock(9), finished=clock(10))
    assert not inits_over(rerun, *statuses[1:], inits=3)


def test_conditions_and_restart_rules_bring_the_peak_back() -> None:
    done, restarting = terminated("i0"), {"type": "AllContainersRestarting", "status": "True"}
    assert not inits_over(done, conditions=[{"type": "Ready", "status": "True"}, restarting])
    assert inits_over(done, conditions=[restarting | {"status": "False"}, {"type": "Ready", "status": "True"}])
    rule = {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}
    assert not inits_over(done, spec={"containers": [container("a", asks(1), **rule)]})
    assert inits_over(done, spec={"containers": [container("a", restartPolicyRules=[{"action": "Restart"}])]})
    inits = [container("i0", asks(1), **rule)]
    assert not inits_over(done, spec={"initContainers": inits})


@pytest.mark.parametrize("phase, terminal", [("Succeeded", True), ("Failed", True), ("Running", False), (None, False)])
def test_two_phases_are_terminal(phase: str | None, terminal: bool) -> None:
    assert read(pod(status={"phase": phase})).terminal is terminal


def test_an_exit_code_that_is_left_out_is_zero() -> None:
    status = {"name": "i0", "state": {"terminated": {"exitCode": None, "startedAt": None}}}
    assert inits_over(status)
