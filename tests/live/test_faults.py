"""Several faults at once: 200 seeded runs of two replicas. `make soak` does 10,000.

It exists to run the trial with every test run; see `fault_trial` for what goes wrong and what must hold then.
Invariant: the seed that failed is in the message, and it finds the violation again.
"""

import pytest

from tests.live.fault_trial import run

RUNS, PARTS = 200, 20


@pytest.mark.parametrize("part", range(PARTS))
async def test_nothing_is_lost_or_given_twice_whatever_goes_wrong(part: int) -> None:
    for seed in range(part, RUNS, PARTS):
        outcome = await run(seed)
        assert outcome.harms


async def test_the_seed_decides() -> None:
    assert (await run(7)).harms == (await run(7)).harms
