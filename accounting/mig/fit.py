"""Placing a pod on nodes that have cards in MIG mode.

Why it exists: an instance has a place on its card, several instances may share a card, and places differ in value. Sums
cannot decide that, so each node is searched. It must not know names or codes. Invariants: it is exact up to its number
of steps, and the same question takes the same steps; where filter finds a placement, bind finds one; a card that is not
in MIG mode takes a row here exactly if `card_fit` says so.

Sidecars and apps are placed on one shared copy of the node and each init on its own fork, as in `cards.fit`. But the
kubelet allocates all containers when it admits the pod, and the plugin then makes all instances, so the places of a
pod's instances on one card never overlap, not even those of an init and an app (HAMi lets them overlap, and its plugin
then fails).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from accounting.demand import Demand
from accounting.mig.budget import Most
from accounting.mig.cards import Card, cards_of, mig_cards
from accounting.mig.nodes import HOSTS_PART, Nodes, Outcome
from accounting.mig.problem import Question
from accounting.mig.search import Chosen, Search, Steps
from accounting.mig_profiles import MigInstance
from accounting.state import BoolArray, Rows, Snapshot, View

#: The most steps for all nodes of one question together; a step is one card or instance tried, about 10 microseconds.
#: Of 500 random hard questions 22 need more, and 15 need more than 4,096.
STEPS = 1_024


class Pick(NamedTuple):
    """The card and instance of one row of a container."""

    device: int
    memory: int
    cores: int
    instance: MigInstance | None


#: Container position -> its rows.
Picks = dict[int, tuple[Pick, ...]]


class Searched(NamedTuple):
    """(column,) each: whether the pod can be placed with cards in MIG mode, and whether that is undecided."""

    feasible: BoolArray
    limited: BoolArray
    concerned: BoolArray
    """Columns with a card in MIG mode that the pod accepts."""
    over: BoolArray
    """Columns where the pod can be placed, but not within the limits on its sum."""


def place_on_columns(view: View, demand: Demand, snapshot: Snapshot, wanted: BoolArray, most: Most | None) -> Searched:
    """Decide the wanted columns of a view. `most`: what the pod's total.peak may be, if that is limited.

    All columns are first searched within the limits. The steps that are left are used to find out whether the refused
    ones have a placement without the limits; without steps that is undecided.
    """
    nothing = np.zeros(view.columns, np.bool_)
    if len(snapshot.layouts) == 1:
        return Searched(nothing, nothing, nothing, nothing)
    concerned = np.logical_or.reduce(mig_cards(view, demand, snapshot), axis=0)
    columns = np.flatnonzero(concerned & wanted)
    nodes = Nodes(Question(demand, snapshot.layouts), cards_of(view.take(columns), demand, snapshot))
    known = nodes.outcomes(most, Steps(STEPS))
    outcomes = [known[key] for key in nodes.keys]
    return Searched(
        _where(nothing, columns, outcomes, Outcome.PLACED),
        _where(nothing, columns, outcomes, Outcome.UNDECIDED),
        concerned,
        _where(nothing, columns, outcomes, Outcome.OVER),
    )


def _where(nothing: BoolArray, columns: Rows, outcomes: list[Outcome], outcome: Outcome) -> BoolArray:
    found = nothing.copy()
    found[columns] = [each is outcome for each in outcomes]
    return found


def place_on_one(view: View, demand: Demand, snapshot: Snapshot, most: Most | None) -> Picks | None:
    """Return what every container gets on a view of one column within the limits, or None."""
    if len(snapshot.layouts) == 1 or not mig_cards(view, demand, snapshot).any():
        return None
    (cards,) = cards_of(view, demand, snapshot)
    question = Question(demand, snapshot.layouts)
    search = Search(question, cards, most, Steps(STEPS))
    if search.run():
        return _picks(search.chosen, cards)
    return _as_filter_does(question, cards, most) if search.cut else None


def _as_filter_does(question: Question, cards: tuple[Card, ...], most: Most | None) -> Picks | None:
    """Return filter's placement on a node where the preferred one took too many steps."""
    ordered = sorted(cards, key=lambda card: question.facts(card).order)
    alone = Steps(STEPS // HOSTS_PART)
    for some, steps in (*(([card], alone) for card in ordered), (ordered, Steps(STEPS))):
        search = Search(question, some, most, steps, by_preference=False)
        if search.run():
            return _picks(search.chosen, some)
    return None


def _picks(chosen: dict[int, Chosen], cards: Sequence[Card]) -> Picks:
    return {
        container: tuple(Pick(cards[at].position, memory, cores, instance) for at, memory, cores, instance in rows)
        for container, rows in chosen.items()
    }
