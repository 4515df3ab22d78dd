"""What nodes lack for a pod that they refuse, and the nodes that lack least.

Why it exists: "no room" does not help, but "node n7 lacks 2048 MiB on one card" says what to free. It must not decide
whether a pod fits. Invariants: it reads a snapshot and changes nothing; the order of nodes is full: what they lack,
then the name's rank.

Only the container that found no cards is considered, on the copy of the node on which it was fitted. Nodes that would
refuse the pod even when empty are left out.
"""

from typing import NamedTuple

import numpy as np

from accounting.answers.rejection import CHECKS, card_ranks
from accounting.cards import Assignment, fit_pod, wanted_memory
from accounting.demand import Demand
from accounting.holdings import EXCLUSIVE_CORES
from accounting.pod import DeviceRequest, Pod
from accounting.state import Int64Array, Rows, Snapshot, View
from accounting.status import Code

#: A whole card, in the unit of added-up lacks.
_WHOLE = 1_000_000
#: A card that no eviction opens for the container.
_NEVER = 1 << 50
#: From this rank on only other pods keep the container off a card.
_OPEN_RANK = CHECKS.index(Code.DEVICE_OVERCOMMITTED)


class CardLack(NamedTuple):
    """What one card lacks for one container; 0 is enough."""

    position: int
    """Device position on the node."""
    memory: int
    """MiB."""
    cores: int
    """Percent."""
    slots: int
    occupied: bool
    """Whether exclusive use is in the way: the container wants the card alone, or another pod has it alone."""


class Near(NamedTuple):
    """A node that lacks little."""

    row: int
    container: int
    """Position of the container that found no cards."""
    cards: tuple[CardLack, ...]
    """Of as many cards as the container asks for, those that lack least: the ones that lack something."""


def nearest(snapshot: Snapshot, pod: Pod, rows: Rows, most: int) -> list[Near]:
    """Return at most `most` of the rows, all of which refuse the pod, in the order of what they lack."""
    found: list[tuple[int, int, Near]] = []
    for part in Demand.of(pod).parts if pod.asks and not pod.invalid else ():
        view = snapshot.take(rows)
        fit = fit_pod(view, part, snapshot, choose_cards=False)
        for place in sorted(set(fit.failed_at[~fit.feasible].tolist()) - {-1}):
            request, assignment = part.containers[place].request, fit.assignments.get(place)
            if request is None or assignment is None:
                continue
            columns = np.flatnonzero(~fit.feasible & (fit.failed_at == place))
            lacks = _Lacks(view, assignment, request, part, snapshot)
            for cost, column in lacks.least(columns, snapshot.name_rank[rows], most):
                near = Near(int(rows[column]), place, lacks.cards(column))
                found.append((cost, int(snapshot.name_rank[rows[column]]), near))
    first: dict[int, Near] = {}
    for _, _, near in sorted(found, key=lambda each: each[:2]):
        first.setdefault(near.row, near)
    return list(first.values())[:most]


class _Lacks:
    """What every card of a view lacks for one container; arrays (device, column)."""

    def __init__(
        self, view: View, assignment: Assignment, request: DeviceRequest, demand: Demand, snapshot: Snapshot
    ) -> None:
        nodes = view.nodes
        ranks = card_ranks(view, assignment, request, demand, snapshot)
        own = [0 if each is None else each for each in (assignment.slots, assignment.memory, assignment.cores)]
        wanted = np.broadcast_to(wanted_memory(view, request), nodes.memory.shape)
        least_cores = np.where(nodes.cores > 0, max(request.cores, 1), request.cores)
        self._count = request.count
        self._slots: Int64Array = np.maximum(0, 1 - (view.free_slots - own[0])).astype(np.int64)
        self._memory: Int64Array = np.maximum(0, wanted - (view.free_memory - own[1]))
        self._cores: Int64Array = np.maximum(0, least_cores - (view.free_cores - own[2]))
        alone = request.cores >= EXCLUSIVE_CORES or demand.policies.card.mutex
        held = view.requested.slots + own[0] > 0
        self._occupied = (view.requested.exclusive > 0) | (held if alone else False)
        cost = self._slots * _WHOLE + self._memory * _WHOLE // np.maximum(nodes.memory, 1)
        cost += self._cores * _WHOLE // 100 + self._occupied * _WHOLE
        too_small = (nodes.memory < wanted) | (nodes.slots < 1) | (nodes.cores < request.cores)
        self._cost: Int64Array = np.where((ranks < _OPEN_RANK) | too_small, _NEVER, cost)
        self._order = np.argsort(self._cost, axis=0, kind="stable")

    def least(self, columns: Rows, name_rank: Int64Array, most: int) -> list[tuple[int, int]]:
        """Return (lack, column) of the columns that lack least; columns that never fit are left out."""
        if self._count > len(self._order):
            return []
        costs = np.take_along_axis(self._cost, self._order[: self._count], axis=0).sum(axis=0)[columns]
        order = np.lexsort((name_rank[columns], costs))[:most]
        return [(int(costs[place]), int(columns[place])) for place in order if costs[place] < _NEVER]

    def cards(self, column: int) -> tuple[CardLack, ...]:
        """Return the cards of a column that the container would get and that lack something."""
        return tuple(
            CardLack(
                card,
                int(self._memory[card, column]),
                int(self._cores[card, column]),
                int(self._slots[card, column]),
                bool(self._occupied[card, column]),
            )
            for card in self._order[: self._count, column].tolist()
            if self._cost[card, column]
        )
