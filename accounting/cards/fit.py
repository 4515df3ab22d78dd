"""Fitting one pod on many nodes at once.

Why it exists: filter, bind and explain must agree, so they share this one algorithm. It must not know names, codes or
texts. Invariants: it reads a view and changes nothing in it; per node all containers get cards or none does.

Sidecars and apps are fitted one after another on one shared copy of each node. Then each init, in spec order, is fitted
on its own fork, which has only the sidecars declared before it. Cards are first chosen greedily, container by
container. Where that fails and other cards for an earlier container could have helped, the exact search decides
(`exact_fit`), and the cards are those of the first placement in the order of preference (`lookahead`).

Filter needs only a yes or no. Then the inits and the last sidecar or app need no choice of cards, because nothing is
fitted after them on the same copy. A sidecar that has only inits after it still needs one, because they are fitted
beside it.
"""

from dataclasses import dataclass, field

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards, memory_of, wanted_memory
from accounting.cards.container_sets import ContainerSets
from accounting.cards.exact_fit import Decision, KindTable, decide, known_placement
from accounting.cards.footprint import Footprint
from accounting.cards.greedy import Preference, choose, choose_by_links, enough, ranking
from accounting.cards.lookahead import Lookahead
from accounting.cards.selection_mask import accepted
from accounting.demand import Demand
from accounting.phases import ContainerRequest, Phases
from accounting.pod import DeviceRequest
from accounting.state import BoolArray, Int32Array, Int64Array, Rows, Snapshot, View


@dataclass(slots=True)
class Fit:
    """The outcome on a view's columns."""

    feasible: BoolArray
    failed_at: Int32Array
    """(column,): position of the first container that found no cards by the greedy choice; -1 if none failed."""
    limited: BoolArray
    """(column,): not decided, because the exact search ran out of steps."""
    searched: int = 0
    """The number of columns that went to the exact search."""
    assignments: dict[int, Assignment] = field(default_factory=dict)
    """Container position -> the copy on which it was fitted, in a failed column as it was at that moment."""
    chosen: dict[int, list[Rows]] = field(default_factory=dict)
    """Container position -> the chosen device positions, one (column,) array per card, in order of preference."""


def fit_pod(
    view: View, demand: Demand, snapshot: Snapshot, *, choose_cards: bool, wanted: BoolArray | None = None
) -> Fit:
    """Fit a pod on every column of a view. `choose_cards`: also return the cards of every container.

    `snapshot` has the interned numbers of UUIDs, models and modes; the view may be a part of it. `wanted`, (column,):
    the columns where a yes matters; the exact search skips the others.
    """
    fitting = _Fitting(view, demand, snapshot, choose_cards=choose_cards)
    fit = fitting.run()
    doubtful = fitting.doubtful()
    if wanted is not None:
        doubtful &= wanted
    columns = np.flatnonzero(doubtful)
    if len(columns):
        _search(fitting, columns, demand, snapshot)
    return fit


def _search(fitting: "_Fitting", columns: Rows, demand: Demand, snapshot: Snapshot) -> None:
    """Decide these columns by the exact search."""
    view, fit = fitting.view, fitting.fit
    decision = fitting.decide(columns)
    fit.feasible[columns] = decision.feasible
    fit.failed_at[columns[decision.feasible]] = -1
    fit.limited[columns] = decision.limited
    fit.searched = decision.searched
    if not fitting.choose_cards:
        return
    for column in columns[decision.feasible].tolist():
        alone = _Fitting(_column(view, column), demand, snapshot, choose_cards=True)
        alone.look_ahead()
        _merge(fit, column, alone.run())
    for column in columns[decision.limited].tolist():
        # Cards that are close may make the greedy choice fail where filter's choice, which takes any, succeeds.
        alone = _Fitting(_column(view, column), demand, snapshot, choose_cards=True)
        alone.topologies, alone.links = (), None
        if alone.run().feasible[0]:
            _merge(fit, column, alone.fit)


def _column(view: View, column: int) -> View:
    return view if view.columns == 1 else view.take(np.array([column]))


def _merge(fit: Fit, column: int, alone: Fit) -> None:
    """Take a column's cards from the fit of that column alone."""
    fit.feasible[column], fit.limited[column], fit.failed_at[column] = True, False, -1
    for position, chosen in alone.chosen.items():
        known = fit.chosen.setdefault(position, [np.zeros(len(fit.feasible), np.intp) for _ in chosen])
        for cards, card in zip(known, chosen, strict=True):
            cards[column] = card[0]


