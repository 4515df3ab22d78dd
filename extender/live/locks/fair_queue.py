"""One at a time per key, in the order of arrival.

Why it exists: binds of one pod must not overlap, and binds on one locked node must be served in order. It must not know
what the callers wait for. Invariants: a waiting caller holds nothing; an unused key leaves nothing behind.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairQueue:
    """A queue of callers for each key."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def wait(self, key: str, deadline: float | None = None) -> AsyncIterator[bool]:
        """Wait for this caller's turn, at most until `deadline` (loop time); the block gets whether it came.

        Relies on asyncio's lock, which wakes its waiters in the order in which they came.
        """
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            came = await _acquired(lock, deadline)
            try:
                yield came
            finally:
                if came:
                    lock.release()
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]


async def _acquired(lock: asyncio.Lock, deadline: float | None) -> bool:
    try:
        async with asyncio.timeout_at(deadline):
            return await lock.acquire()
    except TimeoutError:
        return False
