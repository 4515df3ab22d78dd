"""Fitting one pod on many nodes at once.

Why it exists: filter, bind and explain must agree, so they share this one algorithm. It must not know names, codes or
texts. Invariant: it reads a view and changes nothing in it; all or nothing per node.

Sidecars and apps are fitted one after another on one shared copy of each node. Then each init, in spec order, is
fitted on its own fork, which holds only the sidecars declared before it. The choice of cards is greedy, container by
container: a node where another order of choices would fit can be refused (the exact search is not here yet).

Only a yes or no is needed for filter. There the last container, unless an init, and every init need no choice of cards,
because nothing is fitted after them on the same copy. A sidecar with only inits after it still needs one: they see it.
"""

from dataclasses import dataclass, field

import numpy as np

from accounting.choice import Preference, choose, enough
from accounting.device_table import BoolArray, Int32Array, Int64Array, Rows
from accounting.holdings import EXCLUSIVE_CORES
from accounting.pod import ContainerKind, DeviceRequest, Pod
from accounting.selection_mask import accepted
from accounting.share import Share
from accounting.snapshot import Snapshot, View

#: Bits of a packed growth: cores and slots of all chosen cards together stay below these, so sums order like tuples.
_CORES_SHIFT, _MEMORY_SHIFT = 8, 22


@dataclass(slots=True)
class Fit:
    """The outcome on a view's columns."""

    feasible: BoolArray
    failed_at: Int32Array
    """(column,) Position of the first container that found no cards; -1 if none failed."""
    shares: dict[int, Share] = field(default_factory=dict)
    """Container position -> the copy on which it was fitted. In a failed column it is as that container saw it."""
    chosen: dict[int, list[Rows]] = field(default_factory=dict)
    """Container position -> the chosen device position per column, one array per card, in order of preference."""


@dataclass(frozen=True, slots=True)
class _Asking:
    position: int
    kind: ContainerKind
    request: DeviceRequest


def fit_pod(view: View, pod: Pod, snapshot: Snapshot, *, choose_cards: bool) -> Fit:
    """Fit a pod on every column of a view. With `choose_cards` the cards of every container are returned.

    `snapshot` gives the interned numbers of UUIDs, models and modes; the view may be a part of it.
    """
    return _Fitting(view, pod, snapshot, choose_cards=choose_cards).run()


class _Fitting:
    """One run of the algorithm."""

    def __init__(self, view: View, pod: Pod, snapshot: Snapshot, *, choose_cards: bool) -> None:
        self._view = view
        self._mutex = pod.policies.card.mutex
        self._accepted = accepted(view, pod.selection, snapshot)
        self._preference = Preference(pod.policies, numa_bind=pod.selection.numa_bind)
        self._choose_cards = choose_cards
        self._asking = [
            _Asking(position, container.kind, container.request)
            for position, container in enumerate(pod.containers)
            if container.request is not None
        ]
        self._fit = Fit(np.ones(view.columns, np.bool_), np.full(view.columns, -1, np.int32))

    def run(self) -> Fit:
        shared = Share.of(self._view)
        forks: list[tuple[_Asking, Share]] = []
        for asking in self._asking:
            if asking.kind is ContainerKind.INIT:
                forks.append((asking, shared.fork()))
            else:
                self._fit_container(asking, shared, needs_choice=self._choose_cards or asking is not self._asking[-1])
        merged = _Merged(shared) if self._choose_cards and forks else None
        for asking, fork in forks:
            growth = None if merged is None else merged.growth(fork, self._view, asking.request)
            self._fit_container(asking, fork, needs_choice=self._choose_cards, growth=growth)
            if merged is not None:
                merged.raise_to(fork)
        return self._fit

    def _fit_container(
        self, asking: _Asking, share: Share, *, needs_choice: bool, growth: Int64Array | None = None
    ) -> None:
        fit, request = self._fit, asking.request
        fit.shares[asking.position] = share
        cards = fitting_cards(self._view, share, request, self._accepted, mutex=self._mutex)
        found = enough(cards, request.count, self._view, self._preference)
        fit.failed_at[fit.feasible & ~found] = asking.position
        fit.feasible &= found
        if not needs_choice or not fit.feasible.any():
            return
        chosen = choose(cards, request.count, self._view, share, self._preference, growth)
        fit.chosen[asking.position] = chosen
        columns = np.flatnonzero(fit.feasible)
        for positions in chosen:
            cells = positions[columns] * self._view.columns + columns
            share.book(cells, memory_of(self._view, request, cells), request.cores)


