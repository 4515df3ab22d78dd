"""Which pods must go so that a pod fits on a node.

Why it exists: kube-scheduler counts cards, but does not know which card a pod holds nor how much of it, so its victims
may not help and others may be missing. It must not know the wire. Invariants: asking changes nothing; only pods that
may be evicted are victims (`candidates`); an offered victim is spared only where the node provably has room for the pod
beside it (`node_resources`); the set is the cheapest by `order`, up to the bound of `search`.
"""

from collections.abc import Generator, Sequence

import numpy as np

from accounting.answers.filter import feasible_on, node_open
from accounting.answers.preemption.candidates import Preemptor
from accounting.answers.preemption.node_search import NodeSearch, Offer, Outcome
from accounting.answers.preemption.removal import without
from accounting.answers.preemption.search import MOST_SETS
from accounting.demand import Demand
from accounting.quota import Budget
from accounting.state import BoolArray, Snapshot, View

#: Sets that are judged at once over all nodes: enough for arrays to pay, few enough to take a few milliseconds.
_COLUMNS = 1024
#: The most sets tried over all nodes of a question, so that many nodes do not take many times as long.
_MOST_SETS_IN_ALL = 16 * MOST_SETS
#: Sets that are tried on a node however many nodes there are.
_FEWEST_SETS = 64


def preempt(
    snapshot: Snapshot, preemptor: Preemptor, offers: Sequence[Offer], allowed: Sequence[int] = ()
) -> list[Outcome]:
    """Return for each node the cheapest victims, or why there are none.

    `allowed`: disruptions that each PodDisruptionBudget allows, by its number. An offered UID that is not known on the
    node is in no set, because it is always evicted.
    """
    steps = preempting(snapshot, preemptor, offers, allowed)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcomes: list[Outcome] = end.value
            return outcomes


def preempting(
    snapshot: Snapshot, preemptor: Preemptor, offers: Sequence[Offer], allowed: Sequence[int] = ()
) -> Generator[None, None, list[Outcome]]:
    """Do the same step by step: a node with many pods takes some tenths of a second. Yields where others may run."""
    most = max(_FEWEST_SETS, min(MOST_SETS, _MOST_SETS_IN_ALL // max(len(offers), 1)))
    searches = [NodeSearch(snapshot, preemptor, offer, allowed, most) for offer in offers]
    waiting = [node for node in searches if node.begin()]
    while waiting:
        together: list[NodeSearch] = []
        columns = 0
        while waiting and (not together or columns + len(waiting[-1].asked) <= _COLUMNS):
            together.append(waiting.pop())
            columns += len(together[-1].asked)
        waiting += _judged(snapshot, preemptor, together)
        if waiting:
            yield
    return [node.outcome for node in searches]


def _judged(snapshot: Snapshot, preemptor: Preemptor, nodes: Sequence[NodeSearch]) -> list[NodeSearch]:
    """Answer these nodes' questions; returns the nodes that have more."""
    view = without(snapshot, [(node.removal, node.masks(), node.also_gone) for node in nodes])
    fits = _fits(snapshot, preemptor, nodes, view).tolist()
    is_open = node_open(view, Demand.of(preemptor.pod), snapshot).tolist()
    going_on, start = [], 0
    for node in nodes:
        end = start + len(node.asked)
        if node.tell(fits[start:end], only_cards=preemptor.quota is None and is_open[start]):
            going_on.append(node)
        start = end
    return going_on


def _fits(snapshot: Snapshot, preemptor: Preemptor, nodes: Sequence[NodeSearch], view: View) -> BoolArray:
    """Return (column,): whether the pod fits on the cards, and within its quota, once a set is gone."""
    if preemptor.quota is None:
        return feasible_on(view, preemptor.pod, snapshot)
    # What a quota leaves depends on which pods are gone; few sets leave different amounts.
    columns_of: dict[Budget | None, list[int]] = {}
    for column, gone in enumerate(node.records(chosen) for node in nodes for chosen in node.asked):
        check = preemptor.quota(gone)
        if not check.exceeded:
            columns_of.setdefault(check.budget, []).append(column)
    fits = np.zeros(view.columns, np.bool_)
    for budget, columns in columns_of.items():
        own = np.array(columns)
        fits[own] = feasible_on(view.take(own), preemptor.pod, snapshot, budget)
    return fits
