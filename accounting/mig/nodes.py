"""The search on many nodes: which of them can take the pod, within one number of steps for all.

Why it exists: one node may need more steps than a thousand others, and a single card decides most nodes. It must not
know views. Invariants: nodes whose cards agree in what matters are searched once and get the same answer; the policy's
order of cards plays no part, so the result is only yes or no.
"""

from collections.abc import Iterable
from enum import Enum, auto

from accounting.mig.assignment import Held, fits
from accounting.mig.budget import Most
from accounting.mig.cards import Card
from accounting.mig.necessary import NecessaryTest, most_rows
from accounting.mig.problem import Facts, Question
from accounting.mig.search import Search, Steps

#: From this many different nodes on, single cards are checked first.
_MANY = 8
#: The share of steps for that check.
HOSTS_PART = 4
#: The least steps for one node when several share them.
_FEWEST_STEPS = 16


class Outcome(Enum):
    """The verdict on a node."""

    PLACED = auto()
    NO_PLACE = auto()
    REFUSED = auto()
    """Refused within the limits; not searched without them."""
    OVER = auto()
    """There is a placement, but none within the limits."""
    UNDECIDED = auto()


#: The states of a node's cards, in order.
Key = tuple[int, ...]


class Nodes:
    """The search of some nodes for one pod."""

    def __init__(self, question: Question, nodes: Iterable[tuple[Card, ...]]) -> None:
        self._question = question
        self._card: dict[int, Card] = {}
        self._facts: dict[int, Facts] = {}
        nodes_states = []
        for cards in nodes:
            facts = [question.facts(card) for card in cards]
            nodes_states.append([each.state for each in facts])
            for card, each in zip(cards, facts, strict=True):
                self._card.setdefault(each.state, card)
                self._facts[each.state] = each
        ordered = sorted(self._facts, key=lambda state: self._facts[state].order)
        place = {state: number for number, state in enumerate(ordered)}
        self.keys = [tuple(sorted(states, key=place.__getitem__)) for states in nodes_states]
        """The key of each node; nodes with equal keys are searched once."""
        self._rows: dict[int, tuple[int, ...]] = {}

    def outcomes(self, most: Most | None, steps: Steps) -> dict[Key, Outcome]:
        """Decide all nodes, first within the limits; steps that are left show why the others refuse."""
        known = self._search(self.keys, most, steps)
        refused = [key for key, outcome in known.items() if outcome is Outcome.REFUSED]
        for key, outcome in self._search(refused, None, steps).items():
            known[key] = Outcome.OVER if outcome is Outcome.PLACED else outcome
        return known

    def _search(self, keys: Iterable[Key], most: Most | None, steps: Steps) -> dict[Key, Outcome]:
        known = {key: self._at_once(key, most) for key in dict.fromkeys(keys)}
        open_keys = [key for key, outcome in known.items() if outcome is Outcome.UNDECIDED]
        if len(open_keys) >= _MANY:
            hosts = _Hosts(self._question, self._card, most, Steps(steps.left // HOSTS_PART))
            placed = {key for key in open_keys if any(map(hosts.takes, dict.fromkeys(key)))}
            known |= dict.fromkeys(placed, Outcome.PLACED)
            open_keys = [key for key in open_keys if key not in placed]
            steps.left -= hosts.taken
        if len(open_keys) > 1:
            # Each node gets some steps before one may take all that are left.
            fair = max(_FEWEST_STEPS, steps.left // (4 * len(open_keys)))
            known |= {key: self._within(key, most, steps, fair) for key in open_keys}
            open_keys = [key for key in open_keys if known[key] is Outcome.UNDECIDED]
        return known | {key: self._within(key, most, steps, steps.left) for key in open_keys}

    def _at_once(self, key: Key, most: Most | None) -> Outcome:
        """Refuse nodes whose cards have too little left together; for a single container this decides everything."""
        rows = [self._most_rows(state) for state in key]
        wanted = [need.rows for need in self._question.needs]
        for at, least in enumerate(wanted):
            if sum(own[at] for own in rows) < least:
                return Outcome.NO_PLACE
        if most is not None:
            return Outcome.UNDECIDED if self._may_keep(key, most) else Outcome.REFUSED
        return Outcome.PLACED if self._question.alone and self._takes_alone(key) else Outcome.UNDECIDED

    def _may_keep(self, key: Key, most: Most) -> bool:
        """Return whether the least sum of sidecars and apps is within the limits."""
        if not self._question.phases.shared:
            return True
        cards = [self._card[state] for state in key]
        facts = [self._facts[state] for state in key]
        least = NecessaryTest(self._question, cards, facts).least_of_shared(0, [each.free for each in facts])
        return all(limit is None or amount <= limit for amount, limit in zip(least, most, strict=True))

    def _takes_alone(self, key: Key) -> bool:
        """Return whether the pod's one container finds its rows."""
        (place,) = self._question.places
        rows = 0
        for state in key:
            card = self._card[state]
            ((offers, memory),) = self._facts[state].wants
            if offers is not None:
                rows += min(self._most_rows(state)[0], card.what.slots_left)
            else:
                rows += fits(card.what, place.request, memory, Held())
        return rows >= place.request.count

    def _most_rows(self, state: int) -> tuple[int, ...]:
        known = self._rows.get(state)
        if known is None:
            known = self._rows[state] = most_rows(self._question, self._card[state], self._facts[state])
        return known

    def _within(self, key: Key, most: Most | None, steps: Steps, at_most: int) -> Outcome:
        """Search one node within the limits."""
        if not steps.left:
            return Outcome.UNDECIDED
        own = Steps(min(at_most, steps.left))
        search = Search(self._question, [self._card[state] for state in key], most, own, by_preference=False)
        placed = search.run()
        steps.left -= own.taken
        if placed:
            return Outcome.PLACED
        if search.cut:
            return Outcome.UNDECIDED
        return Outcome.REFUSED if search.limits is not None and search.limits.refused else Outcome.NO_PLACE


class _Hosts:
    """Which cards can take the whole pod alone."""

    def __init__(self, question: Question, card: dict[int, Card], most: Most | None, steps: Steps) -> None:
        self._question, self._card, self._most, self._steps = question, card, most, steps
        self._known: dict[int, bool] = {}

    @property
    def taken(self) -> int:
        """The number of steps taken so far."""
        return self._steps.taken

    def takes(self, state: int) -> bool:
        """Return whether a card in this state certainly can."""
        known = self._known.get(state)
        if known is None:
            card = self._card[state]
            rows = zip(most_rows(self._question, card, self._question.facts(card)), self._question.needs, strict=True)
            known = self._known[state] = (
                all(most >= need.rows for most, need in rows)
                and Search(self._question, [card], self._most, self._steps, by_preference=False).run()
            )
        return known
