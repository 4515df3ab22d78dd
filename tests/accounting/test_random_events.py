"""At every step of a long random history the numbers are those that the objects give.

It exists to run the random driver with every test run. It must not know what the events are. Invariant: the seed that
failed is printed, and it finds the difference again.
"""

import pytest

from benchmarks import quota_events
from benchmarks.random_events import run


@pytest.mark.slow
def test_no_difference_in_random_events() -> None:
    summary = run(10_000, 1, check_every=500)
    assert summary.difference is None, f"seed {summary.seed}, event {summary.events}"
    assert summary.events == 10_000
    assert len(summary.by_kind) == 7


def test_the_seed_decides() -> None:
    assert run(120, 7, check_every=40) == run(120, 7, check_every=40)
    assert run(120, 7, check_every=40).by_kind != run(120, 8, check_every=40).by_kind


def test_no_difference_in_random_edits_of_quotas_and_events_of_pods() -> None:
    summary = quota_events.run(5_000, 1, check_every=100)
    assert summary.difference is None, f"seed {summary.seed}, event {summary.events}"
    assert summary.events == 5_000
    kinds = summary.by_kind
    assert all(
        kinds[f"verdict {each}"] > 20 for each in ("fits", "QuotaExceeded", "within a budget", "beyond a budget")
    )
    assert kinds["verdict SearchLimit"] == 0


def test_the_seed_decides_over_quotas_too() -> None:
    assert quota_events.run(120, 7, check_every=40) == quota_events.run(120, 7, check_every=40)
    assert quota_events.run(120, 7, check_every=40).by_kind != quota_events.run(120, 8, check_every=40).by_kind
