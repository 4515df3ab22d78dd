"""Work that runs in the background until this process ends.

Why it exists: if a bug ended background work unnoticed, the state would silently grow old. It must not know what the
work is. Invariant: spawned work runs until `end`; a bug is logged, and the work starts again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from extender.logs import logger

_RESTART_SECONDS = 1.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """A set of background tasks."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Work) -> None:
        """Start work that runs until `end`, again after each bug."""
        self._tasks.append(asyncio.create_task(_for_ever(work)))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that runs once."""
        self._tasks.append(asyncio.create_task(work))

    async def end(self) -> None:
        """Cancel all of it and wait for its end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _for_ever(work: Work) -> None:
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - see the module's invariant
            logger().exception("background work failed")
        await asyncio.sleep(_RESTART_SECONDS)
