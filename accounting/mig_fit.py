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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accounting.card_fit import fitting_cards, memory_of, open_cards
from accounting.choice import Preference, ranking
from accounting.device_table import BoolArray
from accounting.holdings import pod_total
from accounting.mig import EVERY_SLICE, MigInstance, most_instances, options
from accounting.phases import Asking, Phases
from accounting.pod import DeviceRow, Pod
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


def place_on_columns(view: View, pod: Pod, snapshot: Snapshot, wanted: BoolArray, mib: int | None) -> Searched:
    """Decide the wanted columns of a view. `mib`: the most memory that the pod may add up to, if that is limited."""
    nothing = np.zeros(view.columns, np.bool_)
    if len(snapshot.layouts) == 1:
        return Searched(nothing, nothing, nothing)
    concerned = np.logical_or.reduce(_mig_cards(view, pod, snapshot), axis=0)
    feasible, limited = nothing.copy(), nothing.copy()
    columns = np.flatnonzero(concerned & wanted)
    known: dict[bytes, bool | None] = {}
    steps = _Steps(STEPS)
    for column, key in zip(columns.tolist(), _keys(view.take(columns), pod, snapshot), strict=True):
        if key not in known:
            known[key] = _found(view.take(np.array([column])), pod, snapshot, mib, steps)
        feasible[column], limited[column] = bool(known[key]), known[key] is None
    return Searched(feasible, limited, concerned)


def place_on_one(view: View, pod: Pod, snapshot: Snapshot, mib: int | None) -> Picks | None:
    """Return what every container gets on a view of one column, or None."""
    if len(snapshot.layouts) == 1 or not _mig_cards(view, pod, snapshot).any():
        return None
    return _Search(view, pod, snapshot, mib, _Steps(STEPS)).run()


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


def _found(view: View, pod: Pod, snapshot: Snapshot, mib: int | None, steps: _Steps) -> bool | None:
    """Return whether there is a placement; None if the steps ran out before that was known."""
    found = _Search(view, pod, snapshot, mib, steps).run()
    return True if found is not None else None if steps.exhausted else False


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

    def __init__(self, view: View, pod: Pod, snapshot: Snapshot, mib: int | None, steps: _Steps) -> None:
        self._view, self._pod, self._mib, self._steps = view, pod, mib, steps
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

    def run(self) -> Picks | None:
        """Return the first placement, or None."""
        return self._picks if self._shared(0, [Share.of(self._view)]) else None

    def _shared(self, place: int, shares: list[Share]) -> bool:
        """Place sidecars and apps from the place-th on. `shares`: the copy before each of them so far."""
        if place == len(self._phases.shared):
            return self._inits(0, shares)
        asking = self._phases.shared[place]
        return any(self._shared(place + 1, [*shares, share]) for share in self._placed(asking, shares[-1]))

    def _inits(self, number: int, shares: list[Share]) -> bool:
        if number == len(self._phases.inits):
            return self._within_budget()
        asking, before = self._phases.inits[number]
        return any(self._inits(number + 1, shares) for _ in self._placed(asking, shares[before]))

    def _placed(self, asking: Asking, share: Share) -> Iterator[Share]:
        """Yield the copy with the container on it, for every choice of its cards; the choice is in `_picks`."""
        request = asking.request
        plain = fitting_cards(self._view, share, request, self._plain, mutex=self._mutex)
        in_mig = open_cards(self._view, share, self._in_mig, mutex=self._mutex)
        order = ranking((plain | in_mig)[:, 0], self._view, share, self._preference)
        groups = [order]
        if self._preference.numa_bind and request.count > 1:
            numbers = dict.fromkeys(self._numa[card] for card in order)
            groups = [[card for card in order if self._numa[card] == number] for number in numbers]
        for group in groups:
            yield from self._cards(asking, share.fork(), group, ())

    def _cards(self, asking: Asking, share: Share, order: list[int], picks: tuple[Pick, ...]) -> Iterator[Share]:
        """Yield the copy for every choice of the rows that are left, from the cards in `order`."""
        wanted = asking.request.count - len(picks)
        if not wanted:
            self._picks[asking.position] = picks
            yield share
            return
        for at, card in enumerate(order):
            if sum(self._room(asking, each) for each in order[at:]) < wanted:
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

    def _room(self, asking: Asking, card: int) -> int:
        """Return the most rows that a card could give."""
        layout = self._layouts[card]
        return most_instances(layout, self._free[card], *self._least(asking, card)) if layout else 1

    def _least(self, asking: Asking, card: int) -> tuple[int, int]:
        """Return the memory and the cores that a row wants of a card."""
        request = asking.request
        return int(np.max(memory_of(self._view, request, np.array([card])))), request.cores

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

    def _within_budget(self) -> bool:
        if self._mib is None:
            return True
        rows = tuple(
            tuple(DeviceRow("", pick.memory, pick.cores) for pick in self._picks.get(at, ()))
            for at in range(len(self._pod.containers))
        )
        return pod_total(self._pod.containers, rows)[0].memory <= self._mib
