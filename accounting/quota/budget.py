"""Placements that keep a pod's memory within what its namespace's quotas leave.

Why it exists: the memory of a percentage or a whole card depends on the card, so on a node with cards of different
sizes the choice of cards decides whether a quota is kept. It must not know quotas, only a number. Invariants: callers
ask only about nodes where the pod fits by itself; a node is refused only if no choice of cards keeps the budget; if the
choice by policy keeps the budget, it is taken.

Most nodes have cards of one size, or the budget is far away. Then the least and the most memory that the containers can
add up to decide for all nodes at once. Next, the smallest cards are tried on all nodes at once. Only where that fails,
nodes are searched one after another (`budget_search`), equal nodes once.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accounting.cards import Assignment, Preference, accepted, bound_columns, fitting_cards, memory_of, wanted_memory
from accounting.demand import Demand
from accounting.holdings import EXCLUSIVE_CORES
from accounting.pod import ContainerKind, DeviceRequest
from accounting.quota.budget_search import Search, Steps, choose_inits
from accounting.state import BoolArray, Int64Array, Rows, Snapshot, View

#: More MiB than any card has; a sum of one per card stays far below 2^63.
_TOO_MUCH = 2**50
_WHOLE = 100
#: Choices tried over all nodes of one question, and on the one node of a bind.
_STEPS_OF_A_QUESTION, _STEPS_OF_A_NODE = 400, 4_000

#: Container position -> the chosen device position per column, one array per card.
Chosen = dict[int, list[Rows]]


class Kept(NamedTuple):
    """(column,) each: whether some choice of cards keeps the budget, and whether that could not be decided."""

    feasible: BoolArray
    limited: BoolArray


def within(view: View, demand: Demand, snapshot: Snapshot, mib: int) -> Kept:
    """Return on which columns of a view, where the pod fits by itself, its total.peak can stay within `mib`."""
    task = _Task(view, demand, snapshot)
    least, most = task.bounds()
    kept, limited = most <= mib, np.zeros(view.columns, np.bool_)
    doubtful = np.flatnonzero(~kept & (least <= mib))
    if not len(doubtful):
        return Kept(kept, limited)
    part = view if len(doubtful) == view.columns else view.take(doubtful)
    smallest = _Task(part, demand, snapshot).smallest(mib)
    kept[doubtful] = smallest.feasible
    if len(task.requests) > 1 or bound_columns(view, task.preference) is not None:
        _search_rest(view, demand, snapshot, mib, doubtful[~smallest.feasible], Kept(kept, limited))
    return Kept(kept, limited)


def _search_rest(view: View, demand: Demand, snapshot: Snapshot, mib: int, columns: Rows, found: Kept) -> None:
    """Search these columns one after another, equal ones once. Columns after the last step stay undecided."""
    steps, known = Steps(_STEPS_OF_A_QUESTION), dict[bytes, bool | None]()
    for place, column in enumerate(columns.tolist()):
        if steps.exhausted:
            found.limited[columns[place:]] = True
            return
        kept = _found(_Task(view.take(np.array([column])), demand, snapshot), mib, steps, known)
        found.feasible[column], found.limited[column] = bool(kept), kept is None


def choose_within(view: View, demand: Demand, snapshot: Snapshot, by_policy: Chosen, mib: int) -> Chosen | None:
    """Return cards on a view of one column, where the pod fits, that keep its total.peak within `mib`, or None.

    `by_policy` if that does; otherwise the first choice that does, in the order of preference, container by container.
    """
    task = _Task(view, demand, snapshot)
    if task.peak_of(by_policy)[0] <= mib:
        return by_policy
    if task.bounds()[0][0] > mib:
        return None
    steps = Steps(_STEPS_OF_A_NODE)
    search = task.search(mib, steps)
    found = search.run()
    if found is not None:
        return choose_inits(search, found)
    smallest = task.smallest(mib)
    return smallest.chosen if steps.exhausted and smallest.feasible[0] else None


class _Smallest(NamedTuple):
    feasible: BoolArray
    chosen: Chosen


class _Task:
    """One pod over the columns of one view."""

    def __init__(self, view: View, demand: Demand, snapshot: Snapshot) -> None:
        self._view, self._demand = view, demand
        self._accepted = accepted(view, demand.selection, snapshot)
        self.preference = Preference(demand.policies, numa_bind=demand.selection.numa_bind)
        self.requests: dict[int, DeviceRequest] = {
            position: container.request
            for position, container in enumerate(demand.containers)
            if container.request is not None
        }

    def bounds(self) -> tuple[Int64Array, Int64Array]:
        """Return (column,) the least and the most memory that the pod's total.peak can be."""
        least, most = {}, {}
        for position, request in self.requests.items():
            cards = self._fitting(Assignment.of(self._view), request)
            wanted = np.broadcast_to(wanted_memory(self._view, request), cards.shape)
            least[position] = _smallest(np.where(cards, wanted, _TOO_MUCH), request.count)
            most[position] = -_smallest(np.where(cards, -wanted, 0), request.count)
        return np.maximum(self._peak(least), self._steady_apart(least)), self._peak(most)

    def _steady_apart(self, least: dict[int, Int64Array]) -> Int64Array:
        """Return (column,) a lower bound of the steady total: rows that need an unshared card are on different cards.

        The least is the largest percentage on the smallest card, and so on. Flooring takes at most 1 MiB off each.
        """
        mutex, apart = self._demand.policies.card.mutex, list[DeviceRequest]()
        total = np.zeros(self._view.columns, np.int64)
        for position in self._lasting():
            request = self.requests[position]
            if mutex or request.cores >= EXCLUSIVE_CORES:
                apart += [request] * min(request.count, self._view.devices)
            else:
                total = total + least[position]
        if len(apart) < 2 or len(apart) > self._view.devices:  # noqa: PLR2004 - one row is apart from nothing
            return total
        cards = np.logical_or.reduce([self._fitting(Assignment.of(self._view), request) for request in apart])
        sizes = np.sort(np.where(cards, self._view.nodes.memory, _TOO_MUCH), axis=0)
        for request, size in zip(sorted(apart, key=lambda ask: -ask.memory_percentage), sizes, strict=False):
            percentage = request.memory_percentage
            total = total + (size * percentage // 100 - (percentage < _WHOLE) if percentage else request.memory)
        return total

    def peak_of(self, chosen: Chosen) -> Int64Array:
        """Return (column,) the total.peak of memory of chosen cards."""
        return self._peak({at: self._memory(request, chosen[at]) for at, request in self.requests.items()})

    def smallest(self, mib: int) -> _Smallest:
        """Try the smallest cards: for the containers in their order, else first for those that take most of a card."""
        first = self._smallest_in(self._lasting(), mib)
        by_weight = sorted(self._lasting(), key=self._weight, reverse=True)
        if first.feasible.all() or by_weight == self._lasting():
            return first
        other = self._smallest_in(by_weight, mib)
        chosen = {
            at: [
                np.where(first.feasible, one, two) for one, two in zip(first.chosen[at], other.chosen[at], strict=True)
            ]
            for at in self.requests
        }
        return _Smallest(first.feasible | other.feasible, chosen)

    def _smallest_in(self, order: list[int], mib: int) -> _Smallest:
        """Give sidecars and apps, in this order, the cards on which they take least. Then judge the whole placement."""
        shared, chosen = Assignment.of(self._view), Chosen()
        for position in order:
            chosen[position] = self._smallest_cards(position, shared)[0]
            self._book(position, shared, chosen[position])
        shared, feasible = Assignment.of(self._view), np.ones(self._view.columns, np.bool_)
        for position in self.requests:
            if position not in chosen:
                chosen[position], found = self._smallest_cards(position, shared)
                feasible &= found
                continue
            feasible &= self._fits(position, shared, chosen[position])
            self._book(position, shared, chosen[position])
        return _Smallest(feasible & (self.peak_of(chosen) <= mib), chosen)

    def _smallest_cards(self, position: int, assignment: Assignment) -> tuple[list[Rows], BoolArray]:
        """Return a container's smallest cards, and (column,) whether there are enough, of one NUMA node if asked."""
        request = self.requests[position]
        cards = self._fitting(assignment, request)
        wanted = np.broadcast_to(wanted_memory(self._view, request), cards.shape)
        order = np.argsort(np.where(cards, wanted, _TOO_MUCH), axis=0, kind="stable")[: request.count]
        return [*order], (np.count_nonzero(cards, axis=0) >= request.count) & self._one_numa(order)

    def _fits(self, position: int, assignment: Assignment, chosen: list[Rows]) -> BoolArray:
        """Return (column,): whether a container may take these cards."""
        request, order = self.requests[position], np.array(chosen)
        fitting = np.take_along_axis(self._fitting(assignment, request), order, axis=0)
        fits: BoolArray = np.all(fitting, axis=0) & self._one_numa(order) & (len(chosen) == request.count)
        return fits

    def _one_numa(self, order: Rows) -> BoolArray:
        bound = bound_columns(self._view, self.preference)
        if bound is None:
            return np.ones(self._view.columns, np.bool_)
        numa = np.take_along_axis(self._view.nodes.numa, order, axis=0)
        same: BoolArray = np.all(numa == numa[:1], axis=0) | ~bound
        return same

    def _book(self, position: int, assignment: Assignment, chosen: list[Rows]) -> None:
        request, columns = self.requests[position], np.arange(self._view.columns)
        for cards in chosen:
            cells = cards * self._view.columns + columns
            assignment.book(cells, memory_of(self._view, request, cells), request.cores)

    def _lasting(self) -> list[int]:
        """Return the positions of sidecars and apps."""
        return [at for at in self.requests if self._demand.containers[at].kind is not ContainerKind.INIT]

    def _weight(self, position: int) -> tuple[bool, int]:
        request = self.requests[position]
        return request.cores >= EXCLUSIVE_CORES, request.memory_percentage

    def search(self, mib: int, steps: Steps) -> Search:
        """Return the search over a view of one column."""
        return Search(self._view, self._demand, self._accepted, self.preference.on(self._view), mib, steps)

    def key(self) -> bytes:
        """Return what decides whether a view of one column keeps a budget, as bytes."""
        nodes, requested = self._view.nodes, self._view.requested
        arrays: list[npt.NDArray[np.generic]] = [
            *(
                nodes.index,
                nodes.memory,
                nodes.cores,
                nodes.numa,
                nodes.single_numa,
                self._view.free_slots,
                self._view.free_memory,
            ),
            *(self._view.free_cores, requested.slots, requested.usable, requested.exclusive),
        ]
        arrays += [] if self._accepted is None else [self._accepted]
        return b"".join(array.tobytes() for array in arrays)

    def _fitting(self, assignment: Assignment, request: DeviceRequest) -> BoolArray:
        return fitting_cards(self._view, assignment, request, self._accepted, mutex=self._demand.policies.card.mutex)

    def _memory(self, request: DeviceRequest, chosen: list[Rows]) -> Int64Array:
        columns = np.arange(self._view.columns)
        total = np.zeros(self._view.columns, np.int64)
        for positions in chosen:
            total += memory_of(self._view, request, positions * self._view.columns + columns)
        return total

    def _peak(self, own: dict[int, Int64Array]) -> Int64Array:
        """Apply the formula to each container's memory, (column,) each."""
        peak, alive = np.zeros(self._view.columns, np.int64), np.zeros(self._view.columns, np.int64)
        for position, memory in own.items():
            if self._demand.containers[position].kind is ContainerKind.INIT:
                peak = np.maximum(peak, alive + memory)
            else:
                alive = alive + memory
        return np.maximum(peak, alive)


def _smallest(amounts: Int64Array, count: int) -> Int64Array:
    """Return per column the sum of the `count` smallest amounts."""
    sums: Int64Array = np.add.reduce(np.sort(amounts, axis=0)[:count], axis=0)
    return sums


def _found(task: _Task, mib: int, steps: Steps, known: dict[bytes, bool | None]) -> bool | None:
    """Return whether a search over one column finds cards; None if it was cut off."""
    key = task.key()
    if key not in known:
        found = task.search(mib, steps).run() is not None
        known[key] = None if steps.exhausted and not found else found
    return known[key]
