"""Letting other tasks run in the middle of long work.

It must not know the work. Invariant: if the caller calls `breathe` often enough, the event loop is blocked for a few
milliseconds at most.
"""

import asyncio
import time

#: A tenth of the longest allowed stall of the event loop.
_TURN_SECONDS = 0.005


class Pace:
    """Paces one task."""

    def __init__(self, turn_seconds: float = _TURN_SECONDS) -> None:
        self._turn_seconds = turn_seconds
        self._since = time.perf_counter()

    async def breathe(self) -> None:
        """Let others run if this task has used up its turn. Otherwise a call costs a tenth of a microsecond."""
        if time.perf_counter() - self._since > self._turn_seconds:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
