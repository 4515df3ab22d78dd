"""Binds beside work that takes as long as the cluster is large: B-05.

They exist because kube-scheduler gives up on a bind that waits for maintenance. They must not know what is maintained.
Invariant: all times are the virtual loop's, in which a step takes as long as the test says.
"""

import asyncio
from collections.abc import Iterator

from extender.live.lanes import Lanes
from tests.virtual_time import passes, stall

STEP_SECONDS = 0.001
SLICE_SECONDS = 0.02


def lanes(**bounds: float) -> Lanes:
    return Lanes(asyncio.get_running_loop().time, slice_seconds=SLICE_SECONDS, **bounds)  # type: ignore[arg-type]


def work(steps: int, done: list[float]) -> Iterator[None]:
    """So many steps, each of which blocks the loop for a while."""
    for _ in range(steps):
        stall(STEP_SECONDS)
        done.append(asyncio.get_running_loop().time())
        yield


async def test_b_05_a_bind_waits_for_at_most_one_slice_of_5000_pods() -> None:
    two, done, loop = lanes(), list[float](), asyncio.get_running_loop()
    waited, between = [], []

    async def bind(after: float) -> None:
        due = loop.time() + after
        await asyncio.sleep(after)
        waited.append(loop.time() - due)
        with two.bind():
            before = len(done)
            # Three answers of the API server: the bind is not answered in one turn of the loop.
            for _ in range(3):
                await asyncio.sleep(0)
            between.append(len(done) - before)

    binds = [asyncio.create_task(bind(0.0013 * number)) for number in range(1, 400)]
    await asyncio.sleep(0)
    await two.maintain(work(5000, done))
    await asyncio.gather(*binds)
    assert len(done) == 5000
    # A slice ends with the step during which its time is over.
    assert max(waited) <= SLICE_SECONDS + STEP_SECONDS
    assert max(between) == 0, "maintenance went on while a bind was waiting"
    assert two.slices >= 5000 * STEP_SECONDS / (SLICE_SECONDS + STEP_SECONDS)


async def test_a_slice_ends_after_fifty_steps_that_take_no_time() -> None:
    two, others = lanes(), []

    async def beside() -> None:
        while True:
            others.append(two.slices)
            await asyncio.sleep(0)

    task = asyncio.create_task(beside())
    await two.maintain(iter(range(500)))
    task.cancel()
    assert two.slices == 11
    assert len(set(others)) >= 10, "nobody else had a turn between two slices"


async def test_binds_that_never_end_do_not_stop_maintenance() -> None:
    two, loop = lanes(courtesy_seconds=0.05), asyncio.get_running_loop()
    began = loop.time()
    with two.bind():
        await two.maintain(iter(range(150)))
    assert loop.time() - began <= 4 * 0.05 + 0.001
    await passes(0.0)


async def test_maintenance_goes_on_as_soon_as_no_bind_waits() -> None:
    two, loop = lanes(courtesy_seconds=10.0), asyncio.get_running_loop()

    async def bind() -> None:
        with two.bind():
            await asyncio.sleep(0.01)

    task = asyncio.create_task(bind())
    await asyncio.sleep(0)
    began = loop.time()
    await two.maintain(iter(range(60)))
    assert loop.time() - began < 0.1
    await task
