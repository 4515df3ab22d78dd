"""On which of many nodes a pod should find room, and whom that takes.

Why it exists: where kube-scheduler never asks, nobody names nodes, so the cheapest set of all is wanted. It must not
evict. Invariants: of all nodes the answer is the one with the cheapest set, then by name; where waiting is enough on
any of them, nobody has to go; between two steps the state may change, and each step judges what is then.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from accounting.answers.filter import hopeless
from accounting.answers.preemption.candidates import Preemptor
from accounting.answers.preemption.node_search import NoVictims, Offer
from accounting.answers.preemption.preempt import preempt
from accounting.answers.preemption.search import Victims
from accounting.demand import Demand
from accounting.state import Snapshot

#: Nodes that are searched in one step.
_AT_ONCE = 16


class Chosen(NamedTuple):
    """The cheapest set of all."""

    node: str
    victims: Victims


Look = Callable[[Sequence[str]], tuple[Snapshot, list[Offer]]]
"""Returns the state as it is now, and of these nodes those that are known."""

#: Yields where something else may run.
Choice = Generator[None, None, Chosen | NoVictims]


def choose(
    snapshot: Snapshot, preemptor: Preemptor, nodes: Sequence[str], look: Look, allowed: Sequence[int] = ()
) -> Choice:
    """Return the node and the victims, or why there are none."""
    known = [name for name in nodes if name in snapshot.rows]
    too_small = hopeless(Demand.of(preemptor.pod), snapshot)[snapshot.rows_of(known)].tolist()
    hopeful = sorted(name for name, small in zip(known, too_small, strict=True) if not small)
    best: Chosen | None = None
    for start in range(0, len(hopeful), _AT_ONCE):
        yield
        now, offers = look(hopeful[start : start + _AT_ONCE])
        for each, outcome in zip(offers, preempt(now, preemptor, offers, allowed), strict=True):
            if outcome is NoVictims.WAIT:
                return NoVictims.WAIT
            if isinstance(outcome, Victims) and (best is None or outcome.cost < best.victims.cost):
                best = Chosen(each.occupied.node, outcome)
    return best or NoVictims.NOT_ENOUGH
