"""The search for a placement on one node that has cards in MIG mode: container by container, with backtracking.

Why it exists: an instance has a place on its card, and places differ in value, so sums cannot decide. It must not know
views, names or codes. Invariants: the first placement in the order of preference is found, and the skipped parts
contain none; the same question takes the same steps.

States that have failed are not tried again. Whether the rest can be placed depends, per card, on its properties, its
free slices, what each copy that is still needed holds of it, and whether the present container may still take it; cards
that agree in these are interchangeable. With limits on the pod's sum, the sums over the copies matter too: if some
amount was too much, a larger one is as well.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accounting.mig.assignment import Copies, Copy, fits
from accounting.mig.budget import Amounts, Limits, Most, cheapest
from accounting.mig.cards import Card
from accounting.mig.necessary import NecessaryTest
from accounting.mig.placements import Offers
from accounting.mig.problem import Place, Question
from accounting.mig_profiles import MigInstance

#: Bits of the parts of a packed key: a card's state on a copy, its free slices, whether it is still open.
_STATE, _SLICES, _OPEN = 20, 8, 16


class Taken(NamedTuple):
    """What a row takes: the card's number on the node, MiB, cores, and the instance of a card in MIG mode."""

    at: int
    memory: int
    cores: int
    instance: MigInstance | None


#: One per row.
Chosen = tuple[Taken, ...]


