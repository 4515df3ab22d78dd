"""What a pod adds up to at least while its instances are being chosen, held against what its namespace's quotas leave.

Why it exists: an instance has its profile's memory and cores, which may be more than was asked, so only the chosen
instances say whether a quota is kept; a choice that cannot keep it any more must be left early. It must not know quotas
nor cards, only numbers. Invariant: the amounts noted are never more than what any placement that is still possible
has, so what is refused here could not have kept the limits; once every container is noted in full, they are exact.
"""

from accounting.holdings import peak_and_steady
from accounting.pod import Pod

#: The most MiB and the most cores that a pod's total.peak may be; None: not limited.
Most = tuple[int | None, int | None]
#: MiB and cores.
Amounts = tuple[int, int]


class Tally:
    """The memory and the cores of one pod's containers, so far chosen or at least."""

    def __init__(self, pod: Pod, most: Most, least: dict[int, Amounts]) -> None:
        """`least`: container position -> what it takes at least, wherever it goes."""
        self.refused = False
        """Whether anything was left out for the sake of the limits."""
        self._kinds = [container.kind for container in pod.containers]
        self._most, self._least, self._noted = most, least, dict(least)

    def keeps(self, position: int, amounts: Amounts) -> bool:
        """Note what a container takes at least; returns whether the pod can still keep the limits."""
        self._noted[position] = amounts
        peak, _ = peak_and_steady((self._kinds[at], (("", own),)) for at, own in sorted(self._noted.items()))
        return self.keeps_together(peak[""])

    def keeps_together(self, amounts: tuple[int, ...]) -> bool:
        """Return whether the pod can keep the limits if it adds up to this memory and these cores at least."""
        kept = all(most is None or amount <= most for amount, most in zip(amounts, self._most, strict=True))
        self.refused |= not kept
        return kept

    def forget(self, position: int) -> None:
        """Take a container back: its instances are chosen anew, after those of one before it."""
        self._noted[position] = self._least[position]


def cheapest(offers: list[tuple[int, Amounts]], count: int) -> Amounts:
    """Return the least memory and the least cores of `count` rows. `offers`: how many rows, and the least of each."""
    return _cheapest(offers, count, 0), _cheapest(offers, count, 1)


def _cheapest(offers: list[tuple[int, Amounts]], count: int, dimension: int) -> int:
    total = 0
    for amount, rows in sorted((least[dimension], rows) for rows, least in offers):
        total += amount * min(rows, count)
        count -= min(rows, count)
    return total
