"""The cost of a set of victims: the order in which sets are compared.

Why it exists: the cheapest set is wanted, within one node and between nodes, and it must be the same one every time. It
must not know whether a set helps. Invariants: the order is full; a set that contains another one costs more. Source:
kube-scheduler's pickOneNodeForPreemption, with the freed amounts compared before the start times.
"""

from collections.abc import Sequence
from typing import NamedTuple

from accounting.answers.preemption.candidates import NodePod, importance
from accounting.pod_info import NOT_STARTED

#: Added to every priority in the sum, so that a set is never cheaper for a further pod of negative priority.
OFFSET = 2**31


class Cost(NamedTuple):
    """The cost of a set of victims; the smallest is best."""

    violations: int
    """The number of victims that a PodDisruptionBudget protects."""
    highest: int
    """The highest priority."""
    total: int
    """The sum of priorities, each counted from the lowest int32."""
    number: int
    slots: int
    """What the victims free. The preemptor's need is the same for all sets, so less means less freed in excess."""
    memory: int
    cores: int
    started: int
    """The earliest start among the victims of the highest priority, negated: the latest is cheapest."""
    uids: tuple[str, ...]


NOTHING = Cost(0, -OFFSET, 0, 0, 0, 0, 0, -NOT_STARTED, ())


def cost_of(victims: Sequence[NodePod], allowed: Sequence[int]) -> Cost:
    """Return the cost of a set. `allowed`: the disruptions that each budget allows, by its number."""
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
    """Return how many victims the budgets do not allow, if the most important ones are evicted first.

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
