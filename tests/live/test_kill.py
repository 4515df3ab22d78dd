"""Five kills with SIGKILL amid everything. `make soak` does 200, in runs of 500 pods and both lock modes.

It exists because no other test makes a real restart. It must not know what is checked; see `benchmarks.kill_checks`.
Invariant: it uses the lock mode with more to lose, and some processes elect a leader.
"""

from pathlib import Path

import pytest

from benchmarks.kill_trial import Settings, run

pytestmark = pytest.mark.real_time


@pytest.mark.slow
def test_nothing_is_lost_or_given_twice(tmp_path: Path) -> None:
    settings = Settings(seed="0/0", points=5, pods=120, locking=True, elect_every=4)
    outcome = run(settings, tmp_path)
    assert outcome.violation is None, f"{outcome.where}: {outcome.violation}"
    assert sum(outcome.moments.values()) == settings.points
    assert outcome.bound + outcome.unschedulable + outcome.deleted >= settings.pods
