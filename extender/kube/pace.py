"""Giving other tasks their turn in the middle of long work.

It must not know the work. Invariant: between two calls of `breathe` the caller decides how long the event loop waits;
the calls themselves keep it to a few milliseconds.
"""

import asyncio
import time

#: A tenth of the longest stall that is allowed.
_TURN_SECONDS = 0.005


class Pace:
    """The turns of one task."""

    def __init__(self, turn_seconds: float = _TURN_SECONDS) -> None:
        self._turn_seconds = turn_seconds
        self._since = time.perf_counter()

    async def breathe(self) -> None:
        """Let others run if this task has had its turn. A call costs a tenth of a microsecond otherwise."""
        if time.perf_counter() - self._since > self._turn_seconds:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