class Steps:
    """The steps that are left; a step is one card or instance tried."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.taken = 0


class _InVain:
    """States that have failed, each with what the copies held then."""

    def __init__(self) -> None:
        self._ways: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._ways)

    def has(self, way: tuple[int, ...], held: tuple[int, ...]) -> bool:
        """Return whether this state has failed with as much or less on the copies."""
        for other in self._ways.get(way, ()):
            if all(less <= more for less, more in zip(other, held, strict=True)):
                return True
        return False

    def add(self, way: tuple[int, ...], held: tuple[int, ...]) -> None:
        """Note a state that has failed."""
        self._ways.setdefault(way, []).append(held)


class _Placing:
    """A container whose cards are being chosen, and what stays fixed during that."""

    __slots__ = ("base", "copies", "cores", "number", "pinned", "place", "want")

    def __init__(self, number: int, place: Place, copies: list[Copy], want: list[tuple[Offers | None, int]]) -> None:
        self.number, self.place, self.copies, self.want = number, place, copies, want
        self.cores = place.request.cores
        self.base: list[int] = []
        self.pinned: tuple[int, ...] = ()


class Search:
    """The search on one node."""

    def __init__(
        self, question: Question, cards: Sequence[Card], most: Most | None, steps: Steps, *, by_preference: bool = True
    ) -> None:
        """`by_preference`: try cards in the order of the pod's policy instead of their own."""
        self._question, self._cards, self._steps = question, [card.what for card in cards], steps
        self._mutex = question.preference.policies.card.mutex
        self._bind = question.preference.numa_bind
        facts = [question.facts(card) for card in cards]
        self._wants = [[each.wants[number] for each in facts] for number in range(len(question.places))]
        self._free = [each.free for each in facts]
        self._closing = any(each.counted for each in facts)
        self._classes = [each.number for each in facts]
        self._necessary = NecessaryTest(question, cards, facts)
        self._tried = [_InVain() for _ in question.places]
        self._tried_rows = [_InVain() for _ in question.places]
        self._copies = Copies(question, cards, facts, by_preference=by_preference)
        self._start = self._copies.empty()
        self.chosen: dict[int, Chosen] = {}
        """Container position -> its rows, after a placement was found."""
        self.cut = False
        """Whether the search ran out of steps."""
        self.limits = None if most is None else Limits(question.phases, most, dict(self._least_of_each()))

    def run(self) -> bool:
        """Return whether there is a placement."""
        if self.limits is not None and not self.limits.keeps_at_start():
            return False
        return self._place(0, [self._start])

    def _least_of_each(self) -> Iterator[tuple[int, Amounts]]:
        for place, want in zip(self._question.places, self._wants, strict=True):
            order = self._open(place, want, self._start)
            yield place.position, self._least(want, place.request.cores, order, place.request.count)

    # -- containers ----------------------------------------------------------------------------------------------------

    def _place(self, number: int, copies: list[Copy]) -> bool:
        """Place the containers from the number-th on. `copies`: the shared copy before each sidecar and app so far."""
        if number == len(self._wants):
            return True
        place = self._question.places[number]
        copy = copies[-1] if place.before is None else copies[place.before]
        placing = _Placing(number, place, copies, self._wants[number])
        placing.base = self._base(place, copies)
        if self.limits is not None:
            placing.pinned = tuple(amount for before in place.pinned for amount in copies[before].held)
        free = self._usable(placing, copy)
        held, tried = self._held(placing, copy), self._tried[number]
        if tried.any and tried.has(self._way(placing, copy, free), held):
            return False
        if self._hopeful(placing, copy, free) and any(
            self._rows(placing, copy, order, 0, 0, ()) for order in self._orders(placing, copy)
        ):
            return True
        if not self.cut:
            tried.add(self._way(placing, copy, free), held)
        return False

    def _usable(self, placing: _Placing, copy: Copy) -> list[int]:
        """Return the free slices per card; none for a card that neither this container nor a later one can use."""
        if not self._closing or placing.place.fresh:
            return self._free
        needed = [copy, *(placing.copies[before] for before in placing.place.pinned)]
        return [0 if all(self._is_full(at, each) for each in needed) else free for at, free in enumerate(self._free)]

    def _is_full(self, at: int, copy: Copy) -> bool:
        slots = copy.slots[at]
        return slots >= self._cards[at].slots_left or (self._mutex and slots > 0)

    def _hopeful(self, placing: _Placing, copy: Copy, free: list[int]) -> bool:
        """Return whether the rest may still be placed."""
        if not self._necessary.enough(placing.number, free, copy):
            return False
        if self.limits is None or placing.place.before is not None:
            return True
        memory, cores = self._necessary.least_of_shared(placing.number, free)
        return self.limits.keeps_all_shared((copy.held[0] + memory, copy.held[1] + cores))

    def _orders(self, placing: _Placing, copy: Copy) -> list[list[int]]:
        """Return the cards to try, in order of preference, as one list; under numa-bind one list per NUMA node."""
        can = set(self._open(placing.place, placing.want, copy))
        order = [at for at in self._copies.ranked(copy) if at in can]
        if not self._bind or placing.place.request.count == 1:
            return [order]
        numbers = dict.fromkeys(self._cards[at].numa for at in order)
        return [[at for at in order if self._cards[at].numa == number] for number in numbers]

    def _open(self, place: Place, want: list[tuple[Offers | None, int]], copy: Copy) -> list[int]:
        """Return the cards that may take a row of a container on this copy, as in `card_fit`."""
        return [
            at
            for at, card in enumerate(self._cards)
            if card.slots_left > copy.slots[at]
            and not (self._mutex and copy.slots[at])
            and (card.layout or fits(card, place.request, want[at][1], copy.of(at)))
        ]

    # -- rows of one container -----------------------------------------------------------------------------------------

    def _rows(self, placing: _Placing, copy: Copy, order: list[int], at: int, first: int, chosen: Chosen) -> bool:
        """Place the rows that are left on the cards from `order[at]` on, on that card from instance rank `first` on."""
        missing = placing.place.request.count - len(chosen)
        if self.limits is not None and not self._keeps(placing, copy, order[at:], missing):
            return False
        if not missing:
            self.chosen[placing.place.position] = chosen
            return self._place(
                placing.number + 1, [*placing.copies, copy] if placing.place.before is None else placing.copies
            )
        if missing == 1:
            return self._any_card(placing, copy, order, at, first, chosen, [1] * (len(order) - at))
        most_rows = [self._most_rows(placing, copy, card) for card in order[at:]]
        if sum(most_rows) < missing:
            return False
        held, tried = self._held(placing, copy), self._tried_rows[placing.number]
        if tried.any and tried.has(self._way_of_rows(placing, copy, order, at, first), held):
            return False
        if self._any_card(placing, copy, order, at, first, chosen, most_rows):
            return True
        if not self.cut:
            tried.add(self._way_of_rows(placing, copy, order, at, first), held)
        return False

    def _any_card(
        self, placing: _Placing, copy: Copy, order: list[int], at: int, first: int, chosen: Chosen, most_rows: list[int]
    ) -> bool:
        """Try the cards from `order[at]` on for the next row. `most_rows`: the most rows of each."""
        missing, left = placing.place.request.count - len(chosen), sum(most_rows)
        seen = set()
        for place in range(at, len(order)):
            if left < missing or self.cut:
                return False
            left -= most_rows[place - at]
            # Among cards that are alike here, only the first one is tried.
            card = order[place]
            like = placing.base[card], copy.states[card], self._free[card], first
            if like not in seen and self._card(placing, copy, order, place, first, chosen):
                return True
            seen.add(like)
            first = 0
        return False

    def _card(self, placing: _Placing, copy: Copy, order: list[int], at: int, first: int, chosen: Chosen) -> bool:
        """Give the next row to the card `order[at]`."""
        card = order[at]
        offers, memory = placing.want[card]
        if offers is None:
            if not self._step():
                return False
            after = self._copies.booked(copy, card, memory, placing.cores)
            return self._rows(placing, after, order, at + 1, 0, (*chosen, Taken(card, memory, placing.cores, None)))
        if copy.slots[card] >= self._cards[card].slots_left:
            return False
        free = self._free[card]
        for offer in offers.fitting(free):
            # Rows of one container are alike, so they are tried in one order only.
            if offer.rank < first:
                continue
            if not self._step():
                return False
            self._free[card] = free & ~offer.bits
            after = self._copies.booked(copy, card, offer.memory, offer.cores)
            row = Taken(card, offer.memory, offer.cores, offer.instance)
            if self._rows(placing, after, order, at, offer.rank + 1, (*chosen, row)):
                return True
            self._free[card] = free
        return False

    def _step(self) -> bool:
        """Take one step; False if there is none left."""
        self.cut = not self._steps.left
        self._steps.left -= not self.cut
        self._steps.taken += not self.cut
        return not self.cut

    def _keeps(self, placing: _Placing, copy: Copy, order: list[int], missing: int) -> bool:
        """Return whether the pod can still keep the limits with the rows that the container has so far."""
        if self.limits is None:
            return True
        memory, cores = self._least(placing.want, placing.cores, order, missing)
        held = copy.held[0] + memory, copy.held[1] + cores
        if placing.place.before is None:
            return self.limits.keeps_shared(placing.number, held)
        return self.limits.keeps_all_shared(held)

    def _least(self, want: list[tuple[Offers | None, int]], cores: int, order: list[int], count: int) -> Amounts:
        """Return the least memory and the least cores of this many rows."""
        if not count:
            return 0, 0
        rows = []
        for card in order:
            offers, memory = want[card]
            if offers is None:
                rows.append((1, (memory, cores)))
            else:
                rows.append((offers.most_rows(self._free[card]), offers.least(self._free[card])))
        return cheapest(rows, count)

    def _most_rows(self, placing: _Placing, copy: Copy, card: int) -> int:
        offers = placing.want[card][0]
        if offers is None:
            return 1
        return min(offers.most_rows(self._free[card]), self._cards[card].slots_left - copy.slots[card])

    # -- what was tried ------------------------------------------------------------------------------------------------

    def _base(self, place: Place, copies: list[Copy]) -> list[int]:
        """Return a number per card: its properties, and what the copies that are needed later hold of it."""
        base = self._classes
        for before in place.pinned:
            base = [known << _STATE | state for known, state in zip(base, copies[before].states, strict=True)]
        return base

    def _held(self, placing: _Placing, copy: Copy) -> tuple[int, ...]:
        return () if self.limits is None else (*copy.held, *placing.pinned)

    def _way(self, placing: _Placing, copy: Copy, usable: list[int]) -> tuple[int, ...]:
        cards = zip(placing.base, copy.states, usable, strict=True)
        return tuple(sorted([(base << _STATE | state) << _SLICES | free for base, state, free in cards]))

    def _way_of_rows(self, placing: _Placing, copy: Copy, order: list[int], at: int, first: int) -> tuple[int, ...]:
        cards = zip(placing.base, copy.states, self._free, strict=True)
        way = [((base << _STATE | state) << _SLICES | free) << _OPEN for base, state, free in cards]
        for card in order[at:]:
            way[card] += 1
        way[order[at]] += first
        way.sort()
        return (placing.place.request.count, *way)