class _Fitting:
    """One run of the algorithm on one view."""

    def __init__(self, view: View, demand: Demand, snapshot: Snapshot, *, choose_cards: bool) -> None:
        self.view = view
        self.choose_cards = choose_cards
        self.lookahead: Lookahead | None = None
        """Chooses the cards of sidecars and apps, on a view of one column that has a placement."""
        self.preference = Preference(demand.policies, numa_bind=demand.selection.numa_bind)
        # Only if cards are chosen: a yes or no does not depend on how close they are.
        self.links = snapshot.topologies if choose_cards else None
        self.topologies = snapshot.topologies if choose_cards and self.preference.linked else ()
        self._mutex = demand.policies.card.mutex
        self._accepted = accepted(view, demand.selection, snapshot)
        self._phases = Phases.of(demand)
        self.fit = Fit(
            np.ones(view.columns, np.bool_), np.full(view.columns, -1, np.int32), np.zeros(view.columns, np.bool_)
        )

    def run(self) -> Fit:
        """Choose cards greedily, or by the lookahead if there is one."""
        shared, choose_cards = Assignment.of(self.view), self.choose_cards
        forks: list[tuple[ContainerRequest, Assignment]] = []
        inits = list(self._phases.inits)
        for place, container in enumerate(self._phases.shared):
            while inits and inits[0][1] == place:
                forks.append((inits.pop(0)[0], shared.fork()))
            followed = bool(inits) or place + 1 < len(self._phases.shared)
            self._fit_container(container, shared, place, needs_choice=choose_cards or followed)
        forks += [(container, shared.fork()) for container, _ in inits]
        for container, fork in forks:
            self._fit_container(container, fork, None, needs_choice=False)
        if choose_cards and forks and self.fit.feasible.any():
            self._choose_for_inits(shared, forks)
        return self.fit

    def _choose_for_inits(self, shared: Assignment, forks: list[tuple[ContainerRequest, Assignment]]) -> None:
        """Choose the inits' cards so that little is held.

        They are chosen in spec order, or largest first where that gives a smaller footprint.
        """
        chosen, merged = self._chosen_in(shared, forks)
        largest_first = sorted(forks, key=lambda each: _largeness(self.view, each[0].request))
        if largest_first != forks:
            others, other = self._chosen_in(shared, largest_first)
            better = other.is_less_than(merged)
            chosen = {
                position: [np.where(better, *pair) for pair in zip(others[position], cards, strict=True)]
                for position, cards in chosen.items()
            }
        self.fit.chosen.update(chosen)

    def _chosen_in(
        self, shared: Assignment, forks: list[tuple[ContainerRequest, Assignment]]
    ) -> tuple[dict[int, list[Rows]], Footprint]:
        """Choose the inits' cards in this order; each adds as little as it can to the pod's footprint so far."""
        merged, chosen = Footprint(shared), {}
        for container, fork in forks:
            growth = merged.growth(fork, self.view, container.request)
            cards = self._cards(container.request, fork)
            own = chosen[container.position] = self._choose(cards, container.request, fork, growth)
            booked = fork.fork()
            self._book(own, container.request, booked)
            merged.raise_to(booked)
        return chosen, merged

    def doubtful(self) -> BoolArray:
        """Return (column,): where a container found no cards, but an earlier container's other choice might help."""
        failed_at = self.fit.failed_at
        doubtful = np.zeros(self.view.columns, np.bool_)
        for container in (*self._phases.shared, *(init for init, _ in self._phases.inits)):
            if self._phases.others_before(container.position):
                doubtful |= failed_at == container.position
        return doubtful

    def decide(self, columns: Rows) -> Decision:
        """Decide these columns by the exact search."""
        view, accepted_cards = self.view, self._accepted
        if len(columns) < view.columns:
            view = view.take(columns)
            accepted_cards = None if accepted_cards is None else accepted_cards.take(columns, axis=1)
        return decide(view, self._phases, accepted_cards, self.preference, mutex=self._mutex)

    def look_ahead(self) -> None:
        """Choose the cards of sidecars and apps by a lookahead, in the view's one column, which has a placement."""
        view, mask, preference = self.view, self._accepted, self.preference
        table = KindTable(ContainerSets(view, self._phases, mask, mutex=self._mutex))
        known = known_placement(view, self._phases, mask, preference, mutex=self._mutex)
        self.lookahead = Lookahead(table, view, preference, known)

    def _fit_container(
        self, container: ContainerRequest, assignment: Assignment, place: int | None, *, needs_choice: bool
    ) -> None:
        fit, request = self.fit, container.request
        fit.assignments[container.position] = assignment
        cards = self._cards(request, assignment)
        found = enough(cards, request.count, self.view, self.preference)
        fit.failed_at[fit.feasible & ~found] = container.position
        fit.feasible &= found
        if not needs_choice or not fit.feasible.any():
            return
        if self.lookahead is not None and place is not None:
            best = ranking(cards[:, 0], self.view, assignment, self.preference.on(self.view))
            chosen = [np.array([card]) for card in self.lookahead.choose(place, best)]
        else:
            chosen = self._choose(cards, request, assignment, None)
        fit.chosen[container.position] = chosen
        self._book(chosen, request, assignment)

    def _cards(self, request: DeviceRequest, assignment: Assignment) -> BoolArray:
        return fitting_cards(self.view, assignment, request, self._accepted, mutex=self._mutex)

    def _choose(
        self, cards: BoolArray, request: DeviceRequest, assignment: Assignment, growth: Int64Array | None
    ) -> list[Rows]:
        view, preference = self.view, self.preference
        if self.topologies:
            return choose_by_links(cards, request.count, view, assignment, preference, growth, self.topologies)
        return choose(cards, request.count, view, assignment, preference, growth, self.links)

    def _book(self, chosen: list[Rows], request: DeviceRequest, assignment: Assignment) -> None:
        """Book the chosen cards in the columns where everything fits so far."""
        columns = np.flatnonzero(self.fit.feasible)
        for positions in chosen:
            cells = positions[columns] * self.view.columns + columns
            assignment.book(cells, memory_of(self.view, request, cells), request.cores)


def _largeness(view: View, request: DeviceRequest) -> tuple[int, int, int]:
    """Sort key of requests, the largest first."""
    memory = wanted_memory(view, request)
    largest = int(np.max(memory, initial=0)) if isinstance(memory, np.ndarray) else memory
    return -largest, -request.cores, -request.count
