"""The cheapest set of victims on one node.

Why it exists: choosing victims one by one can evict too many, or the wrong ones. Here sets are tried in the order of
their cost, many at a time, until one helps. It must not know arrays; its caller judges the sets. Invariants: within the
number of sets that it may try, it returns the cheapest set that helps; beyond that number it returns a set from which
no pod can be dropped. Both rely on this: a set that helps still helps with more pods, and then costs more.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accounting.answers.preemption.candidates import NodePod, importance
from accounting.answers.preemption.order import Cost, cost_of
from accounting.answers.preemption.victim_sets import Set, Ways

#: The most sets tried on one node; after that it settles for a set from which no pod can be dropped.
MOST_SETS = 4096
#: Sets that are judged together, in the first round and at most. The first few decide most nodes.
_AT_FIRST, _AT_ONCE = 16, 256

#: Yields sets, and is sent whether the pod fits once each of them is gone.
Search = Generator[list[Set], list[bool], "Victims | None"]


class Victims(NamedTuple):
    """The set that was found."""

    pods: tuple[NodePod, ...]
    """The most important first."""
    cost: Cost
    limited: bool = False
    """Whether the search stopped at its bound: no pod of the set can be dropped, but a cheaper set may exist."""


@dataclass(frozen=True, slots=True)
class Question:
    """The candidates, and what matters about them."""

    candidates: tuple[NodePod, ...]
    """The most important first."""
    alike: tuple[object, ...]
    """Per candidate: equal values for candidates that are interchangeable but for their cost."""
    cards: tuple[int, ...] | None
    """Per candidate: the cards that it frees, as bits. None if more than cards is short."""
    most_cards: int
    """The most cards that the pod can use."""
    required: Set = ()
    """Candidates that must be among the victims."""
    allowed: Sequence[int] = ()
    """The disruptions that each budget allows."""
    most_sets: int = MOST_SETS


def search(question: Question) -> Search:
    """Search for the cheapest set that helps; None if not even all candidates together do."""
    everyone = tuple(range(len(question.candidates)))
    if not everyone or not (yield [everyone])[0]:
        return None
    lowest = yield from _lowest_level(question)
    found = yield from _in_order(question, lowest)
    if found is not None:
        return found
    spared = yield from _spare(question, _up_to(question, lowest))
    return _victims(question, spared, limited=True)


def _victims(question: Question, chosen: Set, *, limited: bool = False) -> Victims:
    pods = tuple(sorted((question.candidates[at] for at in chosen), key=importance))
    return Victims(pods, cost_of(pods, question.allowed), limited)


def _in_order(question: Question, lowest: int) -> Search:
    """Try sets in the order of cost; None if too many were tried."""
    ways = Ways(question.candidates, question.alike, question.allowed, question.required, lowest)
    if question.cards is not None:
        ways.keep_to_cards(question.cards, question.most_cards)
    tried, at_once = 0, _AT_FIRST
    while tried < question.most_sets:
        batch = ways.next(min(at_once, question.most_sets - tried))
        if not batch:
            return None
        helps = yield batch
        for chosen, good in zip(batch, helps, strict=True):
            if good:
                return _victims(question, chosen)
        tried, at_once = tried + len(batch), min(2 * at_once, _AT_ONCE)
    return None


def _up_to(question: Question, level: int) -> Set:
    pods = question.candidates
    return tuple(at for at, pod in enumerate(pods) if pod.priority <= level or at in question.required)


def _lowest_level(question: Question) -> Generator[list[Set], list[bool], int]:
    """Return the lowest priority such that evicting all candidates up to it helps; every set that helps reaches it."""
    levels = sorted({pod.priority for pod in question.candidates})
    if len(levels) == 1:
        return levels[0]
    helps = yield [_up_to(question, level) for level in levels]
    return next(level for level, good in zip(levels, helps, strict=True) if good)


def _spare(question: Question, chosen: Set) -> Generator[list[Set], list[bool], Set]:
    """Drop pods that need not go: those under a budget first, then the most important (as reprievePod does)."""
    pods = question.candidates
    for at in sorted(chosen, key=lambda at: (not pods[at].budgets, at)):
        if at not in question.required:
            fewer = tuple(other for other in chosen if other != at)
            if (yield [fewer])[0]:
                chosen = fewer
    return chosen
