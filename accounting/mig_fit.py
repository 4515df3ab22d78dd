"""Placing a pod on nodes that have cards in MIG mode.

Why it exists: an instance lies at a place, several instances may lie on one card, and one place can be worth more than
another; that is no question of sums, so it is searched, node by node. It must not know names or codes. Invariants:
exact up to the number of steps, and the same question takes the same steps; equal nodes are searched once; a card that
is not in MIG mode takes a row here exactly if `card_fit` says so.

Sidecars and apps are placed on one shared copy of the node and each init on its own fork, as in `fit`. But the kubelet
allocates all containers when it admits the pod, and the plugin makes all instances then, so the places of a pod's
instances on one card never overlap, an init's and an app's neither (HAMi lets them, and its plugin then fails).
"""

from collections.abc import Iterator
from enum import Enum, auto
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accounting.card_fit import fitting_cards, memory_of, open_cards
from accounting.choice import Preference, ranking
from accounting.device_table import BoolArray, Rows
from accounting.mig import EVERY_SLICE, MigInstance, most_instances, options
from accounting.mig_budget import Amounts, Most, Tally, cheapest
from accounting.phases import Asking, Phases
from accounting.pod import DeviceRequest, Pod
from accounting.selection_mask import accepted
from accounting.share import Share
from accounting.snapshot import Snapshot, View

#: Steps for all nodes of one question together; a step is one card or instance tried, about 20 microseconds.
STEPS = 4_096


class Pick(NamedTuple):
    """What one row of a container gets."""

    device: int
    memory: int
    cores: int
    instance: MigInstance | None


#: Container position -> its rows.
Picks = dict[int, tuple[Pick, ...]]


class Searched(NamedTuple):
    """(column,) each: whether the pod can be placed with cards in MIG mode, and whether that could not be decided."""

    feasible: BoolArray
    limited: BoolArray
    concerned: BoolArray
    """Nodes with a card in MIG mode that the pod accepts."""
    over: BoolArray
    """Nodes where the pod can be placed, but nowhere within the limits on what it adds up to."""


class _Outcome(Enum):
    PLACED = auto()
    NO_PLACE = auto()
    REFUSED = auto()
    """No within the limits; without them it was not looked."""
    OVER = auto()
    UNDECIDED = auto()


def place_on_columns(view: View, pod: Pod, snapshot: Snapshot, wanted: BoolArray, most: Most | None) -> Searched:
    """Decide the wanted columns of a view. `most`: what the pod's total.peak may be, if that is limited.

    All are searched within the limits first. What steps are left say of the nodes that were refused whether they have a
    place without the limits; where none are left that is not decided.
    """
    nothing = np.zeros(view.columns, np.bool_)
    if len(snapshot.layouts) == 1:
        return Searched(nothing, nothing, nothing, nothing)
    concerned = np.logical_or.reduce(_mig_cards(view, pod, snapshot), axis=0)
    columns = np.flatnonzero(concerned & wanted)
    keys = _keys(view.take(columns), pod, snapshot)
    first = {key: place for place, key in reversed([*enumerate(keys)])}
    alone = {key: view.take(columns[place : place + 1]) for key, place in sorted(first.items(), key=itemgetter(1))}
    steps = _Steps(STEPS)
    known = {key: _within(single, pod, snapshot, most, steps) for key, single in alone.items()}
    for key, outcome in known.items():
        if outcome is _Outcome.REFUSED:
            free = _within(alone[key], pod, snapshot, None, steps)
            known[key] = _Outcome.OVER if free is _Outcome.PLACED else free
    outcomes = [known[key] for key in keys]
    return Searched(
        _where(nothing, columns, outcomes, _Outcome.PLACED),
        _where(nothing, columns, outcomes, _Outcome.UNDECIDED),
        concerned,
        _where(nothing, columns, outcomes, _Outcome.OVER),
    )


def _where(nothing: BoolArray, columns: Rows, outcomes: list[_Outcome], outcome: _Outcome) -> BoolArray:
    found = nothing.copy()
    found[columns] = [each is outcome for each in outcomes]
    return found


def place_on_one(view: View, pod: Pod, snapshot: Snapshot, most: Most | None) -> Picks | None:
    """Return what every container gets on a view of one column within the limits, or None."""
    if len(snapshot.layouts) == 1 or not _mig_cards(view, pod, snapshot).any():
        return None
    return _Search(view, pod, snapshot, most, _Steps(STEPS)).run()


