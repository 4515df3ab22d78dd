"""What a pod adds up to at least while its instances are being chosen, held against what its namespace's quotas leave.

Why it exists: an instance has its profile's memory and cores, which may be more than was asked, so only the chosen
instances say whether a quota is kept; a choice that cannot keep it any more must be left early. It must not know quotas
nor cards, only numbers. Invariant: the amounts reckoned with are never more than what any placement that is still
possible has, so what is refused here could not have kept the limits; where nothing is left to choose, they are exact.
"""

from accounting.phases import ContainerRequest, Phases

#: The most MiB and the most cores that a pod's total.peak may be; None: not limited.
Most = tuple[int | None, int | None]
#: MiB and cores.
Amounts = tuple[int, int]

_NO_LIMIT = 1 << 62


class Limits:
    """How much memory and how many cores there may be on a copy while one container after another is placed."""

    def __init__(self, phases: Phases, most: Most, least: dict[int, Amounts]) -> None:
        """`least`: container position -> what it takes at least, wherever it goes."""
        self.refused = False
        """Whether anything was left out for the sake of the limits."""
        self._phases, self._least = phases, least
        self._most = tuple(_NO_LIMIT if each is None else each for each in most)
        self._at_start = self._beside(0)
        self._after = [self._beside(number) for number in range(1, len(phases.shared) + 1)]

    def keeps_at_start(self) -> bool:
        """Return whether the pod can keep the limits at all."""
        return self._keeps((0, 0), self._at_start)

    def keeps_shared(self, number: int, held: Amounts) -> bool:
        """Return the same when the sidecars and apps up to the number-th will hold this at least."""
        return self._keeps(held, self._after[number])

    def keeps_all_shared(self, held: Amounts) -> bool:
        """Return the same when all sidecars and apps will hold this at least, or an init and those before it."""
        return self._keeps(held, self._most)

    def _keeps(self, held: Amounts, most: tuple[int, ...]) -> bool:
        if held[0] <= most[0] and held[1] <= most[1]:
            return True
        self.refused = True
        return False

    def _beside(self, number: int) -> tuple[int, ...]:
        """Return what the first `number` sidecars and apps may hold for the others to have their least beside them."""
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
    """Return the least memory and the least cores of `count` rows. `offers`: how many rows, and the least of each."""
    return _cheapest(offers, count, 0), _cheapest(offers, count, 1)


def _cheapest(offers: list[tuple[int, Amounts]], count: int, dimension: int) -> int:
    total = 0
    for amount, rows in sorted((least[dimension], rows) for rows, least in offers):
        if rows >= count:
            return total + amount * count
        total += amount * rows
        count -= rows
    return total
