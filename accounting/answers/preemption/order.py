"""What a set of victims costs: the order in which sets are compared.

Why it exists: within one node and between nodes the cheapest set is wanted, and it must be the same one every time. It
must not know whether a set helps. Invariants: the order is full; a set that contains another one costs more.
Source: kube-scheduler's pickOneNodeForPreemption, with what is freed beyond the need before the start times.
"""

from collections.abc import Sequence
from typing import NamedTuple

from accounting.answers.preemption.candidates import NodePod, importance
from accounting.pod_info import NOT_STARTED

#: Added to every priority in the sum, so that a set is never cheaper for a further pod of negative priority.
OFFSET = 2**31


class Cost(NamedTuple):
    """What a set of victims costs; the smallest is best."""

    violations: int
    """Victims that a PodDisruptionBudget does not allow to be evicted."""
    highest: int
    """The highest priority."""
    total: int
    """The sum of priorities, each from the lowest one that there is."""
    number: int
    slots: int
    """What the victims free; the need is the preemptor's own, so who frees less frees less beyond it."""
    memory: int
    cores: int
    started: int
    """Start of the earliest of those with the highest priority, negated: the latest is cheapest."""
    uids: tuple[str, ...]


NOTHING = Cost(0, -OFFSET, 0, 0, 0, 0, 0, -NOT_STARTED, ())


def cost_of(victims: Sequence[NodePod], allowed: Sequence[int]) -> Cost:
    """Return what a set costs. `allowed`: disruptions that each budget allows, by its number."""
    if not victims:
        return NOTHING
    highest = max(pod.priority for pod in victims)
    uses = [use for pod in victims for use in pod.record.held]
    return Cost(
        violations(victims, allowed),
        highest,
        sum(pod.priority + OFFSET for pod in victims),
        len(victims),
        sum(use.slots for use in uses),
        sum(use.memory for use in uses),
        sum(use.cores for use in uses),
        -min(pod.started for pod in victims if pod.priority == highest),
        tuple(sorted(pod.uid for pod in victims)),
    )


def violations(victims: Sequence[NodePod], allowed: Sequence[int]) -> int:
    """Return how many of the victims the budgets do not allow, the most important ones evicted first.

    Source: kube-scheduler's filterPodsWithPDBViolation.
    """
    left: dict[int, int] = {}
    found = 0
    for pod in sorted((pod for pod in victims if pod.budgets), key=importance):
        for budget in pod.budgets:
            left[budget] = left.get(budget, allowed[budget]) - 1
        found += any(left[budget] < 0 for budget in pod.budgets)
    return found


def by_importance(victims: Sequence[NodePod]) -> list[NodePod]:
    """Return victims in the order in which kube-scheduler lists them."""
    return sorted(victims, key=importance)
