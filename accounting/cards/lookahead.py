"""Choosing cards so that the rest of the pod still fits.

Why it exists: where the first choices do not lead to a placement, preferred cards should still be used. It goes through
the cards in order of preference, and takes each one after which the exact search can still place the rest, so the
result is the first placement in that order. It must not rank cards. Invariant: after every choice there is a placement
for the rest; if the steps run out, the rest is placed as last found.
"""

from collections import Counter
from collections.abc import Sequence

from accounting.cards import exact_fit
from accounting.cards.exact_fit import KindTable, numa_of
from accounting.cards.greedy import Preference
from accounting.cards.search import ANY_NUMA, Group, Outcome, Path, State, Steps
from accounting.state import View


class Lookahead:
    """The cards of a view's one column, and what every container still needs."""

    def __init__(
        self, table: KindTable, view: View, preference: Preference, known: dict[int, list[int]] | None = None
    ) -> None:
        """Start with a known placement (container -> cards), or without one."""
        numa = numa_of(view, preference)
        self._search = table.search
        self._cards = [
            Group(ANY_NUMA if numa is None else int(numa[card, 0]), kind, 0)
            for card, kind in enumerate(table.kinds.of[:, 0].tolist())
        ]
        self._needs = list(table.search.needs)
        self._steps = Steps(exact_fit.STEPS)
        outcome, path = self._search.place(_state(self._cards), table.search.needs, Steps(exact_fit.STEPS))
        self._plan = self._cards_of(path) if outcome is Outcome.PLACED else dict(known or {})

    def choose(self, container: int, ranking: Sequence[int]) -> list[int]:
        """Choose the cards of the container at this place in `Phases.shared`. `ranking`: card positions, best first."""
        chosen: list[int] = []
        while self._needs[container]:
            card = self._next(container, [card for card in ranking if card not in chosen], chosen)
            chosen.append(card)
        return chosen

    def _next(self, container: int, ranking: list[int], chosen: list[int]) -> int:
        numa = None if not chosen else self._cards[chosen[0]].numa
        for card in ranking:
            group = self._cards[card]
            if numa in (None, group.numa) and self._search.can(group, container) and self._rest_fits(card, container):
                return card
        # Out of steps: use the known placement.
        card = min(self._plan[container], key=ranking.index)
        self._plan[container].remove(card)
        self._take(card, container)
        return card

    def _rest_fits(self, card: int, container: int) -> bool:
        """Take the card if everything else can then be placed."""
        before = self._cards[card]
        self._take(card, container)
        state, needs = _state(self._cards), tuple(self._needs)
        outcome, path = self._search.place(state, needs, self._steps, (container, before.numa))
        if outcome is Outcome.PLACED:
            self._plan = self._cards_of(path)
            return True
        self._cards[card] = before
        self._needs[container] += 1
        return False

    def _take(self, card: int, container: int) -> None:
        group = self._cards[card]
        self._cards[card] = group._replace(rows=group.rows | 1 << container)
        self._needs[container] -= 1

    def _cards_of(self, path: Path) -> dict[int, list[int]]:
        """Return the cards of each container on a path."""
        groups = list(self._cards)
        plan: dict[int, list[int]] = {}
        for container, taken in path:
            left = dict(taken)
            plan[container] = []
            for card, group in enumerate(groups):
                if left.get(group):
                    left[group] -= 1
                    plan[container].append(card)
            for card in plan[container]:
                groups[card] = self._search.with_container(groups[card], container)
        return plan


def _state(cards: list[Group]) -> State:
    return tuple(sorted(Counter(cards).items()))
