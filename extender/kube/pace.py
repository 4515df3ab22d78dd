"""Letting other tasks run in the middle of long work.

Why it exists: seven lists are read at once when the extender starts, and the loop that reads them must still answer. It
must not know the work. Invariants: if the caller calls `breathe` often enough, the event loop is blocked for a few
milliseconds at most, however many tasks are paced: in one pass of the loop at most one of them goes on.
"""

import asyncio
import time
from collections import deque
from weakref import WeakKeyDictionary

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
            await _line(asyncio.get_running_loop()).wait()
            self._since = time.perf_counter()


class _Line:
    """The paced tasks of one event loop that wait for their next turn, longest first."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._next)
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        """Let one task go on, in the next pass of the loop, and the one after it a pass later."""
        while self._waiting:
            turn = self._waiting.popleft()
            # A cancelled task does not wait any more.
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()


def _line(loop: asyncio.AbstractEventLoop) -> _Line:
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line()
    return line
