"""A table as it was at one moment, for those who read it bit by bit while it goes on.

Why it exists: a copy of 100,000 entries takes longer than kube-scheduler should wait, and the garbage collector goes
through all of it several times. So an entry is kept when it is about to change, and only while somebody reads an
earlier state. It must not know what the entries mean. Invariant: whoever writes the table says `keep` before each
change of an entry, whose value must not change by itself.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar, cast
from weakref import ref

import numpy as np

T = TypeVar("T")


class Moment(Generic[T]):
    """The entries as they were when it began."""

    def __init__(self, read: Callable[[str], T]) -> None:
        """`read`: returns an entry as it is now."""
        self._read = read
        self._kept: dict[str, T] = {}

    def look(self, key: str) -> T:
        """Return an entry as it was."""
        return self._kept[key] if key in self._kept else self._read(key)

    def keep(self, key: str) -> None:
        """Keep an entry, because it is about to change."""
        if key not in self._kept:
            self._kept[key] = self._read(key)


class Moments(Generic[T]):
    """The moments of one table that somebody still reads."""

    def __init__(self, read: Callable[[str], T]) -> None:
        """`read`: returns an entry as it is now."""
        self._read = read
        self._open: tuple[ref[Moment[T]], ...] = ()

    def begin(self) -> Moment[T]:
        """Return the table as it is now. It costs nothing from when nobody refers to it any more."""
        moment = Moment(self._read)
        self._open += (ref(moment),)
        return moment

    def keep(self, key: str) -> None:
        """Say that an entry is about to change."""
        for each in self._open:
            moment = each()
            if moment is None:
                self._open = tuple(other for other in self._open if other() is not None)
            else:
                moment.keep(key)


def untracked(values: Collection[T]) -> Sequence[T]:
    """Return values in a sequence that the garbage collector does not look into.

    Of a list it looks at every entry, once in each of its generations.
    """
    return cast("Sequence[T]", np.fromiter(values, np.object_, len(values)))
