"""Nodes in the order in which the cheapest set of victims may be on them, before any set is tried.

Why it exists: trying sets takes a millisecond a node, so of 10,000 nodes only those are searched whose cheapest set can
be the cheapest of all. It must not try sets. Invariant: no set on a node costs less than the node's bound, whatever
else is kept or forbidden there. All tests are necessary ones: each forgets something that could only be in the way.

    would the pod fit with nobody gone but those who leave? -> the node's bound is nothing
    with everybody gone whom the budgets allow, else with everybody: up to which priority does it take? (`by_level`)
        of these, the lowest first, those that one pod may free: by what it frees, its start, its UID
        then the others, by what it takes at least (`several`)

Mostly the search ends at one of the first nodes, so no test is made on a node before it comes near its turn.
"""

from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from accounting.answers.filter import feasible_on, hopeless
from accounting.answers.preemption.bound import Bound, Freed, Ranked
from accounting.answers.preemption.candidates import Preemptor
from accounting.answers.preemption.order import OFFSET
from accounting.answers.preemption.several import Candidates, least_of_several
from accounting.answers.preemption.table import Field, VictimTable
from accounting.answers.preemption.ways import ANY_START, NEVER, Ways, cost, dearer, number_up_to
from accounting.cards import wanted_memory
from accounting.demand import Demand
from accounting.holdings import EXCLUSIVE_CORES
from accounting.pod import ContainerKind, DeviceRequest
from accounting.state import BoolArray, Int64Array, Rows, Snapshot, View

#: Rows that are judged at a stretch.
_STRETCH = 4096
#: Rows that get a close bound first.
_FIRST_BOUNDS = 128
#: Rows that are judged first of those that one level brings.
_FIRST_CHECKED = 2
#: More than any pod asks for.
_MOST_MIB = 2**36
_PER_CARD = ("slots", "memory", "cores", "exclusive", "holders")
_FIELDS = (Field.SLOTS, Field.MEMORY, Field.CORES, Field.EXCLUSIVE, Field.HOLDERS)
_FREED = (Field.FREED_SLOTS, Field.FREED_MEMORY, Field.FREED_CORES, Field.STARTED, Field.UID)


Ranking = Iterator[Ranked | None]
"""Yields nodes in the order of their bounds, and None where something else may run."""
_Work = Generator[None, None, BoolArray]


def rank(snapshot: Snapshot, preemptor: Preemptor, table: VictimTable, allowed: Sequence[int], rows: Rows) -> Ranking:
    """Rank these rows. The table must not change meanwhile."""
    rows = rows[~hopeless(Demand.of(preemptor.pod), snapshot)[rows]]
    yield None
    question = _Question(snapshot, preemptor, table, allowed)
    yield None
    fits = question.fit_now(rows)
    for row in rows[fits].tolist():
        yield Ranked(row, None)
    rest = question.worth_asking(rows[~fits])
    for violations, among in enumerate(question.classes()):
        for group in question.by_level(rest, among):
            if group is None:
                yield None
            else:
                yield from question.ranked(*group, among, violations)
        rest = rest[~question.helped[rest]]


