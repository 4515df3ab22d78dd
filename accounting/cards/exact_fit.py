"""Deciding exactly which nodes can take a pod where the greedy choice found no cards.

Why it exists: a node that has a placement for a pod must never refuse it. A necessary test over whole arrays rules out
hopeless nodes; nodes with the same numbers of the same kinds of cards form one question, and the exact search decides
each question once. It must not prefer one card to another. Invariants: without a limit the answer is exact; the steps
of all questions together are bounded and shared out in an order that depends only on the questions, so the same view
and pod give the same answer. A node alone gets at least the steps that it gets among others.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards, wanted_memory
from accounting.cards.container_sets import ContainerSets, Kinds, kinds_of
from accounting.cards.greedy import Preference, bound_columns, enough
from accounting.cards.largest_first import place_largest_first
from accounting.cards.search import ANY_NUMA, Group, Outcome, Question, Search, State, Steps
from accounting.phases import Phases
from accounting.state import BoolArray, Int64Array, Rows, View

#: The most steps of the exact search for all nodes of one pod together; about 1 microsecond each.
STEPS = 16_384
#: The least steps of a question, while steps are left: more than most questions need. Fewer would decide nothing.
_LEAST_STEPS = 512
#: Pods with more sidecars and apps with cards than this are not searched.
_MOST_CONTAINERS = 24
#: With more of them than this, the necessary test looks only at single containers and at all together.
_EVERY_SUBSET = 6


@dataclass(frozen=True, slots=True)
class Decision:
    """The exact search's verdict on each column of a view."""

    feasible: BoolArray
    limited: BoolArray
    """(column,): not decided, because the steps ran out."""
    searched: int
    """The number of columns that needed the exact search."""


class KindTable:
    """The kinds of cards in a view, and what they can take."""

    def __init__(self, container_sets: ContainerSets) -> None:
        self.kinds: Kinds = kinds_of(container_sets)
        self.container_sets = container_sets.of_cells(self.kinds.cells)
        self._together: dict[int, list[bool]] = {}
        self._beside: dict[tuple[int, int], list[bool]] = {}
        self.search = Search(question_of(container_sets.phases), self)

    def together(self, kind: int, rows: int) -> bool:
        """Whether a card of this kind can take the set of sidecars and apps."""
        known = self._together.get(rows)
        if known is None:
            known = self._together[rows] = self.container_sets.together(rows)[0].tolist()
        return known[kind]

    def beside(self, kind: int, init: int, rows: int) -> bool:
        """Whether it can take an init beside the set."""
        known = self._beside.get((init, rows))
        if known is None:
            known = self._beside[init, rows] = self.container_sets.beside(init, rows)[0].tolist()
        return known[kind]

    def useful(self) -> BoolArray:
        """(kind,): whether such a card can take any container."""
        shared, inits = self.container_sets.phases.shared, self.container_sets.phases.inits
        alone = [self.container_sets.together(1 << j) for j in range(len(shared))]
        alone += [self.container_sets.beside(init, 0) for init in range(len(inits))]
        useful: BoolArray = np.logical_or.reduce(alone)[0]
        return useful


def question_of(phases: Phases) -> Question:
    """Return a pod's question."""
    shared = phases.shared
    first = list(range(len(shared)))
    borders = {before for _, before in phases.inits}
    for j in range(1, len(shared)):
        same = shared[j].request == shared[j - 1].request and shared[j].kind is shared[j - 1].kind
        if same and j not in borders:
            first[j] = first[j - 1]
    return Question(
        shared=tuple(each.request.count for each in shared),
        inits=tuple(container.request.count for container, _ in phases.inits),
        alike=tuple(sum(1 << j for j, other in enumerate(first) if other == own) for own in first),
    )


