"""On which of many nodes a pod should find room, and whom that takes.

Why it exists: where kube-scheduler never asks, nobody names nodes, so the cheapest set of all is wanted. It must not
evict. Invariants: of all nodes the answer is the one with the cheapest set, up to the number of nodes that are
searched; where waiting is enough on any of those, nobody has to go; between two steps the state may change, and a node
is judged as it is when its search begins.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from accounting.answers.preemption.bound import Ranked
from accounting.answers.preemption.candidates import Preemptor
from accounting.answers.preemption.node_search import NoVictims, Offer
from accounting.answers.preemption.preempt import preempting
from accounting.answers.preemption.ranking import rank
from accounting.answers.preemption.search import Victims
from accounting.answers.preemption.table import VictimTable
from accounting.state import Rows, Snapshot

#: What is searched in one step, in the measure of `_effort`; the first nodes mostly have the answer.
_AT_FIRST, _AT_ONCE = 2, 8
#: What is searched at most: 64 nodes where two pods have to go, of which one mostly does.
MOST_EFFORT = 512
#: Nodes that are searched at most as long as none has an answer.
MOST_NODES = 96


class Chosen(NamedTuple):
    """The cheapest set of all."""

    node: str
    victims: Victims
    limited: bool = False
    """Other nodes might have a cheaper one: too many came into question."""


Look = Callable[[Sequence[int]], tuple[Snapshot, list[Offer]]]
"""Returns the state as it is now, and what is on those of these rows that are known."""

#: Yields where something else may run.
Choice = Generator[None, None, Chosen | NoVictims]


def choose(
    snapshot: Snapshot,
    preemptor: Preemptor,
    rows: Rows,
    table: VictimTable,
    look: Look,
    allowed: Sequence[int] = (),
    most_effort: int = MOST_EFFORT,
) -> Choice:
    """Return the node and the victims, or why there are none.

    `table`: the pods on all nodes, which must not change meanwhile. `allowed`: disruptions that each
    PodDisruptionBudget allows, by its number.
    """
    if not preemptor.preempts:
        return NoVictims.NOT_ENOUGH
    best: Chosen | None = None
    batch: list[int] = []
    spent, at_once, effort, nodes = 0, _AT_FIRST, 0, 0
    for ranked in rank(snapshot, preemptor, table, allowed, rows):
        if ranked is None:
            yield
            continue
        if best is not None and ranked.bound is not None and ranked.bound.is_above(best.victims.cost):
            break
        spent, effort, nodes = spent + _effort(ranked), effort + _effort(ranked), nodes + 1
        # Until one node has an answer the search goes on, so that many victims are no reason to find none.
        if spent > most_effort and (best is not None or nodes > MOST_NODES):
            best = best and best._replace(limited=True)
            break
        batch.append(ranked.row)
        if effort < at_once:
            continue
        yield
        found = yield from _searched(preemptor, batch, look, allowed)
        if found is NoVictims.WAIT:
            return NoVictims.WAIT
        at_once, batch, effort = _AT_ONCE, [], 0
        best = _cheaper(best, found)
    yield
    found = yield from _searched(preemptor, batch, look, allowed)
    if found is NoVictims.WAIT:
        return NoVictims.WAIT
    return _cheaper(best, found) or NoVictims.NOT_ENOUGH


def _effort(ranked: Ranked) -> int:
    """Return how long it takes to search a node, in the time for one where one pod is enough."""
    return 1 if ranked.bound is None else ranked.bound.number**3


def _cheaper(best: Chosen | None, found: Chosen | NoVictims) -> Chosen | None:
    if isinstance(found, NoVictims) or (best is not None and best.victims.cost <= found.victims.cost):
        return best
    return found._replace(limited=best is not None and best.limited)


def _searched(preemptor: Preemptor, rows: Sequence[int], look: Look, allowed: Sequence[int]) -> Choice:
    """Return the cheapest set on some nodes; WAIT if on one of them waiting is enough."""
    if not rows:
        return NoVictims.NOT_ENOUGH
    now, offers = look(rows)
    best: Chosen | None = None
    outcomes = yield from preempting(now, preemptor, offers, allowed)
    for offer, outcome in zip(offers, outcomes, strict=True):
        if outcome is NoVictims.WAIT:
            return NoVictims.WAIT
        if isinstance(outcome, Victims):
            best = _cheaper(best, Chosen(offer.occupied.node, outcome))
    return best or NoVictims.NOT_ENOUGH
