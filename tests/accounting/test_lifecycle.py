"""Whether the inits of a pod are over, by its present statuses: the one step that gives room on a card away.

The statuses are those that a kubelet writes during a pod's life. Sidecars play no part: they have no status here, so
nothing that a sidecar does can change the answer.
"""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.lifecycle import InitStatus, inits_over

SECOND = 10**9


def done(started: int | None = None, finished: int | None = None) -> InitStatus:
    """Return "terminated, exit code 0"; times in seconds."""
    return InitStatus(
        succeeded=True,
        started_at_ns=None if started is None else started * SECOND,
        finished_at_ns=None if finished is None else finished * SECOND,
    )


RUNNING = InitStatus(succeeded=False)
#: No status, waiting, running and a failure all read as "not succeeded".
NOT_DONE = {
    "no status yet": InitStatus(succeeded=False),
    "running": InitStatus(succeeded=False, started_at_ns=5 * SECOND),
    "failed": InitStatus(succeeded=False, started_at_ns=5 * SECOND, finished_at_ns=6 * SECOND),
}


def test_a_pod_without_inits_is_past_them_from_the_start() -> None:
    assert inits_over([])
    # The rule and the condition are about inits that run again; here there are none.
    assert inits_over([], restart_rule=True, all_containers_restarting=True)


@pytest.mark.parametrize("status", list(NOT_DONE.values()), ids=list(NOT_DONE))
def test_one_init_that_has_not_succeeded_keeps_the_peak(status: InitStatus) -> None:
    assert not inits_over([status])
    others = [done(0, 1), done(1, 2), status]
    for order in permutations(others):
        assert not inits_over(order)


def test_all_inits_succeeded_in_order() -> None:
    assert inits_over([done()])
    assert inits_over([done(0, 10)])
    assert inits_over([done(0, 10), done(11, 20), done(20, 30)])


def test_a_start_in_the_second_of_the_finish_before_it_passes() -> None:
    """Times have whole seconds, so the next init often starts in the same one."""
    assert inits_over([done(0, 10), done(10, 10), done(10, 10)])


def test_a_shorter_step_than_a_second_is_seen() -> None:
    first = InitStatus(succeeded=True, started_at_ns=0, finished_at_ns=100)
    assert inits_over([first, InitStatus(succeeded=True, started_at_ns=100)])
    assert not inits_over([first, InitStatus(succeeded=True, started_at_ns=99)])


# -- inits that run again ----------------------------------------------------------------------------------------------

#: The statuses while a sandbox is built anew, step by step: three inits, over at second 30, run again from second 100
#: on; those whose turn has not come still show their old end.
RE_RUN = [
    ("before", [done(0, 10), done(10, 20), done(20, 30)], True),
    ("the first runs", [RUNNING, done(10, 20), done(20, 30)], False),
    ("the first is done, the others are stale", [done(100, 110), done(10, 20), done(20, 30)], False),
    ("the second runs", [done(100, 110), RUNNING, done(20, 30)], False),
    ("the second is done, the last is stale", [done(100, 110), done(110, 120), done(20, 30)], False),
    ("the last runs", [done(100, 110), done(110, 120), RUNNING], False),
    ("after", [done(100, 110), done(110, 120), done(120, 130)], True),
]


@pytest.mark.parametrize("statuses, over", [step[1:] for step in RE_RUN], ids=[step[0] for step in RE_RUN])
def test_stale_ends_of_a_re_run_do_not_count(statuses: list[InitStatus], *, over: bool) -> None:
    assert inits_over(statuses) == over


def test_the_peak_comes_back_and_goes_again() -> None:
    assert [inits_over(statuses) for _, statuses, _ in RE_RUN] == [True, False, False, False, False, False, True]


@pytest.mark.parametrize(
    "statuses",
    [
        [done(), done()],
        [done(0, 10), done()],
        [done(), done(0, 10)],
        [done(0, None), done(5, 10)],
        [done(0, 10), done(None, 20)],
        [done(100, 110), done(), done(20, 30)],
    ],
    ids=[
        "no times",
        "no times of the second",
        "no times of the first",
        "no finish",
        "no start",
        "nothing to compare with between stale ones",
    ],
)
def test_missing_times_pass(statuses: list[InitStatus]) -> None:
    assert inits_over(statuses)


def test_for_restart_policy_on_failure_a_re_run_is_hidden() -> None:
    """A known limit: the kubelet keeps publishing the old ends, so nothing shows that the inits run again."""
    published_before = [done(0, 10), done(10, 20)]
    published_while_the_first_runs_again = [done(0, 10), done(10, 20)]
    assert inits_over(published_before)
    assert inits_over(published_while_the_first_runs_again)


# -- all containers restarting -----------------------------------------------------------------------------------------


def test_while_all_containers_restart_the_peak_holds() -> None:
    statuses = [done(0, 10), done(10, 20)]
    assert inits_over(statuses)
    assert not inits_over(statuses, all_containers_restarting=True)
    assert inits_over(statuses, all_containers_restarting=False)


def test_a_pod_with_a_restart_rule_stays_at_its_peak_for_life() -> None:
    assert not inits_over([done(0, 10)], restart_rule=True)
    assert not inits_over([done(0, 10), done(10, 20)], restart_rule=True, all_containers_restarting=False)


# -- any statuses ------------------------------------------------------------------------------------------------------

TIMES = st.none() | st.integers(0, 50)
STATUSES = st.lists(st.builds(InitStatus, st.booleans(), TIMES, TIMES), max_size=5)


@given(STATUSES, st.booleans(), st.booleans())
def test_the_answer_is_the_rule(statuses: list[InitStatus], restarting: bool, rule: bool) -> None:
    expected = True
    for place, status in enumerate(statuses):
        before = statuses[place - 1] if place else None
        known = before is not None and None not in (before.finished_at_ns, status.started_at_ns)
        stale = known and (status.started_at_ns or 0) < ((before.finished_at_ns if before else 0) or 0)
        expected = expected and status.succeeded and not stale and not restarting and not rule
    assert inits_over(statuses, all_containers_restarting=restarting, restart_rule=rule) == expected
    assert inits_over(tuple(statuses), all_containers_restarting=restarting, restart_rule=rule) == expected