def decide(view: View, phases: Phases, accepted: BoolArray | None, preference: Preference, *, mutex: bool) -> Decision:
    """Decide every column of a view exactly, within STEPS."""
    feasible, limited = np.zeros(view.columns, np.bool_), np.zeros(view.columns, np.bool_)
    hopeful = np.flatnonzero(_hopeful(view, phases, accepted, preference, mutex=mutex))
    if not len(hopeful):
        return Decision(feasible, limited, 0)
    for fullest in (True, False):
        part, mask = _part(view, accepted, hopeful)
        found = place_largest_first(part, phases, mask, preference, fullest=fullest, mutex=mutex).feasible
        feasible[hopeful] = found
        hopeful = hopeful[~found]
        if not len(hopeful):
            return Decision(feasible, limited, 0)
    if len(phases.shared) > _MOST_CONTAINERS:
        limited[hopeful] = True
        return Decision(feasible, limited, len(hopeful))
    part, accepted = _part(view, accepted, hopeful)
    table = KindTable(ContainerSets(part, phases, accepted, mutex=mutex))
    questions = _questions(table, numa_of(part, preference))
    outcomes = _ask_all(table, questions)
    placed = np.array([outcome is Outcome.PLACED for outcome in outcomes])
    at_limit = np.array([outcome is Outcome.LIMIT for outcome in outcomes])
    feasible[hopeful], limited[hopeful] = placed[questions.of], at_limit[questions.of]
    return Decision(feasible, limited, len(hopeful))


def known_placement(
    view: View, phases: Phases, accepted: BoolArray | None, preference: Preference, *, mutex: bool
) -> dict[int, list[int]] | None:
    """Return the placement that `decide` finds for a view's one column without a search; None if it needs one."""
    for fullest in (True, False):
        found = place_largest_first(view, phases, accepted, preference, fullest=fullest, mutex=mutex)
        if found.feasible[0]:
            return {place: [int(cards[0]) for cards in chosen] for place, chosen in found.chosen.items()}
    return None


def _part(view: View, accepted: BoolArray | None, columns: Rows) -> tuple[View, BoolArray | None]:
    if len(columns) == view.columns:
        return view, accepted
    return view.take(columns), None if accepted is None else accepted.take(columns, axis=1)


def numa_of(view: View, preference: Preference) -> Int64Array | None:
    """Return (device, column): the NUMA node where it limits a container's cards, else ANY_NUMA; None if nowhere."""
    bound = bound_columns(view, preference)
    return None if bound is None else np.where(bound, view.nodes.numa.astype(np.int64), ANY_NUMA)


# -- the necessary test ------------------------------------------------------------------------------------------------


def _hopeful(
    view: View, phases: Phases, accepted: BoolArray | None, preference: Preference, *, mutex: bool
) -> BoolArray:
    """Return (column,): False where one container alone, or all together, ask for more than there is."""
    empty = Assignment.of(view)
    hopeful = np.ones(view.columns, np.bool_)
    asked = [each.request for each in phases.shared]
    requests = dict.fromkeys([*asked, *(container.request for container, _ in phases.inits)])
    # Largest first, so that a pod that is too large for every node costs one look.
    for request in sorted(requests, key=lambda request: (-request.memory, -request.memory_percentage)):
        if not hopeful.any():
            return hopeful
        cards = fitting_cards(view, empty, request, accepted, mutex=mutex)
        hopeful &= enough(cards, request.count, view, preference)
    usable = view.requested.usable if accepted is None else view.requested.usable & accepted
    slots, memory, cores = (
        _sum(np.where(usable, free, 0)) for free in (view.free_slots, view.free_memory, view.free_cores)
    )
    hopeful &= slots >= sum(request.count for request in asked)
    hopeful &= cores >= sum(request.count * request.cores for request in asked)
    hopeful &= _large_rows(view, usable, phases)
    wanted: Int64Array = np.zeros(view.columns, np.int64)
    for request in asked:
        each = wanted_memory(view, request)
        if isinstance(each, np.ndarray):
            each = np.minimum.reduce(np.where(usable, each, np.iinfo(np.int64).max), axis=0)
            each = np.where(np.logical_or.reduce(usable, axis=0), each, 0)
        wanted += each * request.count
    hopeful &= memory >= wanted
    return hopeful


