"""A long random history of pods, nodes, claims and slices ends with what the objects say, at every step.

It exists to run the driver with every test run. It must not know what the events are. Invariant: the seed that failed
is printed, and it finds the difference again.
"""

import pytest

from benchmarks.claim_events import run


@pytest.mark.slow
def test_no_difference_in_random_events_of_claims_and_slices() -> None:
    summary = run(20_000, 1, check_every=1_000)
    assert summary.difference is None, f"seed {summary.seed}, event {summary.events}"
    assert summary.events == 20_000
    assert min(summary.by_kind[kind] for kind in ("change_claim", "end_claim", "change_slice", "end_slice")) > 500


def test_the_seed_decides() -> None:
    assert run(300, 7, check_every=100) == run(300, 7, check_every=100)
    assert run(300, 7, check_every=100).by_kind != run(300, 8, check_every=100).by_kind