class _Question:
    """One pod's question about many nodes. Entries are given by their places in the table, which must not change."""

    def __init__(self, snapshot: Snapshot, preemptor: Preemptor, table: VictimTable, allowed: Sequence[int]) -> None:
        self._snapshot = snapshot
        self._preemptor = preemptor
        self._demand = Demand.of(preemptor.pod)
        self._is_over_quota = preemptor.over_quota
        self._all = entries = table.entries
        # A row that came after the snapshot is not judged by it.
        known = (entries[Field.ROW] >= 0) & (entries[Field.ROW] < snapshot.columns)
        known &= entries[Field.POSITION] < snapshot.devices
        leaves = entries[Field.LEAVING] > 0
        self._leaving = np.flatnonzero(known & leaves)
        may_go = known & ~leaves & (entries[Field.PRIORITY] < preemptor.priority)
        if self._is_over_quota:
            may_go &= entries[Field.NAMESPACE] == table.namespace(preemptor.pod.namespace)
        self._may_go = np.flatnonzero(may_go)
        self._allowed = allowed
        self.helped = np.zeros(snapshot.columns, np.bool_)
        """(row,) whether evicting those who were asked about last is known to help."""
        self._requests = [each for one in preemptor.pod.containers for each in one.requests if each.count > 0]

    def of(self, field: Field, entries: Rows) -> Int64Array:
        """Return (entry,): a field of these entries."""
        values: Int64Array = self._all[field][entries]
        return values

    def worth_asking(self, rows: Rows) -> Rows:
        """Return those of the rows where anybody may be evicted at all, if somebody must."""
        return rows[np.isin(rows, self.of(Field.ROW, self._may_go))] if self._is_over_quota else rows

    def classes(self) -> list[Rows]:
        """Return those who may go without a violation, and everybody if that is more."""
        budgets = self.of(Field.BUDGET, self._may_go)
        is_open = np.append(np.array([number > 0 for number in self._allowed], np.bool_), True)
        is_allowed = is_open[np.where(budgets < len(self._allowed), budgets, -1)]
        return [self._may_go] if is_allowed.all() else [self._may_go[is_allowed], self._may_go]

    # -- would it fit? --------------------------------------------------------------------------------------------

    @cached_property
    def _now(self) -> View:
        """All rows of the snapshot without those who leave."""
        if not len(self._leaving):
            return self._snapshot
        rows = np.arange(self._snapshot.columns)
        view = self._snapshot.take(rows)
        self._take_off(view, rows, self._leaving)
        return view.refreshed()

    def fit_now(self, rows: Rows) -> BoolArray:
        """Return (row,): whether the pod may fit with nobody gone but those who leave."""
        found = np.zeros(len(rows), np.bool_)
        if not self._is_over_quota:
            # On a full cluster hardly any node has a card for each request.
            open_rows = np.flatnonzero((self._homeless[rows] == 0) | self._has_mig[rows])
            found[open_rows] = feasible_on(self._now.take(rows[open_rows]), self._preemptor.pod, self._snapshot)
        return found

    def _fit(self, rows: Rows, gone: Rows) -> _Work:
        """Return (row,): whether the pod may fit without these entries and those who leave."""
        found = np.zeros(len(rows), np.bool_)
        for start in range(0, len(rows), _STRETCH):
            own = slice(start, start + _STRETCH)
            view = self._now.take(rows[own])
            self._take_off(view, rows[own], gone)
            found[own] = feasible_on(view.refreshed(), self._preemptor.pod, self._snapshot)
            yield
        return found

    def _take_off(self, view: View, rows: Rows, gone: Rows) -> None:
        column_of = np.full(self._snapshot.columns, -1, np.intp)
        column_of[rows] = np.arange(len(rows))
        columns = column_of[self.of(Field.ROW, gone)]
        gone, columns = gone[columns >= 0], columns[columns >= 0]
        if not len(columns):
            return
        cells, requested = self.of(Field.POSITION, gone) * view.columns + columns, view.requested
        for name, field in zip(_PER_CARD, _FIELDS, strict=True):
            array = getattr(requested, name)
            sums = np.bincount(cells, self.of(field, gone), view.devices * view.columns).astype(array.dtype)
            array -= sums.reshape(array.shape)
        requested.count[:] -= np.bincount(columns, self.of(Field.COUNT, gone), view.columns).astype(np.int64)
        touched = np.zeros(view.columns, np.bool_)
        touched[columns] = True
        # Who holds which slices, and how many cards of another vendor, is not looked at.
        requested.slices[:, touched] = 0
        requested.further_count[:, touched] = 0
        unreadable = columns[self.of(Field.BLOCKS, gone) > 0]
        requested.blocks[:, unreadable] = 0
        requested.node_blocks[unreadable] = 0

    def by_level(self, rows: Rows, among: Rows) -> Iterator[tuple[Rows, int] | None]:
        """Yield rows with the lowest priority up to which evicting everybody may help, the lowest first.

        Rows are left out where nobody helps. Mostly the lowest priority of all is enough on some row, so all rows come
        with it first, and `ranked` finds out where it is. Higher ones are looked at when they are asked for, in steps
        that grow.
        """
        priorities = self.of(Field.PRIORITY, among)
        levels = np.unique(priorities).tolist()
        if levels:
            yield rows, levels[0]
        below, step = 1, 1
        while below < len(levels) and len(rows := rows[~self.helped[rows]]):
            level = min(below + step, len(levels)) - 1
            fits = yield from self._fit(rows, among[priorities <= levels[level]])
            self.helped[rows[fits]] = True
            waiting = [(rows[fits], below, level)]
            while waiting:
                some, low, high = waiting.pop()
                if len(some) and low == high:
                    yield some, levels[low]
                elif len(some):
                    middle = (low + high) // 2
                    enough = yield from self._fit(some, among[priorities <= levels[middle]])
                    waiting += [(some[~enough], middle + 1, high), (some[enough], low, middle)]
            below, step = level + 1, 2 * step

    # -- whom does it take at least? ------------------------------------------------------------------------------

    def ranked(self, rows: Rows, level: int, among: Rows, violations: int) -> Ranking:
        """Rank rows on which a pod of this priority has to go at least; those where that is not enough are left out."""
        batch, size = list[Ranked](), _FIRST_CHECKED
        for one in self._by_bound(rows, level, among, violations):
            if one is None:
                yield None
                continue
            batch.append(one)
            if len(batch) == size:
                yield from self._checked(batch, level, among)
                batch, size = [], min(4 * size, _STRETCH)
        yield from self._checked(batch, level, among)

    def _checked(self, batch: Sequence[Ranked], level: int, among: Rows) -> Ranking:
        """Yield those where evicting everybody up to this priority may help."""
        rows = np.array([one.row for one in batch], np.intp)
        rows = rows[~self.helped[rows]]
        if len(rows):
            fits = yield from self._fit(rows, among[self.of(Field.PRIORITY, among) <= level])
            self.helped[rows[fits]] = True
        yield from (one for one in batch if self.helped[one.row])

    def _by_bound(self, rows: Rows, level: int, among: Rows, violations: int) -> Ranking:
        """Rank rows by what it costs at least if a pod of this priority has to go, whether or not that is enough."""
        is_here = np.zeros(self._snapshot.columns, np.bool_)
        is_here[rows] = True
        among = among[is_here[self.of(Field.ROW, among)] & (self.of(Field.PRIORITY, among) <= level)]
        singles = among[self.of(Field.PRIORITY, among) == level]
        yield None
        singles = singles[self._may_do_alone(singles)]
        yield None
        for row, freed in self._cheapest(singles):
            yield None if freed is None else Ranked(row, Bound(violations, level, level + OFFSET, 1, freed))
        is_here[self.of(Field.ROW, singles)] = False
        rest = np.flatnonzero(is_here)
        if len(rest):
            yield from self._several(rest, level, among, violations)

    def _cheapest(self, entries: Rows) -> Iterator[tuple[int, Freed | None]]:
        """Yield each row's cheapest single pod, the cheapest first; without amounts where something else may run."""
        seen: set[int] = set()
        while len(entries):
            # Many pods have few sizes, so those of the smallest size come first, and the rest is not sorted.
            smallest = np.ones(len(entries), np.bool_)
            for field in (Field.FREED_SLOTS, Field.FREED_MEMORY, Field.FREED_CORES):
                amounts = self.of(field, entries)
                smallest &= amounts == amounts[smallest].min()
            group, entries = entries[smallest], entries[~smallest]
            yield -1, None
            group = group[np.lexsort((self.of(Field.UID, group), self.of(Field.STARTED, group)))]
            yield -1, None
            for entry, row in zip(group.tolist(), self.of(Field.ROW, group).tolist(), strict=True):
                if row not in seen:
                    seen.add(row)
                    yield row, Freed(*(int(self._all[field, entry]) for field in _FREED))

    def _several(self, rows: Rows, level: int, among: Rows, violations: int) -> Ranking:
        """Rank rows on which one pod is not enough, by what it costs at least.

        The search mostly ends after a few of 10,000, so a rough bound decides which ones get a closer one.
        """
        rough = yield from self._least(rows, level, among, roughly=True)
        order = np.lexsort((rows, rough.started, rough.freed, rough.priorities))
        order = order[: np.searchsorted(rough.priorities[order], NEVER)]
        waiting: list[tuple[int, int, int, int]] = []
        end, size = 0, _FIRST_BOUNDS
        while end < len(order):
            some, end = order[end : end + size], end + size
            close = dearer(rough.at(some), (yield from self._least(rows[some], level, among, roughly=False)))
            for key in zip(*(array.tolist() for array in close), rows[some].tolist(), strict=True):
                if key[0] < NEVER:
                    heappush(waiting, key)
            following = rough.at(order[end:])
            while waiting and not (ahead := number_up_to(following, waiting[0][:3])):
                *numbers, row = heappop(waiting)
                yield Ranked(row, Bound.of(violations, level, *numbers))
            size = min(max(_FIRST_BOUNDS, ahead) if waiting else 4 * size, _STRETCH)

    def _least(self, rows: Rows, level: int, among: Rows, *, roughly: bool) -> Generator[None, None, Ways]:
        """Return (row,): what it costs at least where one pod is not enough; `NEVER` where nobody helps."""
        column_of = np.full(self._snapshot.columns, -1, np.intp)
        column_of[rows] = np.arange(len(rows))
        columns = column_of[self.of(Field.ROW, among)]
        among, columns = among[columns >= 0], columns[columns >= 0]
        pods, now = self._candidates(among, columns), self._now.take(rows)
        yield
        of_cards = yield from least_of_several(now, self._snapshot, self._demand, pods, level, roughly=roughly)
        # Evicting a pod whose allocation cannot be read frees more than what it holds.
        unknown = self._has_mig[rows]
        unknown[columns[self.of(Field.BLOCKS, among) > 0]] = True
        of_cards.put(unknown, Ways.full((1,), 0))
        return dearer(self._at_least_two(columns, pods.priority, len(rows), level), of_cards)

    @staticmethod
    def _at_least_two(columns: Rows, priorities: Int64Array, count: int, level: int) -> Ways:
        """Return (row,): what a pod of this priority and another one cost at least."""
        lowest = np.full(count, level, np.int64)
        np.minimum.at(lowest, columns, priorities)
        nothing = np.zeros(count, np.int64)
        totals = level + OFFSET + lowest + OFFSET
        return cost(totals, nothing + 2, (nothing, nothing, nothing), np.full(count, ANY_START))

    def _candidates(self, among: Rows, columns: Rows) -> Candidates:
        fields = (Field.POSITION, Field.PRIORITY, Field.SLOTS, Field.MEMORY, Field.CORES)
        freed = (Field.FREED_SLOTS, Field.FREED_MEMORY, Field.FREED_CORES, Field.STARTED)
        return Candidates(self.of(Field.POD, among), columns, *(self.of(field, among) for field in (*fields, *freed)))

    def _may_do_alone(self, entries: Rows) -> BoolArray:
        """Return (entry,): whether it may be enough that this pod goes.

        Where fewer cards than a request wants have room for it, the pod must free the others.
        """
        may = np.ones(len(entries), np.bool_)
        if self._is_over_quota or not len(entries):
            return may
        rows, positions, now = self.of(Field.ROW, entries), self.of(Field.POSITION, entries), self._now
        # Entries of one pod stand together.
        pods = np.cumsum(np.diff(self.of(Field.POD, entries), prepend=-1) != 0) - 1
        always = (self.of(Field.BLOCKS, entries) > 0) | self._has_mig[rows]
        # What has room nowhere now must have it on the cards of this pod, all together.
        freed = now.free_memory[positions, rows] + self.of(Field.MEMORY, entries)
        may &= always | (np.bincount(pods, np.maximum(freed, 0))[pods] >= self._homeless[rows])
        for request in dict.fromkeys(self._requests):
            if not may.any():
                break
            wanted = np.broadcast_to(np.asarray(wanted_memory(now, request)), now.free_memory.shape)
            cards = _cards_with_room(now, request, wanted)
            helps = ~cards[positions, rows] & (freed >= wanted[positions, rows])
            helps &= now.free_cores[positions, rows] + self.of(Field.CORES, entries) >= request.cores
            helps &= now.free_slots[positions, rows] + self.of(Field.SLOTS, entries) >= 1
            if request.cores >= EXCLUSIVE_CORES:
                helps &= self.of(Field.SLOTS, entries) >= now.requested.slots[positions, rows]
            enough = _count(cards)[rows] + np.bincount(pods, helps)[pods] >= request.count
            may &= enough | always
        return may

    @cached_property
    def _homeless(self) -> Int64Array:
        """(row,) MiB of the sidecars and apps, which are there at the same time, for which no card has room now."""
        now = self._now
        total = np.zeros(now.columns, np.int64)
        for container in self._preemptor.pod.containers:
            for request in () if container.kind is ContainerKind.INIT else container.requests:
                wanted = np.broadcast_to(np.asarray(wanted_memory(now, request)), now.free_memory.shape)
                least = np.where(now.nodes.present, wanted, _MOST_MIB).min(axis=0, initial=_MOST_MIB)
                has_none = ~_cards_with_room(now, request, wanted).any(axis=0)
                total += np.where(has_none & (least < _MOST_MIB), least * request.count, 0)
        return total

    @cached_property
    def _has_mig(self) -> BoolArray:
        """(row,) Nodes with a card in MIG mode, where more than free memory decides."""
        found: BoolArray = np.any(self._snapshot.nodes.layout > 0, axis=0)
        return found


def _cards_with_room(state: View, request: DeviceRequest, wanted: Int64Array) -> BoolArray:
    """Return (device, column): the cards that may take a row of the request as they are."""
    cards = state.requested.usable & (state.free_memory >= wanted) & (state.free_cores >= request.cores)
    if request.cores >= EXCLUSIVE_CORES:
        cards &= state.requested.slots == 0
    return cards


def _count(cards: BoolArray) -> Int64Array:
    """Return (column,): how many they are."""
    counts: Int64Array = np.add.reduce(cards, axis=0, dtype=np.int64)
    return counts
