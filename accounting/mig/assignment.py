"""What the pod being placed has put on the cards of one node so far, on one copy of it.

Why it exists: sidecars and apps are placed on one shared copy of a node and each init on its own copy, as
`accounting.cards.assignment` does for many nodes at once. It must not choose cards. Invariant: a copy never changes;
booking makes a new one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from accounting.holdings import EXCLUSIVE_CORES
from accounting.mig.budget import Amounts
from accounting.mig.cards import Card, What
from accounting.mig.problem import Facts, Question
from accounting.pod import DeviceRequest
from accounting.policy import CardKey, Weights
from accounting.state import FULL_LOAD

_LOADS = (CardKey.HIGH_LOAD, CardKey.LOW_LOAD)


class Copy(NamedTuple):
    """Amounts per card."""

    slots: list[int]
    memory: list[int]
    cores: list[int]
    exclusive: int
    """Bit i: card i has a row that takes all its cores."""
    states: list[int]
    """One number per card for the part of the other four that matters."""
    loads: list[int]
    held: Amounts
    """MiB and cores of all cards together."""

    def of(self, at: int) -> "Held":
        """Return the amounts of one card."""
        return Held(self.slots[at], self.memory[at], self.cores[at], self.exclusive >> at & 1)


class Held(NamedTuple):
    """The amounts of one card on a copy."""

    slots: int = 0
    memory: int = 0
    cores: int = 0
    exclusive: int = 0


def fits(card: What, request: DeviceRequest, memory: int, held: Held) -> bool:
    """Return whether a card not in MIG mode can take a row of this memory on a copy, as in `card_fit`."""
    cores_left = card.cores_left - held.cores
    if card.memory_left - held.memory < memory or cores_left < request.cores or held.exclusive:
        return False
    if not request.cores and cores_left <= 0 and card.cores:
        return False
    slots = card.slots_used + held.slots
    if request.cores >= EXCLUSIVE_CORES and slots:
        return False
    return not request.one_size or card.memory_used + held.memory == slots * request.memory


class Copies:
    """What all copies of one node have in common."""

    def __init__(
        self, question: Question, cards: Sequence[Card], facts: Sequence[Facts], *, by_preference: bool
    ) -> None:
        self._cards, self._preference = cards, question.preference
        self._by_preference = by_preference
        self._by_load = by_preference and any(key in _LOADS for key in question.preference.keys)
        self._counted = [each.counted for each in facts]
        self._forwards = list(range(len(cards)))
        self._backwards = range(len(cards) - 1, -1, -1)
        self._states: dict[tuple[int, int, int, int], int] = {}

    def booked(self, copy: Copy, at: int, memory: int, cores: int) -> Copy:
        """Return a copy with one more row on a card."""
        slots, mib, percent = copy.slots.copy(), copy.memory.copy(), copy.cores.copy()
        slots[at] += 1
        mib[at] += memory
        percent[at] += cores
        card, states, loads = self._cards[at].what, copy.states, copy.loads
        exclusive = copy.exclusive | 1 << at if cores >= EXCLUSIVE_CORES else copy.exclusive
        if self._by_load:
            loads = loads.copy()
            loads[at] = self._load(card, slots[at], mib[at], percent[at])
        if self._counted[at]:
            states = states.copy()
            shared = not card.layout
            states[at] = self._state(slots[at], mib[at], percent[at], exclusive >> at & 1) if shared else slots[at]
        return Copy(slots, mib, percent, exclusive, states, loads, (copy.held[0] + memory, copy.held[1] + cores))

    def _state(self, slots: int, memory: int, cores: int, exclusive: int) -> int:
        """Return a number for what a copy holds of a card not in MIG mode."""
        return self._states.setdefault((slots, memory, cores, exclusive), len(self._states) + 1)

    def _load(self, card: What, slots: int, memory: int, cores: int) -> int:
        """Return a card's load with this much of the pod on it, as in `snapshot.weighted_load`."""
        if not (card.slots > 0 and card.memory > 0 and card.cores > 0):
            return 0
        weights: Weights = self._preference.weights
        return (
            weights.slot * ((card.slots_used + slots) * FULL_LOAD // card.slots)
            + weights.memory * ((card.memory_used + memory) * FULL_LOAD // card.memory)
            + weights.core * ((card.cores_used + cores) * FULL_LOAD // card.cores)
        )

    def empty(self) -> Copy:
        """Return the empty copy."""
        nothing = [0] * len(self._cards)
        return Copy(nothing, nothing, nothing, 0, nothing, [card.load for card in self._cards], (0, 0))

    def ranked(self, copy: Copy) -> list[int]:
        """Return the numbers of all cards, the preferred one first, as in `greedy.ranking`."""
        if not self._by_preference:
            return self._forwards
        values = [self._values(key, copy) for key in self._preference.keys]
        keys = values[0] if len(values) == 1 else list(zip(*values, strict=True))
        # Among equal cards the last one is preferred, and sorting keeps their order.
        return sorted(self._backwards, key=keys.__getitem__, reverse=True)

    def _values(self, key: CardKey, copy: Copy) -> list[int]:
        if key is CardKey.HIGH_LOAD:
            return copy.loads
        if key is CardKey.LOW_LOAD:
            return [-load for load in copy.loads]
        if key is CardKey.FEW_SLOTS:
            return [-card.what.slots_used - slots for card, slots in zip(self._cards, copy.slots, strict=True)]
        if key is CardKey.HIGH_INDEX:
            return [card.index for card in self._cards]
        return [card.what.numa if key is CardKey.HIGH_NUMA else -card.what.numa for card in self._cards]
