"""What stops all evictions: too many in a minute, or the file that says so.

It must not know who is evicted. Invariants: no more evictions are accepted in any minute than allowed; while the file
exists none is begun.
"""

from collections import deque
from pathlib import Path

_MINUTE_SECONDS = 60.0


class Limits:
    """The limits of one process."""

    def __init__(self, per_minute: int, stop_file: str | None) -> None:
        self._per_minute = per_minute
        self._stop_file = None if stop_file is None else Path(stop_file)
        self._taken: deque[float] = deque()

    @property
    def is_stopped(self) -> bool:
        """Whether somebody wants no evictions now."""
        return self._stop_file is not None and self._stop_file.exists()

    def has_room(self, now: float) -> bool:
        """Whether one more eviction is allowed now."""
        while self._taken and self._taken[0] <= now - _MINUTE_SECONDS:
            self._taken.popleft()
        return len(self._taken) < self._per_minute

    def take(self, now: float) -> bool:
        """Count an eviction that is about to be sent; returns whether it may be."""
        if self.is_stopped or not self.has_room(now):
            return False
        self._taken.append(now)
        return True

    def give_back(self, taken_at: float) -> None:
        """Count an eviction out that was not accepted."""
        if taken_at in self._taken:
            self._taken.remove(taken_at)
