"""Two lanes: binds, and work that takes as long as the cluster is large.

Why it exists: kube-scheduler waits for a bind, and must not wait for the moves, records and writes of a whole cluster
(REQ-B5). It must not know either of the two. Invariants: maintenance is done in slices, none of them longer than one
step beyond its bound; between two slices every bind that is waiting goes first; binds that never end do not keep
maintenance from going on, slice by slice.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PAUSE_SECONDS = 0.001


class Lanes:
    """The lanes of one process."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        steps: int = 50,
        slice_seconds: float = 0.02,
        courtesy_seconds: float = 0.05,
    ) -> None:
        """`steps`, `slice_seconds`: bounds of a slice. `courtesy_seconds`: the longest that one waits for binds."""
        self.slices = 0
        """How many slices were done so far."""
        self._clock = clock
        self._steps = steps
        self._slice_seconds = slice_seconds
        self._courtesy_seconds = courtesy_seconds
        self._binds = 0
        self._no_bind = asyncio.Event()
        self._no_bind.set()

    @contextmanager
    def bind(self) -> Iterator[None]:
        """A bind is under way, from its question to its answer."""
        self._binds += 1
        self._no_bind.clear()
        try:
            yield
        finally:
            self._binds -= 1
            if not self._binds:
                self._no_bind.set()

    async def maintain(self, work: Iterator[object]) -> None:
        """Do all steps of some work, and let binds go first after each slice."""
        while self._slice(work):
            await self._give_way()

    def _slice(self, work: Iterator[object]) -> bool:
        """Do one slice; returns whether there may be more."""
        self.slices += 1
        end = self._clock() + self._slice_seconds
        for _ in range(self._steps):
            if next(work, self) is self:
                return False
            if self._clock() >= end:
                break
        return True

    async def _give_way(self) -> None:
        # Not 0: what has come meanwhile takes several turns of the loop until it is a bind, and this would go first.
        await asyncio.sleep(_PAUSE_SECONDS)
        if self._binds:
            try:
                async with asyncio.timeout(self._courtesy_seconds):
                    await self._no_bind.wait()
            except TimeoutError:
                return
