"""Kill -9 in the middle of everything: 10 kills. `make soak` does 200, in runs of 500 pods.

It exists because a restart is the one event that no other test can make real. It must not know what is checked; see
`benchmarks.kill_checks`. Invariant: both lock modes, and processes that elect a leader among the others.
"""

from pathlib import Path

import pytest

from benchmarks.kill_trial import Settings, run


@pytest.mark.parametrize("locking, points, pods", [(True, 5, 120), (False, 5, 120)], ids=["hami", "none"])
def test_nothing_is_lost_or_given_twice(tmp_path: Path, locking: bool, points: int, pods: int) -> None:
    settings = Settings(seed="0/0", points=points, pods=pods, locking=locking, elect_every=4)
    outcome = run(settings, tmp_path)
    assert outcome.violation is None, f"{outcome.where}: {outcome.violation}"
    assert sum(outcome.moments.values()) == points
    assert outcome.bound + outcome.unschedulable + outcome.deleted >= pods
