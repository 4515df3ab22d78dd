"""The slow reference of victims: every set of pods of one node is tried, in plain Python.

Why it exists: the fast search leaves sets out and judges the rest in arrays; here nothing is left out, and whether the
pod fits is what `fit` says of the pods that stay. It must not know more of a pod than a test tells it. Invariant: of
all sets that help it returns the one that costs least. Only tests and benchmarks may use it.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

from accounting.node import Node
from accounting.pod import Pod
from accounting.reference.fit import fit
from accounting.reference.state import Amounts, add, card_holdings, node_state
from accounting.status import Code

_LOWEST = -(2**31)


class Resident(NamedTuple):
    """A pod on the node."""

    pod: Pod
    priority: int = 0
    started: int = 0
    protected: bool = False
    leaving: bool = False
    budgets: tuple[int, ...] = ()
    requests: Mapping[str, int] | None = None
    """What kube-scheduler counts; None: not known, or more than that decides."""


class Found(NamedTuple):
    """What is to be evicted."""

    uids: tuple[str, ...]
    violations: int


def preempt(
    node: Node,
    residents: Sequence[Resident],
    pod: Pod,
    priority: int,
    offered: frozenset[str],
    allowed: Sequence[int],
    room: tuple[Mapping[str, int] | None, Mapping[str, int] | None] = (None, None),
) -> Found | str:
    """Return the cheapest set of victims on a node; "wait" if none is needed, "no" if none helps.

    `offered`: UIDs of pods on the node. `room`: what the node has allocatable and what the pod requests, if known.
    """
    best = _cheapest(node, residents, pod, priority, offered, allowed, room)
    if not best:
        return "no" if best is None else "wait"
    return Found(tuple(sorted(one.pod.uid for one in best)), violations(best, allowed))


def choose(
    nodes: Sequence[tuple[Node, Sequence[Resident]]], pod: Pod, priority: int, allowed: Sequence[int]
) -> tuple[str, Found] | str:
    """Return the node with the cheapest set of all, and the set; "wait" if on some node none is needed, else "no"."""
    found: list[tuple[tuple[object, ...], str, Found]] = []
    for node, residents in nodes:
        best = _cheapest(node, residents, pod, priority, frozenset(), allowed, (None, None))
        if best is None:
            continue
        if not best:
            return "wait"
        uids = tuple(sorted(one.pod.uid for one in best))
        found.append((_cost(best, allowed), node.name, Found(uids, violations(best, allowed))))
    return min(found)[1:] if found else "no"


def _cheapest(
    node: Node,
    residents: Sequence[Resident],
    pod: Pod,
    priority: int,
    offered: frozenset[str],
    allowed: Sequence[int],
    room: tuple[Mapping[str, int] | None, Mapping[str, int] | None],
) -> tuple[Resident, ...] | None:
    """Return the cheapest set that helps; None if none does."""
    may_go = [one for one in residents if one.priority < priority and not one.protected and not one.leaving]
    every = chain.from_iterable(combinations(may_go, size) for size in range(len(may_go) + 1))
    helping = [chosen for chosen in every if _helps(node, residents, pod, chosen, offered, room)]
    return min(helping, key=lambda chosen: _cost(chosen, allowed), default=None)


def _helps(
    node: Node,
    residents: Sequence[Resident],
    pod: Pod,
    chosen: Sequence[Resident],
    offered: frozenset[str],
    room: tuple[Mapping[str, int] | None, Mapping[str, int] | None],
) -> bool:
    """Whether the pod fits without these and those that leave, and kube-scheduler will not miss an offered one."""
    staying = [one for one in residents if one not in chosen]
    if isinstance(fit(node_state(node, [one.pod for one in staying if not one.leaving]), pod), Code):
        return False
    missed = [one for one in staying if one.pod.uid in offered and not one.leaving]
    return not missed or _has_room(residents, staying, room)


def _has_room(
    residents: Sequence[Resident],
    staying: Sequence[Resident],
    room: tuple[Mapping[str, int] | None, Mapping[str, int] | None],
) -> bool:
    allocatable, requested = room
    if allocatable is None or requested is None or any(one.requests is None for one in residents):
        return False
    asked = {**requested, "pods": 1}
    return all(
        sum({**(one.requests or {}), "pods": 1}.get(name, 0) for one in staying) + amount <= allocatable.get(name, 0)
        for name, amount in asked.items()
        if amount
    )


def _cost(chosen: Sequence[Resident], allowed: Sequence[int]) -> tuple[object, ...]:
    if not chosen:
        return ()
    highest = max(one.priority for one in chosen)
    freed = add(*(of.held for one in chosen for of in card_holdings(one.pod).values()), Amounts())
    return (
        violations(chosen, allowed),
        highest,
        sum(one.priority - _LOWEST for one in chosen),
        len(chosen),
        *freed,
        -min(one.started for one in chosen if one.priority == highest),
        tuple(sorted(one.pod.uid for one in chosen)),
    )


def violations(chosen: Sequence[Resident], allowed: Sequence[int]) -> int:
    """Return how many of these go beyond what their budgets allow, the most important ones first."""
    left, found = list(allowed), 0
    for one in sorted(chosen, key=lambda one: (-one.priority, one.started, one.pod.uid)):
        for budget in one.budgets:
            left[budget] -= 1
        found += any(left[budget] < 0 for budget in one.budgets)
    return found
