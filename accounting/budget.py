"""Placements that keep a pod's memory within what its namespace's quotas leave.

Why it exists: a percentage or a whole card is so much memory as the card that it gets has, so on a node with cards of
different sizes the choice of cards decides whether a quota is kept. It must not know quotas, only a number. Invariants:
it is asked only of nodes where the pod fits by itself; a node is refused only if no choice of cards keeps the budget;
where the choice by policy keeps it, that is the choice.

Most nodes have cards of one size, or a budget that is nowhere near: there the smallest and the largest memory that the
containers can add up to decide for all nodes at once. Then the smallest cards are tried, for all nodes at once. Only
where that fails, cards are searched one node after another (`budget_search`), equal nodes once.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accounting.budget_search import Search, Steps, choose_inits
from accounting.card_fit import fitting_cards, memory_of, wanted_memory
from accounting.choice import Preference, bound_columns
from accounting.device_table import BoolArray, Int64Array, Rows
from accounting.pod import ContainerKind, DeviceRequest, Pod
from accounting.selection_mask import accepted
from accounting.share import Share
from accounting.snapshot import Snapshot, View

#: More MiB than any card has; a sum of one per card stays far below 2^63.
_TOO_MUCH = 2**50
#: Choices tried over all nodes of one question, and on the one node of a bind.
_STEPS_OF_A_QUESTION, _STEPS_OF_A_NODE = 400, 4_000

#: Container position -> the chosen device position per column, one array per card.
Chosen = dict[int, list[Rows]]


class Kept(NamedTuple):
    """(column,) each: whether some choice of cards keeps the budget, and whether that could not be decided."""

    feasible: BoolArray
    limited: BoolArray


def within(view: View, pod: Pod, snapshot: Snapshot, mib: int) -> Kept:
    """Return on which columns of a view, where the pod fits by itself, its total.peak can stay within `mib`."""
    task = _Task(view, pod, snapshot)
    least, most = task.bounds()
    kept, limited = most <= mib, np.zeros(view.columns, np.bool_)
    doubtful = np.flatnonzero(~kept & (least <= mib))
    if not len(doubtful):
        return Kept(kept, limited)
    part = view if len(doubtful) == view.columns else view.take(doubtful)
    smallest = _Task(part, pod, snapshot).smallest_first()
    kept[doubtful] = smallest.feasible & (smallest.peak <= mib)
    if len(task.requests) > 1 or bound_columns(view, task.preference) is not None:
        steps, known = Steps(_STEPS_OF_A_QUESTION), dict[bytes, bool | None]()
        for column in doubtful[~kept[doubtful]].tolist():
            alone = view.take(np.array([column]))
            found = _found(alone, pod, snapshot, mib, steps, known)
            kept[column], limited[column] = bool(found), found is None
    return Kept(kept, limited)


def choose_within(view: View, pod: Pod, snapshot: Snapshot, by_policy: Chosen, mib: int) -> Chosen | None:
    """Return cards on a view of one column, where the pod fits, that keep its total.peak within `mib`, or None.

    `by_policy` if it does; else the first choice in the order of preference, container by container, that does.
    """
    task = _Task(view, pod, snapshot)
    if task.peak_of(by_policy)[0] <= mib:
        return by_policy
    if task.bounds()[0][0] > mib:
        return None
    steps = Steps(_STEPS_OF_A_NODE)
    search = task.search(mib, steps)
    found = search.run()
    if found is not None:
        return choose_inits(search, found)
    smallest = task.smallest_first()
    return smallest.chosen if steps.exhausted and smallest.feasible[0] and smallest.peak[0] <= mib else None


def added_memory(view: View, pod: Pod, snapshot: Snapshot, chosen: Chosen) -> int:
    """Return the total.peak of memory that these cards of a view of one column make."""
    return int(_Task(view, pod, snapshot).peak_of(chosen)[0])


class _Smallest(NamedTuple):
    feasible: BoolArray
    peak: Int64Array
    chosen: Chosen


class _Task:
    """One pod over the columns of one view."""

    def __init__(self, view: View, pod: Pod, snapshot: Snapshot) -> None:
        self._view, self._pod = view, pod
        self._accepted = accepted(view, pod.selection, snapshot)
        self.preference = Preference(pod.policies, numa_bind=pod.selection.numa_bind)
        self.requests: dict[int, DeviceRequest] = {
            position: container.request
            for position, container in enumerate(pod.containers)
            if container.request is not None
        }

    def bounds(self) -> tuple[Int64Array, Int64Array]:
        """Return (column,) the least and the most memory that the pod's total.peak can be."""
        least, most = {}, {}
        for position, request in self.requests.items():
            cards = self._fitting(Share.of(self._view), request)
            wanted = np.broadcast_to(wanted_memory(self._view, request), cards.shape)
            least[position] = _smallest(np.where(cards, wanted, _TOO_MUCH), request.count)
            most[position] = -_smallest(np.where(cards, -wanted, 0), request.count)
        return self._peak(least), self._peak(most)

    def peak_of(self, chosen: Chosen) -> Int64Array:
        """Return (column,) the total.peak of memory of chosen cards."""
        return self._peak({at: self._memory(request, chosen[at]) for at, request in self.requests.items()})

    def smallest_first(self) -> _Smallest:
        """Take for each container in turn the cards on which it takes least."""
        shared, chosen = Share.of(self._view), Chosen()
        feasible = np.ones(self._view.columns, np.bool_)
        columns_bound = bound_columns(self._view, self.preference)
        bound = np.zeros(self._view.columns, np.bool_) if columns_bound is None else columns_bound
        for position, request in self.requests.items():
            cards = self._fitting(shared, request)
            wanted = np.broadcast_to(wanted_memory(self._view, request), cards.shape)
            order = np.argsort(np.where(cards, wanted, _TOO_MUCH), axis=0, kind="stable")
            chosen[position] = [*order[: request.count]]
            numa = np.take_along_axis(self._view.nodes.numa, order[: request.count], axis=0)
            one_numa = np.all(numa == numa[:1], axis=0) | ~bound
            feasible &= (np.count_nonzero(cards, axis=0) >= request.count) & one_numa
            if self._pod.containers[position].kind is not ContainerKind.INIT:
                columns = np.arange(self._view.columns)
                for cards_of in chosen[position]:
                    cells = cards_of * self._view.columns + columns
                    shared.book(cells, memory_of(self._view, request, cells), request.cores)
        return _Smallest(feasible, self.peak_of(chosen), chosen)

    def search(self, mib: int, steps: Steps) -> Search:
        """Return the search over a view of one column."""
        return Search(self._view, self._pod, self._accepted, self.preference.on(self._view), mib, steps)

    def key(self) -> bytes:
        """Return what decides whether a view of one column keeps a budget, as bytes."""
        nodes, requested = self._view.nodes, self._view.requested
        arrays: list[npt.NDArray[np.generic]] = [
            *(nodes.memory, nodes.cores, nodes.numa, nodes.single_numa, self._view.free_slots, self._view.free_memory),
            *(self._view.free_cores, requested.slots, requested.usable, requested.exclusive),
        ]
        arrays += [] if self._accepted is None else [self._accepted]
        return b"".join(array.tobytes() for array in arrays)

    def _fitting(self, share: Share, request: DeviceRequest) -> BoolArray:
        return fitting_cards(self._view, share, request, self._accepted, mutex=self._pod.policies.card.mutex)

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
            if self._pod.containers[position].kind is ContainerKind.INIT:
                peak = np.maximum(peak, alive + memory)
            else:
                alive = alive + memory
        return np.maximum(peak, alive)


def _smallest(amounts: Int64Array, count: int) -> Int64Array:
    """Return per column the sum of the `count` smallest amounts."""
    sums: Int64Array = np.add.reduce(np.sort(amounts, axis=0)[:count], axis=0)
    return sums


def _found(
    view: View, pod: Pod, snapshot: Snapshot, mib: int, steps: Steps, known: dict[bytes, bool | None]
) -> bool | None:
    """Return whether a search over one column finds cards; None if it was cut off."""
    task = _Task(view, pod, snapshot)
    key = task.key()
    if key not in known:
        found = task.search(mib, steps).run() is not None
        known[key] = None if steps.exhausted and not found else found
    return known[key]
