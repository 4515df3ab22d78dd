"""The fields of PodDisruptionBudget that are read (Kubernetes policy/v1).

It must not interpret values. Invariant: as in `core_v1`.
"""

from extender.wire.core_v1 import Object, ObjectMeta, Strings


class LabelSelectorRequirement(Object):
    """An entry of matchExpressions."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class LabelSelector(Object):
    """A selector of labels."""

    matchLabels: Strings | None = None
    matchExpressions: list[LabelSelectorRequirement] | None = None


class BudgetSpec(Object):
    """spec."""

    selector: LabelSelector | None = None


class BudgetStatus(Object):
    """status."""

    disruptionsAllowed: int | None = None
    disruptedPods: Strings | None = None


class PodDisruptionBudget(Object):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta | None = None
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None