def _mig_cards(view: View, pod: Pod, snapshot: Snapshot) -> BoolArray:
    cards: BoolArray = view.nodes.layout > 0
    mask = accepted(view, pod.selection, snapshot, mig=True)
    return cards if mask is None else cards & mask


class _Steps:
    def __init__(self, most: int) -> None:
        self._left = most

    def take(self) -> bool:
        """Take one step; False if there is none left."""
        self._left -= 1
        return self._left >= 0

    @property
    def exhausted(self) -> bool:
        return self._left < 0


def _within(view: View, pod: Pod, snapshot: Snapshot, most: Most | None, steps: _Steps) -> _Outcome:
    """Search one column within the limits."""
    search = _Search(view, pod, snapshot, most, steps)
    if search.run() is not None:
        return _Outcome.PLACED
    if steps.exhausted:
        return _Outcome.UNDECIDED
    return _Outcome.REFUSED if search.tally is not None and search.tally.refused else _Outcome.NO_PLACE


def _keys(view: View, pod: Pod, snapshot: Snapshot) -> list[bytes]:
    """Return for each column everything that decides about it, as bytes."""
    nodes, requested = view.nodes, view.requested
    mask = accepted(view, pod.selection, snapshot, mig=True)
    arrays: list[npt.NDArray[np.generic]] = [nodes.layout, nodes.memory, nodes.cores, nodes.numa, nodes.index]
    arrays += [requested.slots, requested.slices, requested.usable, view.load(pod.policies.weights)]
    arrays += [view.free_slots, view.free_memory, view.free_cores, *([] if mask is None else [mask])]
    columns = np.stack([array.astype(np.int64) for array in arrays]).transpose(2, 0, 1)
    return [column.tobytes() for column in columns]


