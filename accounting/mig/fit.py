"""Placing a pod on nodes that have cards in MIG mode.

Why it exists: an instance lies at a place, several instances may lie on one card, and one place can be worth more than
another; that is no question of sums, so it is searched, node by node. It must not know names or codes. Invariants:
exact up to the number of steps, and the same question takes the same steps; where filter finds a placement, bind finds
one; a card that is not in MIG mode takes a row here exactly if `card_fit` says so.

Sidecars and apps are placed on one shared copy of the node and each init on its own fork, as in `fit`. But the kubelet
allocates all containers when it admits the pod, and the plugin makes all instances then, so the places of a pod's
instances on one card never overlap, an init's and an app's neither (HAMi lets them, and its plugin then fails).
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

#: Steps for all nodes of one question together; a step is one card or instance tried, about 10 microseconds. Of 500
#: random hard questions 22 are beyond it, and 15 are beyond 4,096.
STEPS = 1_024


class Pick(NamedTuple):
    """What one row of a container gets."""

    device: int
    memory: int
    cores: int
    instance: MigInstance | None


#: Container position -> its rows.
Picks = dict[int, tuple[Pick, ...]]


class Searched(NamedTuple):
    """(column,) each: whether the pod can be placed with cards in MIG mode, and whether that could not be decided."""

    feasible: BoolArray
    limited: BoolArray
    concerned: BoolArray
    """Nodes with a card in MIG mode that the pod accepts."""
    over: BoolArray
    """Nodes where the pod can be placed, but nowhere within the limits on what it adds up to."""


def place_on_columns(view: View, demand: Demand, snapshot: Snapshot, wanted: BoolArray, most: Most | None) -> Searched:
    """Decide the wanted columns of a view. `most`: what the pod's total.peak may be, if that is limited.

    All are searched within the limits first. What steps are left say of the nodes that were refused whether they have a
    place without the limits; where none are left that is not decided.
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
    """Return a placement on a node where the best one was not found in time, but filter may have found one."""
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
