"""From PodDisruptionBudgets to accounting values.

It must not do I/O. Invariants: conversion never fails for an object that decodes; an unknown operator selects nothing.
"""

import sys

from accounting.disruption import DisruptionBudget, Requirement
from extender.wire import core_v1, policy_v1


def convert_disruption_budget(wire: policy_v1.PodDisruptionBudget) -> DisruptionBudget:
    """Return which pods a budget selects, and how many evictions it allows now."""
    meta, status = wire.metadata or core_v1.ObjectMeta(), wire.status or policy_v1.BudgetStatus()
    selector = None if wire.spec is None else wire.spec.selector
    return DisruptionBudget(
        sys.intern(meta.namespace or "default"),
        meta.name or "",
        None if selector is None else _requirements(selector),
        max(0, status.disruptionsAllowed or 0),
        frozenset(status.disruptedPods or ()),
    )


def _requirements(selector: policy_v1.LabelSelector) -> tuple[Requirement, ...]:
    labels = sorted((selector.matchLabels or {}).items())
    return (
        *(Requirement(key, "In", (value,)) for key, value in labels),
        *(
            Requirement(each.key or "", each.operator or "", tuple(each.values or ()))
            for each in selector.matchExpressions or ()
        ),
    )
