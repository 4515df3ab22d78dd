"""The instances that one layout of a card in MIG mode offers a row, for every set of free slices.

Why it exists: the search asks this at every step, and a stored list costs a hundredth of going through the profiles
again. It must not know cards or pods. Invariant: the results are those of `mig.options`, remembered.
"""

from functools import lru_cache
from typing import NamedTuple

from accounting.mig_profiles import EVERY_SLICE, MigInstance, MigLayout, options


class Offer(NamedTuple):
    """An instance that a row may get."""

    rank: int
    """Its place in the order of preference; rows of one container on one card take rising ranks."""
    bits: int
    memory: int
    cores: int
    instance: MigInstance


class Offers:
    """The instances of one layout with at least some memory (MiB) and some cores (percent)."""

    def __init__(self, layout: MigLayout, memory: int, cores: int) -> None:
        every = options(layout, EVERY_SLICE, memory, cores)
        instances = [option.instance for option in every]
        self._every = tuple(
            Offer(instances.index(instance), instance.bits, mib, percent, instance)
            for instance, mib, percent in dict.fromkeys(every)
        )
        self.bits = 0
        """The slices that any of them uses."""
        for offer in self._every:
            self.bits |= offer.bits
        self.fewest_slices = min((offer.bits.bit_count() for offer in self._every), default=0)
        self._fitting: list[tuple[Offer, ...] | None] = [None] * (EVERY_SLICE + 1)
        self._most_rows: list[int | None] = [None] * (EVERY_SLICE + 1)
        self._least: list[tuple[int, int] | None] = [None] * (EVERY_SLICE + 1)

    def fitting(self, free: int) -> tuple[Offer, ...]:
        """Return the instances on free slices, the preferred one first."""
        known = self._fitting[free]
        if known is None:
            known = self._fitting[free] = tuple(offer for offer in self._every if not offer.bits & ~free)
        return known

    def most_rows(self, free: int) -> int:
        """Return how many of them fit on free slices together."""
        known = self._most_rows[free]
        if known is None:
            known = 0
            # The lowest slice that any may use is used by one of them or by none, so no choice is counted in two
            # orders.
            for bits in {offer.bits for offer in self.fitting(free)}:
                known = max(known, 1 + self.most_rows(free & ~bits & ~((bits & -bits) - 1)))
            self._most_rows[free] = known
        return known

    def least(self, free: int) -> tuple[int, int]:
        """Return the least memory and the least cores of the instances on free slices, or 0 if there are none."""
        known = self._least[free]
        if known is None:
            found = self.fitting(free)
            known = min((each.memory for each in found), default=0), min((each.cores for each in found), default=0)
            self._least[free] = known
        return known


@lru_cache(maxsize=4_096)
def offers_of(layout: MigLayout, memory: int, cores: int) -> Offers:
    """Return the instances of a layout for a row that asks for this memory and these cores."""
    return Offers(layout, memory, cores)