class _Search:
    """The search on one node: container by container, in order of preference, with steps back."""

    def __init__(self, view: View, pod: Pod, snapshot: Snapshot, most: Most | None, steps: _Steps) -> None:
        self._view, self._steps = view, steps
        self._mutex = pod.policies.card.mutex
        self._mig = view.nodes.layout > 0
        shared = accepted(view, pod.selection, snapshot)
        # A card in MIG mode without a profile is neither.
        self._plain = ~self._mig if shared is None else shared & ~self._mig
        self._in_mig = _mig_cards(view, pod, snapshot)
        self._layouts = [snapshot.layouts[number] for number in view.nodes.layout[:, 0].tolist()]
        self._free = [EVERY_SLICE & ~bits for bits in view.requested.slices[:, 0].tolist()]
        self._numa = view.nodes.numa[:, 0].tolist()
        self._preference = Preference(pod.policies, numa_bind=pod.selection.numa_bind)
        self._phases = Phases.of(pod)
        self._picks: Picks = {}
        self._wanted: dict[tuple[int, int], Amounts] = {}
        self.tally = None if most is None else Tally(pod, most, self._least_of_all())

    def run(self) -> Picks | None:
        """Return the first placement, or None."""
        if self.tally is not None and not self.tally.keeps_together(self._least_of_shared()):
            return None
        return self._picks if self._shared(0, [Share.of(self._view)]) else None

    def _shared(self, place: int, shares: list[Share]) -> bool:
        """Place sidecars and apps from the place-th on. `shares`: the copy before each of them so far."""
        if place == len(self._phases.shared):
            return self._inits(0, shares)
        asking = self._phases.shared[place]
        return any(self._shared(place + 1, [*shares, share]) for share in self._placed(asking, shares[-1]))

    def _inits(self, number: int, shares: list[Share]) -> bool:
        if number == len(self._phases.inits):
            return True
        asking, before = self._phases.inits[number]
        return any(self._inits(number + 1, shares) for _ in self._placed(asking, shares[before]))

    def _placed(self, asking: Asking, share: Share) -> Iterator[Share]:
        """Yield the copy with the container on it, for every choice of its cards; the choice is in `_picks`."""
        request = asking.request
        order = ranking(self._open(request, share), self._view, share, self._preference)
        groups = [order]
        if self._preference.numa_bind and request.count > 1:
            numbers = dict.fromkeys(self._numa[card] for card in order)
            groups = [[card for card in order if self._numa[card] == number] for number in numbers]
        for group in groups:
            yield from self._cards(asking, share.fork(), group, ())
        if self.tally is not None:
            self.tally.forget(asking.position)

    def _open(self, request: DeviceRequest, share: Share) -> BoolArray:
        """Return (device,): the cards that may take a row on this copy."""
        plain = fitting_cards(self._view, share, request, self._plain, mutex=self._mutex)
        return (plain | open_cards(self._view, share, self._in_mig, mutex=self._mutex))[:, 0]

    def _cards(self, asking: Asking, share: Share, order: list[int], picks: tuple[Pick, ...]) -> Iterator[Share]:
        """Yield the copy for every choice of the rows that are left, from the cards in `order`."""
        wanted = asking.request.count - len(picks)
        if self.tally is not None and not self.tally.keeps(asking.position, self._at_least(asking, order, picks)):
            return
        if not wanted:
            self._picks[asking.position] = picks
            yield share
            return
        for at, card in enumerate(order):
            if sum(self._room(each, self._least(asking, each)) for each in order[at:]) < wanted:
                return
            # A card in MIG mode may give several instances, another card one row.
            rest = order[at:] if self._layouts[card] else order[at + 1 :]
            for pick in self._offers(asking, share, card, picks):
                if not self._steps.take():
                    return
                bits = 0 if pick.instance is None else pick.instance.bits
                self._free[card] &= ~bits
                fork = share.fork()
                fork.book(np.array([card]), pick.memory, pick.cores)
                yield from self._cards(asking, fork, rest, (*picks, pick))
                self._free[card] |= bits

    def _at_least(self, asking: Asking, order: list[int], picks: tuple[Pick, ...]) -> Amounts:
        """Return what a container takes at least: the rows that it has, and the least of those that are left."""
        memory, cores = self._cheapest(asking, order, asking.request.count - len(picks))
        return memory + sum(pick.memory for pick in picks), cores + sum(pick.cores for pick in picks)

    def _least_of_all(self) -> dict[int, Amounts]:
        """Return what each container takes at least with the node as it is."""
        share, every = Share.of(self._view), (*self._phases.shared, *(init for init, _ in self._phases.inits))
        return {
            asking.position: self._cheapest(
                asking, np.flatnonzero(self._open(asking.request, share)).tolist(), asking.request.count
            )
            for asking in every
        }

    def _cheapest(self, asking: Asking, order: list[int], count: int) -> Amounts:
        if not count:
            return 0, 0
        wanted = [(card, self._least(asking, card)) for card in order]
        return cheapest([(self._room(*each), self._smallest(*each)) for each in wanted], count)

    def _least_of_shared(self) -> Amounts:
        """Return what all sidecars and apps take at least together, as if each row asked the least of any of them."""
        share, asked = Share.of(self._view), self._phases.shared
        cards = [np.flatnonzero(self._open(asking.request, share)).tolist() for asking in asked]
        offers = []
        for card in sorted({card for each in cards for card in each}):
            takers = [asking for asking, own in zip(asked, cards, strict=True) if card in own]
            wanted = [self._least(asking, card) for asking in takers]
            least = min(memory for memory, _ in wanted), min(cores for _, cores in wanted)
            # A shared card gives every container one row.
            room = self._room(card, least) if self._layouts[card] else len(takers)
            offers.append((room, self._smallest(card, least)))
        return cheapest(offers, sum(asking.request.count for asking in asked))

    def _smallest(self, card: int, least: Amounts) -> Amounts:
        """Return the least memory and the least cores that a row takes of a card."""
        layout = self._layouts[card]
        found = options(layout, self._free[card], *least) if layout else ()
        return (min(each.memory for each in found), min(each.cores for each in found)) if found else least

    def _room(self, card: int, least: Amounts) -> int:
        """Return the most rows of this memory and these cores that a card could give one container."""
        layout = self._layouts[card]
        return most_instances(layout, self._free[card], *least) if layout else 1

    def _least(self, asking: Asking, card: int) -> tuple[int, int]:
        """Return the memory and the cores that a row wants of a card."""
        request, key = asking.request, (asking.position, card)
        if key not in self._wanted:
            self._wanted[key] = int(np.max(memory_of(self._view, request, np.array([card])))), request.cores
        return self._wanted[key]

    def _offers(self, asking: Asking, share: Share, card: int, picks: tuple[Pick, ...]) -> Iterator[Pick]:
        memory, cores = self._least(asking, card)
        layout = self._layouts[card]
        if not layout:
            yield Pick(card, memory, cores, None)
        elif open_cards(self._view, share, self._in_mig, mutex=False)[card, 0]:
            # Rows of one container are alike, so they are tried in one order only.
            before = picks[-1].instance if picks and picks[-1].device == card else None
            every = [option.instance for option in options(layout, EVERY_SLICE, memory, cores)]
            first = 0 if before is None else every.index(before) + 1
            for option in options(layout, self._free[card], memory, cores):
                if every.index(option.instance) >= first:
                    yield Pick(card, option.memory, option.cores, option.instance)
