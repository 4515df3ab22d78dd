"""Work that goes on beside a block, such as a watch or all the kubelets.

It exists because a task that is not awaited fails in silence, and what it should have done is missed much later and
elsewhere. It must not know the work. Invariants: work that fails ends the block at once, and its failure is raised; all
work has ended when the block is left; a failure of the block itself is raised unchanged.

    async with Beside() as beside:
        beside.start(kubelets.follow())
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class Beside:
    """The work of one block. It is entered and left by the same task."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work."""
        self._tasks.append(self._group.create_task(work))

    def stop(self) -> None:
        """Cancel all work, without waiting for its end."""
        for task in self._tasks:
            task.cancel()

    async def __aenter__(self) -> Self:
        """Begin the block."""
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel all work and wait for it. Raises ExceptionGroup if some of it has failed."""
        self.stop()
        if isinstance(error, asyncio.CancelledError):
            # The group knows whether its own work caused the end.
            await self._group.__aexit__(kind, error, trace)
        else:
            await self._group.__aexit__(None, None, None)
