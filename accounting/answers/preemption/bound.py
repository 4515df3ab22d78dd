"""What a set of victims on a node costs at least, in the order of `Cost`.

Why it exists: a node whose bound is above the cost of the best set found needs no search. It must not know how a bound
is worked out. Invariant: `is_above` is true only if every set with this bound costs more.
"""

from typing import NamedTuple

from accounting.answers.preemption.order import Cost
from accounting.answers.preemption.table import uid_number
from accounting.answers.preemption.ways import unpacked


class Bound(NamedTuple):
    """What a set of victims costs at least; in the order of `Cost`."""

    violations: int
    highest: int
    total: int
    number: int
    freed: "Freed"

    @classmethod
    def of(cls, violations: int, highest: int, priorities: int, freed: int, started: int) -> "Bound":
        """Return the bound of several victims by the numbers of `Ways`."""
        least = unpacked(priorities, freed, started)
        amounts = Freed(least.slots, least.memory, least.cores, least.started, uid=-1)
        return cls(violations, highest, least.total, least.number, amounts)

    def is_above(self, cost: Cost) -> bool:
        """Whether every set with this bound costs more than one with that cost."""
        own, other = self[:4], cost[:4]
        if own != other:
            return own > other
        return self.freed > Freed(cost.slots, cost.memory, cost.cores, cost.started, uid_number(cost.uids[0]))


class Freed(NamedTuple):
    """What the victims free, and what decides beyond that."""

    slots: int
    memory: int
    cores: int
    started: int
    uid: int
    """Of a single victim; -1 if there are several."""


class Ranked(NamedTuple):
    """A node and what a set on it costs at least."""

    row: int
    bound: Bound | None
    """None: perhaps nobody has to go."""
