"""What it costs at least where several pods have to go, on many nodes at once, without trying sets.

Why it exists: of 10,000 nodes on each of which two pods have to go, only those are searched that can have the cheapest
pair. It must not try sets of a node. Invariant: no set that helps costs less than what is said here.

It is the cost of a simpler question. A container may take any cards with enough room, each one once; inits are asked
about by themselves. Room is made on each card by itself, in the cheapest way: nobody, one pod, two, or more of which
only their number and what they must free at least are known. That is right for pods on one card each; a set with a pod
on several cards costs at least that pod and another one.

    for each sum of requests that may be on one card (`_Load`): what does room for it cost on each card? (`_Cards.ways`)
    card after card: what does it cost to have placed so many requests of each kind? (`_placed`)

A rough answer takes a fraction of the time: it asks for so many cards with room for the smallest request.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from accounting.answers.preemption.order import OFFSET
from accounting.answers.preemption.ways import (
    ANY_START,
    MOST_ADDED,
    NEVER,
    Ways,
    added,
    cheaper,
    cheapest_of,
    cost,
    dearer,
    take_cheaper,
)
from accounting.cards import accepted, wanted_memory
from accounting.demand import Demand
from accounting.holdings import EXCLUSIVE_CORES
from accounting.pod import ContainerKind, DeviceRequest
from accounting.state import BoolArray, Int64Array, Rows, Snapshot, View

#: Beyond these, requests of different kinds are asked about by themselves.
_MOST_LOADS, _MOST_STATES = 8, 48
#: On cards with more candidates pairs are not looked at one by one.
_MOST_IN_PAIRS = 16
#: Of larger amounts the order does not matter: one of them is enough for any card.
_MOST_IN_ORDER = 2**36

_Work = Generator[None, None, Ways]


class Candidates(NamedTuple):
    """Those who may go, an entry for each of their cards; entries of one pod stand together."""

    pod: Rows
    """Another number for every pod."""
    column: Rows
    """The node, by its column in the view."""
    position: Rows
    priority: Int64Array
    slots: Int64Array
    memory: Int64Array
    cores: Int64Array
    """What comes free on this card; then on all cards."""
    freed_slots: Int64Array
    freed_memory: Int64Array
    freed_cores: Int64Array
    started: Int64Array
    """Negated."""

    def take(self, chosen: Rows | BoolArray) -> "Candidates":
        """Return some entries."""
        return Candidates(*(array[chosen] for array in self))

    def costs(self, level: int) -> Ways:
        """Return (entry,): what it costs that this pod goes. `level`: the highest priority of all victims."""
        started = np.where(self.priority == level, self.started, ANY_START)
        freed = self.freed_slots, self.freed_memory, self.freed_cores
        return cost(self.priority + OFFSET, np.ones(len(self.pod), np.int64), freed, started)


def least_of_several(
    now: View, snapshot: Snapshot, demand: Demand, pods: Candidates, level: int, *, roughly: bool = False
) -> _Work:
    """Return (column,): what a set of at least two costs at least; `NEVER` where none can help.

    `now`: the nodes without those who leave. `level`: the highest priority of the victims. `roughly`: all requests
    that are there at the same time are taken for the smallest of them.
    """
    starts = np.flatnonzero(np.diff(pods.pod, prepend=-1))
    widths = np.diff(np.append(starts, len(pods.pod)))
    wide = np.flatnonzero(widths > 1)
    narrow = pods.take(np.repeat(widths == 1, widths)) if len(wide) else pods
    least = Ways.full((now.columns,), 0)
    for part in demand.parts:
        cards = _Cards(now, snapshot, part, narrow, level)
        yield
        for loads, limits in _questions(part, cards, roughly=roughly):
            least = dearer(least, (yield from _placed(cards, loads, limits)))
    if not len(wide):
        return least
    firsts = pods.take(starts)
    costs = firsts.costs(level)
    of_wide = cheapest_of(costs.at(wide), firsts.column[wide], now.columns)
    return cheaper(least, added(of_wide, cheapest_of(costs, firsts.column, now.columns)))


def _questions(demand: Demand, cards: "_Cards", *, roughly: bool) -> Iterator[tuple[list["_Load"], Rows]]:
    """Yield what must find cards at the same time: what may be on one card, and how many of each kind there are."""
    together, inits = Counter[DeviceRequest](), Counter[DeviceRequest]()
    for container in demand.containers:
        for request in container.requests:
            if request.count > 0:
                (inits if container.kind is ContainerKind.INIT else together)[request] += 1
    units = [number * request.count for request, number in together.items()]
    if sum(units) <= MOST_ADDED and prod(1 + each for each in units) <= _MOST_STATES:
        loads = cards.loads(together)
        if len(loads) <= _MOST_LOADS:
            yield _smallest(loads, sum(units)) if roughly and loads else (loads, np.array(units, np.intp))
            together = Counter()
    for request in {**together, **inits}:
        if request.count <= MOST_ADDED:
            yield cards.loads({request: 1}), np.array([request.count])


class _Load(NamedTuple):
    """Requests on one card."""

    numbers: tuple[int, ...]
    """How many of each kind."""
    memory: Int64Array
    """One number, or one for each card."""
    cores: int
    slots: int
    is_alone: bool
    """Nobody else may be on the card."""


def _smallest(loads: Sequence[_Load], requests: int) -> tuple[list[_Load], Rows]:
    """Return the smallest request, and how many cards must at least have room for it that all find one."""
    single = [load for load in loads if load.slots == 1]
    memory, *others = (load.memory for load in single)
    for each in others:
        memory = np.minimum(memory, each)
    smallest = _Load((1,), memory, min(load.cores for load in single), 1, all(load.is_alone for load in single))
    return [smallest], np.array([-(-requests // max(load.slots for load in loads))])


class _Cards:
    """Cards of some nodes, and who may go from them."""

    def __init__(self, now: View, snapshot: Snapshot, demand: Demand, pods: Candidates, level: int) -> None:
        self.now = now
        self.pods = pods
        self._is_mutex = demand.policies.card.mutex
        self._open = now.nodes.open
        mask = accepted(now, demand.selection, snapshot)
        if mask is not None:
            self._open = self._open & mask
        self._largest = int(now.nodes.memory.max(initial=0)), int(now.nodes.cores.max(initial=0))
        self._cells = pods.position * now.columns + pods.column
        self._sizes = np.bincount(self._cells, minlength=now.devices * now.columns)
        self._costs = pods.costs(level)
        lowest = int(pods.priority.min(initial=level))
        # Whether more pods of lower priority might cost less than fewer ones.
        self._fewer_is_cheaper = 2 * (level + OFFSET) < 3 * (lowest + OFFSET) and level + OFFSET < 2 * (lowest + OFFSET)

    def loads(self, requests: Mapping[DeviceRequest, int]) -> list[_Load]:
        """Return what may be on one card together, at least on the largest one."""
        memory = [wanted_memory(self.now, request) for request in requests]
        cores = [request.cores for request in requests]
        found = []
        for numbers in product(*(range(most + 1) for most in requests.values())):
            slots, percent = sum(numbers), sum(n * each for n, each in zip(numbers, cores, strict=True))
            is_alone = self._is_mutex or any(
                n and one >= EXCLUSIVE_CORES for n, one in zip(numbers, cores, strict=True)
            )
            if not slots or (slots > 1 and (is_alone or percent > self._largest[1])):
                continue
            mib = np.asarray(sum(n * each for n, each in zip(numbers, memory, strict=True) if n), np.int64)
            if slots == 1 or mib.min() <= self._largest[0]:
                found.append(_Load(numbers, mib, percent, slots, is_alone))
        return found

    def ways(self, load: _Load) -> Ways:
        """Return (device, column): what room for a load costs on each card."""
        shape, cells = self.now.free_memory.shape, self._cells
        lacks = self._lacks(load)
        has_room = self.now.requested.usable & self._open
        for lack in lacks:
            has_room &= lack <= 0
        # Where there is room already, nobody is looked at.
        is_worth = (self._open & ~has_room).reshape(-1)[cells]
        missing = [
            (frees, lack.reshape(-1))
            for frees, lack in zip((self.pods.slots, self.pods.memory, self.pods.cores), lacks, strict=True)
        ]
        enough = is_worth.copy()
        for frees, lack in missing:
            if (lack > 0).any():
                enough &= frees >= lack[cells]
        found = cheapest_of(self._costs.at(enough), cells[enough], prod(shape))
        is_open = is_worth & ((found.priorities[cells] >= NEVER) if self._fewer_is_cheaper else True)
        several = np.flatnonzero(is_open & (self._sizes[cells] > 1))
        if len(several):
            crowd = _Crowd(self.pods.take(several), cells[several], self._costs.at(several), self._sizes)
            found = cheaper(found, crowd.ways([lack for _, lack in missing], self._fewer_is_cheaper))
        found.put(has_room.reshape(-1), Ways.full((int(has_room.sum()),), 0))
        return Ways(*(array.reshape(shape) for array in found))

    def _lacks(self, load: _Load) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (device, column) each: missing slots, MiB and cores."""
        now = self.now
        memory = np.broadcast_to(load.memory, now.free_memory.shape) - now.free_memory
        # A card whose cores are all requested takes nobody.
        cores = np.maximum(load.cores, (now.nodes.cores > 0) & (load.slots == 1)) - now.free_cores
        slots = load.slots - now.free_slots.astype(np.int64)
        if load.is_alone:
            slots = np.maximum(slots, now.requested.slots)
        return slots, memory, cores


