"""Work that goes on in the background until this process ends.

Why it exists: work that ends by a bug, unnoticed, leaves the state to rot. It must not know what the work is.
Invariant: what was spawned runs until `end`; after a bug, which is logged, it begins anew.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from extender.logs import logger

_RESTART_SECONDS = 1.0

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Some pieces of work."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Work) -> None:
        """Begin a piece of work; it runs for ever."""
        self._tasks.append(asyncio.create_task(_for_ever(work)))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin what runs once."""
        self._tasks.append(asyncio.create_task(work))

    async def end(self) -> None:
        """End all of it."""
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
