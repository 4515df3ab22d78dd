"""The least that a pod adds up to while its instances are being chosen, compared with what its quotas leave.

Why it exists: an instance has its profile's memory and cores, which may be more than was requested, so only the chosen
instances decide whether a quota is kept; a choice that can no longer keep it must be abandoned early. It must not know
quotas or cards, only numbers. Invariant: the computed amounts never exceed those of any placement that is still
possible, so whatever is refused here could not have kept the limits; when nothing is left to choose, they are exact.
"""

from accounting.phases import ContainerRequest, Phases

#: The most MiB and cores of a pod's total.peak; None: not limited.
Most = tuple[int | None, int | None]
#: MiB and cores.
Amounts = tuple[int, int]

_NO_LIMIT = 1 << 62


class Limits:
    """The memory and cores that a copy may have, while one container after another is placed."""

    def __init__(self, phases: Phases, most: Most, least: dict[int, Amounts]) -> None:
        """`least`: container position -> the least that it takes on any card."""
        self.refused = False
        """Whether anything was refused because of the limits."""
        self._phases, self._least = phases, least
        self._most = tuple(_NO_LIMIT if each is None else each for each in most)
        self._at_start = self._beside(0)
        self._after = [self._beside(number) for number in range(1, len(phases.shared) + 1)]

    def keeps_at_start(self) -> bool:
        """Return whether the pod can keep the limits at all."""
        return self._keeps((0, 0), self._at_start)

    def keeps_shared(self, number: int, held: Amounts) -> bool:
        """Return the same if the sidecars and apps up to the number-th will hold at least this."""
        return self._keeps(held, self._after[number])

    def keeps_all_shared(self, held: Amounts) -> bool:
        """Return the same if all sidecars and apps, or an init with those before it, will hold at least this."""
        return self._keeps(held, self._most)

    def _keeps(self, held: Amounts, most: tuple[int, ...]) -> bool:
        if held[0] <= most[0] and held[1] <= most[1]:
            return True
        self.refused = True
        return False

    def _beside(self, number: int) -> tuple[int, ...]:
        """Return what the first `number` sidecars and apps may hold so that the others still get their least."""
        shared = self._phases.shared
        needs = [self._sum(shared[number:])]
        for init, before in self._phases.inits:
            if before >= number:
                needs.append(self._sum((*shared[number:before], init)))
        return tuple(most - max(need[dimension] for need in needs) for dimension, most in enumerate(self._most))

    def _sum(self, containers: tuple[ContainerRequest, ...]) -> Amounts:
        least = [self._least[container.position] for container in containers]
        return sum(memory for memory, _ in least), sum(cores for _, cores in least)


def cheapest(offers: list[tuple[int, Amounts]], count: int) -> Amounts:
    """Return the least memory and cores of `count` rows. `offers`: numbers of rows, each with their least."""
    return _cheapest(offers, count, 0), _cheapest(offers, count, 1)


def _cheapest(offers: list[tuple[int, Amounts]], count: int, dimension: int) -> int:
    total = 0
    for amount, rows in sorted((least[dimension], rows) for rows, least in offers):
        if rows >= count:
            return total + amount * count
        total += amount * rows
        count -= rows
    return total