def _large_rows(view: View, usable: BoolArray, phases: Phases) -> BoolArray:
    """Return (column,): False where the cards have too few places for all rows of at least some size.

    As many rows of the smallest of these sizes would have to fit; a card takes at most one row of each container.
    """
    enough_places = np.ones(view.columns, np.bool_)
    asked = [each.request for each in phases.shared]
    for free, sizes in (
        (view.free_memory, [request.memory for request in asked]),
        (view.free_cores, [request.cores for request in asked]),
    ):
        for size in sorted(set(sizes) - {0}):
            large = [request.count for request, own in zip(asked, sizes, strict=True) if own >= size]
            places = np.minimum(np.where(usable, free, 0) // size, len(large))
            enough_places &= _sum(places) >= sum(large)
    return enough_places


def _sum(array: Int64Array) -> Int64Array:
    sums: Int64Array = np.add.reduce(array, axis=0, dtype=np.int64)
    return sums


def _possible(table: KindTable, counts: Int64Array) -> BoolArray:
    """Return (question,): False where some containers together need more places than all cards have for them.

    `counts`: (question, kind). The containers: every set of sidecars and apps, and every set of the sidecars before an
    init with that init.
    """
    phases, container_sets = table.container_sets.phases, table.container_sets
    possible = np.ones(len(counts), np.bool_)
    if len(phases.shared) > _EVERY_SUBSET:
        return possible
    needs = [each.request.count for each in phases.shared]
    rooms = {0: np.zeros(counts.shape[1], np.int64)}
    with_init = [{0: container_sets.beside(init, 0)[0].astype(np.int64)} for init in range(len(phases.inits))]
    for rows in range(1, 1 << len(needs)):
        members = [j for j in range(len(needs)) if rows >> j & 1]
        need = sum(needs[j] for j in members)
        together = container_sets.together(rows)[0]
        smaller = np.maximum.reduce([rooms[rows ^ 1 << j] for j in members])
        rooms[rows] = np.where(together, len(members), smaller)
        possible &= counts @ rooms[rows] >= need
        for init, (container, before) in enumerate(phases.inits):
            if rows >> before:
                continue
            known = with_init[init]
            smaller = np.maximum.reduce([known[rows ^ 1 << j] for j in members])
            known[rows] = np.maximum(
                smaller, np.where(together, len(members) + container_sets.beside(init, rows)[0], 0)
            )
            possible &= counts @ known[rows] >= need + container.request.count
    return possible


# -- questions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Questions:
    """The different nodes, from the pod's point of view."""

    of: Rows
    """(column,): the question of each column."""
    states: list[State]
    columns: list[int]
    """(question,): the number of columns of each."""
    counts: Int64Array
    """(question, kind): the number of cards."""


def _questions(table: KindTable, numa: Int64Array | None) -> _Questions:
    kinds = table.kinds.of
    useful = table.useful()
    numbers = kinds + 1 if numa is None else kinds + 1 + (numa - ANY_NUMA) * (len(useful) + 1)
    # Equal nodes get equal rows, whatever the order of their cards. Big-endian, so that bytes sort like numbers.
    rows = np.sort(np.where(useful[kinds], numbers, 0).T, axis=1).astype(">i8")
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, of, columns = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    counts = np.zeros((len(first), len(useful)), np.int64)
    states = []
    for place, column in enumerate(first.tolist()):
        groups = Counter(
            Group(ANY_NUMA if numa is None else int(numa[card, column]), kind, 0)
            for card, kind in enumerate(kinds[:, column].tolist())
            if useful[kind]
        )
        for group, number in groups.items():
            counts[place, group.kind] += number
        states.append(tuple(sorted(groups.items())))
    return _Questions(of, states, columns.tolist(), counts)


def _ask_all(table: KindTable, questions: _Questions) -> list[Outcome]:
    """Answer every question. Steps are shared out evenly, and unused ones go to later questions.

    With very many questions the first ones get as many as most questions need, and the last ones none.
    """
    outcomes = [Outcome.IMPOSSIBLE] * len(questions.states)
    possible = np.flatnonzero(_possible(table, questions.counts)).tolist()
    possible.sort(key=lambda place: (-questions.columns[place], questions.states[place]))
    left = STEPS
    needs = table.search.needs
    for number, place in enumerate(possible):
        steps = Steps(min(left, max(left // (len(possible) - number), _LEAST_STEPS)))
        given = steps.left
        outcomes[place], _ = table.search.place(questions.states[place], needs, steps)
        left = max(left - (given - steps.left), 0)
    return outcomes
