"""Kill -9 in the middle of everything: 5 kills. `make soak` does 200, in runs of 500 pods and both lock modes.

It exists because a restart is the one event that no other test can make real. It must not know what is checked; see
`benchmarks.kill_checks`. Invariant: the lock mode with more to lose; one process of a few
elects a leader.
"""

from pathlib import Path

import pytest

from benchmarks.kill_trial import Settings, run

pytestmark = pytest.mark.real_time


def test_nothing_is_lost_or_given_twice(tmp_path: Path) -> None:
    settings = Settings(seed="0/0", points=5, pods=120, locking=True, elect_every=4)
    outcome = run(settings, tmp_path)
    assert outcome.violation is None, f"{outcome.where}: {outcome.violation}"
    assert sum(outcome.moments.values()) == settings.points
    assert outcome.bound + outcome.unschedulable + outcome.deleted >= settings.pods