def _placed(cards: _Cards, loads: Sequence[_Load], limits: Rows) -> _Work:
    """Return (column,): what it costs at least that all requests have cards. `limits`: how many there are of each."""
    shape = *(limits + 1).tolist(), cards.now.columns
    steps = []
    for load in loads:
        # A load leads from every number of placed requests to the one that is larger by its own.
        sources = tuple(slice(size - number) for size, number in zip(shape, load.numbers, strict=False))
        targets = tuple(slice(number, None) for number in load.numbers)
        steps.append((cards.ways(load), sources, targets))
        yield
    found = Ways.full(shape, NEVER)
    found.priorities[(0,) * len(limits)] = 0
    for device in range(cards.now.devices):
        before = Ways(*(array.copy() for array in found))
        for way, sources, targets in steps:
            take_cheaper(found.at(targets), added(before.at(sources), way.at(device)))
        yield
    return found.at((-1,) * len(limits))


# -- several pods of one card ------------------------------------------------------------------------------------------


class _Crowd:
    """Entries on cards where one pod is not enough, those of a card one after another."""

    def __init__(self, pods: Candidates, cells: Rows, costs: Ways, sizes: Int64Array) -> None:
        """`sizes`: (cell,) the number of entries."""
        order = np.argsort(cells)
        self._pods, self._cells, self._costs = pods.take(order), cells[order], costs.at(order)
        self._frees = self._pods.slots, self._pods.memory, self._pods.cores
        self._sizes = sizes

    def ways(self, lacks: Sequence[Int64Array], fewer_is_cheaper: bool) -> Ways:  # noqa: FBT001
        """Return (cell,): what it costs where two or more pods have to go. `lacks`: (cell,) each, missing amounts."""
        found, sizes = self._pairs(lacks), self._sizes[self._cells]
        rest = sizes > np.where(sizes <= _MOST_IN_PAIRS, 2, 1)
        if fewer_is_cheaper:
            rest &= found.priorities[self._cells] >= NEVER
        return cheaper(found, self._more(np.flatnonzero(rest), lacks)) if rest.any() else found

    def _pairs(self, lacks: Sequence[Int64Array]) -> Ways:
        """Return (cell,): the cheapest pair that is enough, on cards with few pods."""
        cells, costs = self._cells, self._costs
        found, few = [], self._sizes[cells] <= _MOST_IN_PAIRS
        for apart in range(1, _MOST_IN_PAIRS):
            firsts = np.flatnonzero((cells[:-apart] == cells[apart:]) & few[:-apart])
            if not len(firsts):
                break
            seconds, on = firsts + apart, cells[firsts]
            enough = np.ones(len(firsts), np.bool_)
            for frees, lack in zip(self._frees, lacks, strict=True):
                enough &= frees[firsts] + frees[seconds] >= lack[on]
            found.append((added(costs.at(firsts[enough]), costs.at(seconds[enough])), on[enough]))
        if not found:
            return Ways.full((len(self._sizes),), NEVER)
        both = Ways(*map(np.concatenate, zip(*(ways for ways, _ in found), strict=True)))
        return cheapest_of(both, np.concatenate([on for _, on in found]), len(self._sizes))

    def _more(self, entries: Rows, lacks: Sequence[Int64Array]) -> Ways:
        """Return (cell,): a bound where three or more have to go, two on cards with many pods, for these entries."""
        pods, cells, sizes = self._pods.take(entries), self._cells[entries], self._sizes
        never, is_here = len(cells) + 3, np.bincount(cells, minlength=len(sizes)) > 0
        numbers = np.where(sizes <= _MOST_IN_PAIRS, 3, 2)
        for frees, lack in zip((pods.slots, pods.memory, pods.cores), lacks, strict=True):
            wanted = np.where(is_here, lack, 0)
            if (wanted > 0).any():
                numbers = np.maximum(numbers, _most_freeing(cells, frees, wanted, never))
        helps = is_here & (numbers <= sizes)
        numbers = np.where(helps, numbers, 0)
        lowest, *least = (
            np.where(helps, _least(values, cells, len(sizes)), 0)
            for values in (pods.priority, pods.freed_slots, pods.freed_memory, pods.freed_cores)
        )
        freed = tuple(np.maximum(each * numbers, lack) for each, lack in zip(least, lacks, strict=True))
        found = cost(numbers * (lowest + OFFSET), numbers, freed, np.full(len(sizes), ANY_START))
        return found._replace(priorities=np.where(helps, found.priorities, NEVER))


def _least(values: Int64Array, cells: Rows, count: int) -> Int64Array:
    """Return (cell,): the smallest value of each; unspecified where there is none."""
    found = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(found, cells, values)
    return found


def _most_freeing(cells: Rows, amounts: Int64Array, lacking: Int64Array, never: int) -> Int64Array:
    """Return (cell,): how many pods of a card, those that free most first, free what is missing there.

    `cells`, `amounts`: the card of each entry, and what it frees. `never`: the answer where not even all of them do.
    """
    most = min(int(amounts.max(initial=0)), _MOST_IN_ORDER)
    order = np.argsort(cells * (most + 1) + most - np.minimum(amounts, most))
    cells, amounts = cells[order], amounts[order]
    total = np.bincount(cells, amounts, len(lacking))
    first = np.searchsorted(cells, cells)
    sums = np.cumsum(amounts)
    so_far = sums - (sums - amounts)[first]
    needs = (lacking > 0).astype(np.int64)
    short = so_far < lacking[cells]
    # One more than those that together free too little.
    np.maximum.at(needs, cells[short], (np.arange(len(cells)) - first)[short] + 2)
    needs[(lacking > 0) & (total < lacking)] = never
    return needs
