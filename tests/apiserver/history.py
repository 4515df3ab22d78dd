"""The window of past events of one resource.

It exists because a watch resumes from it and a list of an older version is rebuilt from it, and because both must fail
with 410 where it ends. It must not know who reads it. Invariant: events are in order of version, without a gap above
`dropped`; what has left the window is gone for all readers.
"""

from bisect import bisect_right
from typing import Literal, NamedTuple

from tests.apiserver.stored import Stored

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Event(NamedTuple):
    """One write. A DELETED event's object is the last state, with the version of the deletion."""

    version: int
    type: EventType
    row: Stored
    before: Stored | None


class History:
    """The last `limit` events."""

    def __init__(self, limit: int, floor: int) -> None:
        self.limit = limit
        self.floor = floor
        """The oldest version from which reading can continue."""
        self.dropped = floor
        """The version of the newest event that is gone. A reader that has seen it has missed nothing."""
        self._events: list[Event] = []
        self._versions: list[int] = []

    def append(self, event: Event) -> None:
        """Remember a write."""
        self._events.append(event)
        self._versions.append(event.version)
        excess = len(self._events) - self.limit
        if excess > 0:
            self._drop(excess)

    def compact(self, version: int) -> None:
        """Forget everything up to a version."""
        self._drop(bisect_right(self._versions, version))
        self.floor = max(self.floor, version)

    def reset(self, version: int) -> None:
        """Forget everything; nothing older can be read, not even by open watches."""
        self.compact(version)
        self.dropped = version

    def after(self, version: int) -> list[Event]:
        """Return the events with a higher version. The caller has checked that none of them is gone."""
        return self._events[bisect_right(self._versions, version) :]

    def _drop(self, count: int) -> None:
        if count > 0:
            self.dropped = self._versions[count - 1]
            self.floor = max(self.floor, self.dropped)
            del self._events[:count]
            del self._versions[:count]
