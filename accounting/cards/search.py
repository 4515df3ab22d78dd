"""The exact search for a division of one node's cards among a pod's containers.

Why it exists: choosing cards container by container can miss a placement. This search tries every distribution of
sidecars and apps over the kinds of cards that matters, until the inits find cards too. It must not know arrays or
numbers of cards. Invariants: it is exact up to its number of steps, and the same question takes the same steps; a step
is one look at one group of cards for one container.

The cards of a group have one NUMA node, one kind and the same containers so far, so they are interchangeable, and a
container takes a number of cards from each group. Containers that ask for the same in the same phases are
interchangeable too: only their number on a card matters. States that were found impossible are remembered.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

#: The NUMA number used for all cards if containers may take cards of several NUMA nodes.
ANY_NUMA = -1
#: Up to this many, the containers that a card could still take are counted exactly; beyond it, an upper bound is used.
_EXACT_BESIDE = 6


class Outcome(Enum):
    """The result of the search."""

    PLACED = "placed"
    IMPOSSIBLE = "impossible"
    LIMIT = "limit"


class Group(NamedTuple):
    """Cards that are interchangeable."""

    numa: int
    """ANY_NUMA, or the NUMA node: a container's cards must then be of one."""
    kind: int
    rows: int
    """The set of containers on these cards so far."""


#: The number of cards in each group of a node, sorted.
State = tuple[tuple[Group, int], ...]
#: Containers in the order in which they were placed, each with the cards that it took from each group at that time.
Path = list[tuple[int, dict[Group, int]]]


class Answers(Protocol):
    """What each kind of card can take; sets are those of `container_sets`."""

    def together(self, kind: int, rows: int) -> bool:
        """Whether a card of this kind can take the set of sidecars and apps."""

    def beside(self, kind: int, init: int, rows: int) -> bool:
        """Whether it can take an init beside the set."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be placed: the cards per sidecar, app and init, and which containers are alike."""

    shared: tuple[int, ...]
    inits: tuple[int, ...]
    alike: tuple[int, ...]
    """(container,): the set of containers that ask for the same in the same phases, itself included."""


@dataclass(slots=True)
class Steps:
    """The steps that are left; the last partial placement may take a few more."""

    left: int


class Search:
    """A question about one pod; it may be asked about many nodes."""

    def __init__(self, question: Question, answers: Answers) -> None:
        self._question = question
        self._answers = answers
        self._known_most: dict[tuple[int, int, int], int] = {}  # kind, rows, rest -> how many of the rest also fit

    @property
    def needs(self) -> tuple[int, ...]:
        """The number of cards that each sidecar and app asks for."""
        return self._question.shared

    def place(
        self, state: State, needs: tuple[int, ...], steps: Steps, fixed: tuple[int, int] | None = None
    ) -> tuple[Outcome, Path]:
        """Return whether every container j can take `needs[j]` more cards, and how; the path is empty if not.

        `fixed`: a container that already has cards, and their NUMA node; its other cards must be there too.
        """
        # Containers with the fewest spare cards first. Among containers that are alike the first one comes first,
        # because `with_container` relies on that.
        begun = -1 if fixed is None else fixed[0]
        order = sorted(
            (j for j, need in enumerate(needs) if need),
            key=lambda j: (j != begun, self._reach(state, j) - needs[j], j),
        )
        run = _Run(self, needs, order, steps, fixed)
        outcome = run.go(state)
        return outcome, run.path[::-1]

    def with_container(self, group: Group, container: int) -> Group:
        """Return a card's group after it went to the container; among containers that are alike it names the first."""
        alike = self._question.alike[container]
        number = (group.rows & alike).bit_count() + 1
        lowest = alike & -alike
        return group._replace(rows=group.rows & ~alike | ((1 << number) - 1) * lowest)

    def can(self, group: Group, container: int) -> bool:
        """Whether one more card of this group may go to the container."""
        bit = 1 << container
        return not group.rows & bit and self._answers.together(group.kind, group.rows | bit)

    def inits_placed(self, state: State) -> bool:
        """Whether every init still finds its cards."""
        for init, need in enumerate(self._question.inits):
            fitting = (each for each in state if self._answers.beside(each[0].kind, init, each[0].rows))
            if _most_together(fitting) < need:
                return False
        return True

    def most_beside(self, group: Group, rest: int) -> int:
        """Return how many containers of a set one card of this group can take in addition."""
        key = group.kind, group.rows, rest
        known = self._known_most.get(key)
        if known is None:
            known = self._known_most[key] = self._count_beside(group, rest)
        return known

    def lost_inits(self, group: Group, container: int) -> int:
        """Return how many inits could no longer use a card of this group if it went to the container."""
        kind, rows, beside = group.kind, group.rows, self._answers.beside
        inits = range(len(self._question.inits))
        return sum(beside(kind, i, rows) and not beside(kind, i, rows | 1 << container) for i in inits)

    def _count_beside(self, group: Group, rest: int) -> int:
        if not rest:
            return 0
        if rest.bit_count() > _EXACT_BESIDE:
            return sum(self.can(group, j) for j in range(rest.bit_length()) if rest >> j & 1)
        container = rest.bit_length() - 1
        rest ^= 1 << container
        without = self.most_beside(group, rest)
        if not self.can(group, container):
            return without
        return max(without, 1 + self.most_beside(group._replace(rows=group.rows | 1 << container), rest))

    def _reach(self, state: State, container: int) -> int:
        return sum(number for group, number in state if self.can(group, container))