def memory_of(view: View, request: DeviceRequest, cells: Rows) -> Int64Array | int:
    """Return the MiB that a request takes on each of these cells (flat numbers)."""
    if not request.memory_percentage:
        return request.memory
    capacity: Int64Array = view.nodes.memory.reshape(-1)[cells]
    return capacity * request.memory_percentage // 100


def wanted_memory(view: View, request: DeviceRequest) -> Int64Array | int:
    """Return the MiB that a request wants of each card: one number, or an array for a percentage."""
    if not request.memory_percentage:
        return request.memory
    return view.nodes.memory * request.memory_percentage // 100


def fitting_cards(
    view: View, share: Share, request: DeviceRequest, accepted_cards: BoolArray | None, *, mutex: bool
) -> BoolArray:
    """Return (device, column): the cards that can take one row of the request on this copy.

    Source: HAMi v2.10's fit of one card. Cores 100 need a card that nobody uses; cores 0 need a card whose cores are
    not all requested; under the mutex policy only an unused card fits.
    """
    memory = wanted_memory(view, request)
    if share.slots is None or share.memory is None or share.cores is None:
        cards = view.requested.usable & (view.free_memory >= memory)
        cards &= view.free_cores >= request.cores
        used_slots, free_cores = view.requested.slots, view.free_cores
    else:
        used_slots, free_cores = view.requested.slots + share.slots, view.free_cores - share.cores
        cards = view.requested.usable & (view.free_slots > share.slots)
        cards &= view.free_memory - share.memory >= memory
        cards &= free_cores >= request.cores
    if accepted_cards is not None:
        cards &= accepted_cards
    if request.cores == 0:
        cards &= (free_cores > 0) | (view.nodes.cores == 0)
    if mutex or request.cores >= EXCLUSIVE_CORES:
        cards &= used_slots == 0
    if share.exclusive is not None:
        cards &= ~share.exclusive
    return cards


class _Merged:
    """What the pod would hold per card: the maximum over the shared copy and the forks fitted so far."""

    def __init__(self, shared: Share) -> None:
        zeros = np.zeros(shared.shape, np.int64)
        self._slots = zeros if shared.slots is None else shared.slots.astype(np.int64)
        self._memory = zeros if shared.memory is None else shared.memory
        self._cores = zeros if shared.cores is None else shared.cores

    def growth(self, fork: Share, view: View, request: DeviceRequest) -> Int64Array:
        """Return by how much one more row on each card would raise the merged result: memory, cores, slots, packed."""
        zero = np.int64(0)
        memory = (0 if fork.memory is None else fork.memory) + wanted_memory(view, request)
        cores = (0 if fork.cores is None else fork.cores) + request.cores
        slots = (0 if fork.slots is None else fork.slots.astype(np.int64)) + 1
        packed: Int64Array = np.maximum(memory - self._memory, zero) << _MEMORY_SHIFT
        packed += np.maximum(cores - self._cores, zero) << _CORES_SHIFT
        packed += np.maximum(slots - self._slots, zero)
        return packed

    def raise_to(self, fork: Share) -> None:
        """Merge a fork in."""
        if fork.slots is not None and fork.memory is not None and fork.cores is not None:
            self._slots = np.maximum(self._slots, fork.slots)
            self._memory = np.maximum(self._memory, fork.memory)
            self._cores = np.maximum(self._cores, fork.cores)
