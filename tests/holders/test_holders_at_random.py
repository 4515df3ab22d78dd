"""A long random history of everything that holds a card ends with what the objects say, at every step.

It exists to run the driver with every test run; `python -m benchmarks.holder_events` sends a million. It must not know
what the events are. Invariant: the seed that failed is printed, and it finds the difference again.
"""

import pytest

from benchmarks.holder_events import run

KINDS = (
    "change_claim",
    "end_claim",
    "change_slice",
    "end_slice",
    "change_machine",
    "end_machine",
    "change_whole_pod",
    "end_whole_pod",
    "change_capacity",
    "spread_set",
    "pass_over_sets",
)


@pytest.mark.slow
def test_no_difference_in_random_events_of_every_holder() -> None:
    summary = run(20_000, 1, check_every=1_000)
    assert summary.difference is None, f"seed {summary.seed}, event {summary.events}"
    assert summary.events == 20_000
    assert min(summary.by_kind[kind] for kind in KINDS) > 300


def test_the_seed_decides() -> None:
    assert run(300, 7, check_every=100) == run(300, 7, check_every=100)
    assert run(300, 7, check_every=100).by_kind != run(300, 8, check_every=100).by_kind