class _Run:
    """One search from one state."""

    def __init__(
        self,
        search: Search,
        needs: tuple[int, ...],
        order: list[int],
        steps: Steps,
        fixed: tuple[int, int] | None,
    ) -> None:
        self._search = search
        self._needs = needs
        self._order = order
        self._steps = steps
        self._fixed = fixed
        self.path: Path = []
        self._impossible: set[tuple[int, State]] = set()
        #: place in the order -> the set of containers from there on, and how many cards they need together.
        self._rest = [sum(1 << j for j in order[place:]) for place in range(len(order) + 1)]
        self._wanted = [sum(needs[j] for j in order[place:]) for place in range(len(order) + 1)]

    def go(self, state: State, place: int = 0) -> Outcome:
        self._steps.left -= len(state) * (len(self._order) - place + 1)
        if not self._promising(state, place):
            return Outcome.IMPOSSIBLE
        if place == len(self._order):
            return Outcome.PLACED
        if self._steps.left <= 0:
            return Outcome.LIMIT
        for taken, after in self._ways(state, place):
            self._steps.left -= len(after)
            if (place, after) in self._impossible:
                continue
            outcome = self.go(after, place + 1)
            if outcome is Outcome.PLACED:
                self.path.append((self._order[place], taken))
            if outcome is not Outcome.IMPOSSIBLE:
                return outcome
            if self._steps.left <= 0:
                return Outcome.LIMIT
            self._impossible.add((place, after))
        return Outcome.IMPOSSIBLE

    def _promising(self, state: State, place: int) -> bool:
        """Whether the rest may still be placed: each container alone, all of them together, each init."""
        search, rest = self._search, self._rest[place]
        for container in self._order[place:]:
            if _most_together(self._open(state, container)) < self._needs[container]:
                return False
        if sum(number * search.most_beside(group, rest) for group, number in state) < self._wanted[place]:
            return False
        return search.inits_placed(state)

    def _open(self, state: State, container: int) -> list[tuple[Group, int]]:
        """Return the groups from which the container may take."""
        fixed, can = self._fixed, self._search.can
        if fixed is not None and fixed[0] == container:
            return [each for each in state if each[0].numa == fixed[1] and can(each[0], container)]
        return [each for each in state if can(each[0], container)]

    def _ways(self, state: State, place: int) -> Iterator[tuple[dict[Group, int], State]]:
        """Yield what the container at this place of the order may take, and the state after it."""
        container = self._order[place]
        need, rest = self._needs[container], self._rest[place + 1]
        by_numa: dict[int, list[tuple[Group, int]]] = {}
        for each in self._open(state, container):
            by_numa.setdefault(each[0].numa, []).append(each)
        for groups in by_numa.values():
            # First the cards whose loss costs the other containers least.
            groups.sort(key=lambda each: (self._loss(each[0], container, rest), each[0]))
            for numbers in _splits([number for _, number in groups], need):
                taken = {group: used for (group, _), used in zip(groups, numbers, strict=True) if used}
                yield taken, self._after(state, container, taken)

    def _loss(self, group: Group, container: int, rest: int) -> int:
        search = self._search
        with_it = group._replace(rows=group.rows | 1 << container)
        lost = search.most_beside(group, rest) - search.most_beside(with_it, rest)
        return lost + search.lost_inits(group, container)

    def _after(self, state: State, container: int, taken: dict[Group, int]) -> State:
        after: dict[Group, int] = {}
        for group, number in state:
            used = taken.get(group, 0)
            if number > used:
                after[group] = after.get(group, 0) + number - used
            if used:
                with_it = self._search.with_container(group, container)
                after[with_it] = after.get(with_it, 0) + used
        return tuple(sorted(after.items()))


def _most_together(groups: "Iterator[tuple[Group, int]] | list[tuple[Group, int]]") -> int:
    """Return the most cards that one container may have: all of them, or those of the best NUMA node."""
    found: dict[int, int] = {}
    for group, number in groups:
        found[group.numa] = found.get(group.numa, 0) + number
    return max(found.values(), default=0)


def _splits(available: list[int], need: int) -> Iterator[list[int]]:
    """Yield every way to take `need` from places with so many each, first those with most from the first places."""
    if not available:
        if not need:
            yield []
        return
    behind = sum(available[1:])
    for here in range(min(available[0], need), max(0, need - behind) - 1, -1):
        for others in _splits(available[1:], need - here):
            yield [here, *others]
