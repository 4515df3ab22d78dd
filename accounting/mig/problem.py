"""What a pod asks of nodes with cards in MIG mode, in the form that the search needs.

Why it exists: all nodes of one question share it, so it is worked out once. It must not know what is already taken.
Invariant: cards of one class with the same free slices and the same amounts on a copy can take the same rows.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from accounting.cards import Preference
from accounting.demand import Demand
from accounting.mig.cards import Card, What
from accounting.mig.placements import Offers, offers_of
from accounting.mig_profiles import MAX_SLICES, MigLayout
from accounting.phases import Phases
from accounting.pod import DeviceRequest


class Place(NamedTuple):
    """A container in the order of the search: sidecars and apps, then the inits."""

    position: int
    request: DeviceRequest
    before: int | None
    """The number of sidecars declared before an init; None for a sidecar or an app."""
    pinned: tuple[int, ...]
    """The copies that inits after this container still need, each by the number of sidecars on it."""
    fresh: bool
    """Whether one of these inits needs the copy without sidecars."""


class Need(NamedTuple):
    """The rows that need at least what some request asks for."""

    request: DeviceRequest
    rows: int
    shared: int
    """How many sidecars and apps need them; a card not in MIG mode gives each one row."""
    inits: int


#: What a row may get of a card in MIG mode (None: the card is not in MIG mode), and the MiB that it asks for.
Want = tuple[Offers | None, int]


class Facts(NamedTuple):
    """What a pod needs of a card of which it has nothing yet."""

    state: int
    """A number for everything about the card that matters."""
    number: int
    """The same without its free slices."""
    free: int
    """Its free slices that some instance for the pod may use."""
    order: tuple[int, ...]
    """A sort key that gives cards the same order in every question of the pod."""
    counted: bool
    """Whether its number of rows matters; if it has enough slots, only its slices do."""
    wants: tuple[Want, ...]
    """What it offers a row of each container."""
    of_needs: tuple[Want, ...]
    """What it offers a row of each need."""
    of_rest: tuple[Want, ...]
    """What it offers a row of the least that the sidecars and apps from each one on ask for."""


class _Wants(NamedTuple):
    """What a pod needs of the cards of one layout and size."""

    wants: tuple[Want, ...]
    of_needs: tuple[Want, ...]
    of_rest: tuple[Want, ...]
    bits: int
    """The slices that any instance for the pod may use."""
    of_any: Offers | None
    """The instances for a row of the least that any container asks for."""


class Question:
    """The question of one pod, the same for all nodes."""

    def __init__(self, demand: Demand, layouts: Sequence[MigLayout]) -> None:
        self.phases = Phases.of(demand)
        self.preference = Preference(demand.policies, numa_bind=demand.selection.numa_bind)
        self.places = _places(self.phases)
        self.needs = _needs(self.places)
        """One per distinct request; `rest` has for each container the needs of the containers from it on."""
        numbers = {need.request: number for number, need in enumerate(self.needs)}
        self.rest = [
            tuple((numbers[need.request], need) for need in _needs(self.places[number:]))
            for number in range(len(self.places))
        ]
        requests = [place.request for place in self.places]
        self.rows = sum(request.count for request in requests)
        self._percentage = any(request.memory_percentage for request in requests)
        self._one_size = any(request.one_size for request in requests)
        self.alone = len(self.places) == 1 and (self.rows == 1 or not self.preference.numa_bind)
        """One container whose rows may be on any cards."""
        self._mutex = demand.policies.card.mutex
        self._layouts = layouts
        self._wants: dict[tuple[int, int], _Wants] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._facts: dict[tuple[int, ...], Facts] = {}

    def facts(self, card: Card) -> Facts:
        """Return what the pod needs of a card; worked out once for cards that are alike."""
        what = card.what
        # A card in MIG mode is limited by its places.
        slots = min(what.slots_left, self.rows)
        key = (what.layout, what.slices, slots, what.memory, what.numa) if what.layout else what
        known = self._facts.get(key)
        if known is None:
            known = self._facts[key] = self._facts_of(what)
        return known

    def _facts_of(self, what: What) -> Facts:
        key = what.layout, what.memory
        known = self._wants.get(key)
        if known is None:
            known = self._wants[key] = self._wants_of(what)
        free = what.slices & known.bits
        counted = self._mutex or self._runs_out_of_slots(what, known.of_any)
        essence = self._essence(what, counted=counted)
        number = self._numbers.setdefault(essence, len(self._numbers))
        return Facts(number << MAX_SLICES | free, number, free, (*essence, free), counted, *known[:3])

    def _wants_of(self, what: What) -> _Wants:
        wants = tuple(self._want(what, place.request) for place in self.places)
        of_needs = tuple(self._want(what, need.request) for need in self.needs)
        shared = [container.request for container in self.phases.shared]
        of_rest = tuple(self._least(what, shared[number:]) for number in range(len(shared)))
        bits = 0
        for offers, _ in wants:
            bits |= 0 if offers is None else offers.bits
        of_any = self._least(what, [place.request for place in self.places])[0] if self.places else None
        return _Wants(wants, of_needs, of_rest, bits, of_any)

    def _want(self, what: What, request: DeviceRequest) -> Want:
        percentage = request.memory_percentage
        memory = what.memory * percentage // 100 if percentage else request.memory
        return self._offers(what.layout, memory, request.cores), memory

    def _least(self, what: What, requests: Sequence[DeviceRequest]) -> Want:
        """Return the same for a row of the least memory and the least cores of these requests."""
        memory, cores = min(self._want(what, each)[1] for each in requests), min(each.cores for each in requests)
        return self._offers(what.layout, memory, cores), memory

    def _offers(self, layout: int, memory: int, cores: int) -> Offers | None:
        return offers_of(self._layouts[layout], memory, cores) if layout else None

    def _runs_out_of_slots(self, what: What, of_any: Offers | None) -> bool:
        """Return whether a card may run out of slots before it runs out of places."""
        return of_any is None or what.slots_left < min(of_any.most_rows(what.slices), self.rows)

    def _essence(self, what: What, *, counted: bool) -> tuple[int, ...]:
        """Return what matters about a card apart from its free slices and what the pod takes of it."""
        memory = what.memory if self._percentage else 0
        numa = what.numa if self.preference.numa_bind else 0
        slots = min(what.slots_left, self.rows)
        if what.layout:
            return what.layout, numa, memory, slots if counted else self.rows
        sizes = (what.slots_used, what.memory_used) if self._one_size else (min(what.slots_used, 1), 0)
        return 0, numa, memory, slots, what.memory_left, what.cores_left, min(what.cores, 1), *sizes


def _places(phases: Phases) -> tuple[Place, ...]:
    befores = [before for _, before in phases.inits]
    shared = [
        Place(
            container.position,
            container.request,
            None,
            _sorted(before for before in befores if before <= number),
            0 in befores,
        )
        for number, container in enumerate(phases.shared)
    ]
    inits = [
        Place(container.position, container.request, before, _sorted(befores[number + 1 :]), 0 in befores[number + 1 :])
        for number, (container, before) in enumerate(phases.inits)
    ]
    return (*shared, *inits)


def _sorted(befores: Iterable[int]) -> tuple[int, ...]:
    """Return each number once, without 0: that copy is empty."""
    return tuple(sorted({before for before in befores if before}))


def _needs(places: Sequence[Place]) -> tuple[Need, ...]:
    """Return for each distinct request the rows that ask for at least as much."""
    found = []
    for request in dict.fromkeys(place.request._replace(count=1) for place in places):
        takers = [place for place in places if _asks_as_much(place.request, request)]
        inits = sum(place.before is not None for place in takers)
        rows = sum(place.request.count for place in takers)
        found.append(Need(request, rows, len(takers) - inits, inits))
    return tuple(found)


def _asks_as_much(request: DeviceRequest, least: DeviceRequest) -> bool:
    if bool(request.memory_percentage) is not bool(least.memory_percentage):
        return False
    as_much = request.memory >= least.memory and request.memory_percentage >= least.memory_percentage
    return as_much and request.cores >= least.cores
