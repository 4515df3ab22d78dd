"""However many tasks do long work, one of them has a turn in a pass of the event loop.

They exist because the lists of all kinds are read at once when the extender starts. They must not measure time: a turn
of no length ends at every call.
"""

import asyncio
from collections import Counter

from extender.kube.pace import Pace


class Passes:
    """Counts the passes of the loop, and how many tasks had a turn in each."""

    def __init__(self) -> None:
        self.number = 0
        self.turns: Counter[int] = Counter()
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.number += 1
        self._loop.call_soon(self._next)

    async def work(self, turns: int) -> None:
        """Take turns, each of no length."""
        pace = Pace(0.0)
        for _ in range(turns):
            await pace.breathe()
            self.turns[self.number] += 1


async def test_one_of_many_tasks_has_a_turn_in_a_pass_of_the_loop() -> None:
    passes = Passes()
    await asyncio.gather(*(passes.work(20) for _ in range(7)))
    assert sum(passes.turns.values()) == 140
    assert max(passes.turns.values()) == 1
    # Nobody waits longer than it must.
    assert passes.number <= 150


async def test_a_task_that_is_cancelled_keeps_nobody_waiting() -> None:
    passes = Passes()
    tasks = [asyncio.create_task(passes.work(5)) for _ in range(4)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in done] == [asyncio.CancelledError, type(None)] * 2
    assert sum(passes.turns.values()) == 10


async def test_a_turn_that_is_not_over_goes_on() -> None:
    passes = Passes()
    pace = Pace(3600.0)
    for _ in range(100):
        await pace.breathe()
    assert passes.number == 0


def test_each_loop_has_a_line_of_its_own() -> None:
    for _ in range(3):
        asyncio.run(test_one_of_many_tasks_has_a_turn_in_a_pass_of_the_loop())
