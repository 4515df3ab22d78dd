"""Costs of victims as arrays over many cards or nodes, and the sums and minima of them.

Why it exists: the order of sets has up to six numbers before the UIDs, and of 80,000 cards each the cheapest set is
wanted. It must not know what a set is for. Invariants: `cheaper` compares as `order.Cost` does; amounts beyond a field
are cut off, so a cost is never more than that of its pods.
"""

from typing import NamedTuple

import numpy as np

from accounting.state import BoolArray, Int64Array, Rows

#: The most costs that may be added up. Fields have room for so many of their largest numbers.
MOST_ADDED = 16
_ADDED_BITS = MOST_ADDED.bit_length() - 1
_NUMBER_BITS, _CORES_BITS, _MEMORY_BITS, _SLOTS_BITS = 12, 17, 30, 15
_MEMORY_SHIFT, _SLOTS_SHIFT = _CORES_BITS, _CORES_BITS + _MEMORY_BITS
#: `priorities` where nobody helps. So many of them can be added.
NEVER = 1 << 58
_MOST_TOTAL = 1 << 41
#: `started` where nothing is known.
ANY_START = -(1 << 62)


class Ways(NamedTuple):
    """What it costs at least, element by element, in the order in which these decide."""

    priorities: Int64Array
    """The sum of priorities, each counted from the lowest int32, then the number of pods."""
    freed: Int64Array
    """Slots, then MiB, then cores."""
    started: Int64Array
    """The earliest start among the victims of the highest priority, negated."""

    @classmethod
    def full(cls, shape: tuple[int, ...], priorities: int) -> "Ways":
        """Return the same everywhere: 0 for nobody, or `NEVER`."""
        return cls(np.full(shape, priorities, np.int64), np.zeros(shape, np.int64), np.full(shape, ANY_START, np.int64))

    def at(self, index: object) -> "Ways":
        """Return a part of each array."""
        return Ways(*(array[index] for array in self))  # type: ignore[call-overload]

    def put(self, index: object, other: "Ways") -> None:
        """Replace a part of each array."""
        for own, new in zip(self, other, strict=True):
            own[index] = new  # type: ignore[call-overload]


class Cheapest(NamedTuple):
    """One element, in the terms of `order.Cost`."""

    total: int
    number: int
    slots: int
    memory: int
    cores: int
    started: int


def cost(totals: Int64Array, numbers: Int64Array, freed: tuple[Int64Array, ...], started: Int64Array) -> Ways:
    """Return costs. `totals`: sums of priorities, each counted from the lowest int32. `freed`: slots, MiB, cores."""
    slots, memory, cores = (
        np.clip(amounts, 0, (1 << (bits - _ADDED_BITS)) - 1)
        for amounts, bits in zip(freed, (_SLOTS_BITS, _MEMORY_BITS, _CORES_BITS), strict=True)
    )
    most = (1 << (_NUMBER_BITS - _ADDED_BITS)) - 1
    priorities = (np.minimum(totals, _MOST_TOTAL) << _NUMBER_BITS) + np.minimum(numbers, most)
    return Ways(priorities, (slots << _SLOTS_SHIFT) + (memory << _MEMORY_SHIFT) + cores, started)


def unpacked(priorities: int, freed: int, started: int) -> Cheapest:
    """Return the numbers of one element."""
    return Cheapest(
        priorities >> _NUMBER_BITS,
        priorities & ((1 << _NUMBER_BITS) - 1),
        freed >> _SLOTS_SHIFT,
        (freed >> _MEMORY_SHIFT) & ((1 << _MEMORY_BITS) - 1),
        freed & ((1 << _CORES_BITS) - 1),
        started,
    )


def added(some: Ways, others: Ways) -> Ways:
    """Return what both cost together. No pod may be in both."""
    return Ways(
        np.minimum(some.priorities + others.priorities, NEVER),
        some.freed + others.freed,
        np.maximum(some.started, others.started),
    )


def cheaper(some: Ways, others: Ways) -> Ways:
    """Return the cheaper one of each two."""
    less = _less(some, others)
    return Ways(*(np.where(less, mine, theirs) for mine, theirs in zip(some, others, strict=True)))


def take_cheaper(some: Ways, others: Ways) -> None:
    """Put others in the place of those that are dearer."""
    less = _less(others, some)
    for mine, theirs in zip(some, others, strict=True):
        np.copyto(mine, theirs, where=less)


def dearer(some: Ways, others: Ways) -> Ways:
    """Return the dearer one of each two."""
    less = _less(some, others)
    return Ways(*(np.where(less, theirs, mine) for mine, theirs in zip(some, others, strict=True)))


def number_up_to(ways: Ways, limit: tuple[int, int, int]) -> int:
    """Return how many elements are not dearer than the limit: its `priorities`, `freed` and `started`."""
    one = Ways(*(np.array(number, np.int64) for number in limit))
    return int(np.count_nonzero(~_less(one, ways)))


def cheapest_of(ways: Ways, groups: Rows, count: int) -> Ways:
    """Return (group,): the cheapest of the elements that belong to each group; `NEVER` where none does."""
    found = Ways.full((count,), NEVER)
    np.minimum.at(found.priorities, groups, ways.priorities)
    keep = ways.priorities == found.priorities[groups]
    groups, freed, started = groups[keep], ways.freed[keep], ways.started[keep]
    found.freed[groups] = np.iinfo(np.int64).max
    np.minimum.at(found.freed, groups, freed)
    keep = freed == found.freed[groups]
    groups, started = groups[keep], started[keep]
    found.started[groups] = np.iinfo(np.int64).max
    np.minimum.at(found.started, groups, started)
    return found


def _less(some: Ways, others: Ways) -> BoolArray:
    less: BoolArray = some.started < others.started
    for mine, theirs in ((some.freed, others.freed), (some.priorities, others.priorities)):
        less = (mine < theirs) | (less & (mine == theirs))
    return less
