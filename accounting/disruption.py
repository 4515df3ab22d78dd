"""PodDisruptionBudgets: which pods they select, and how many evictions they allow now.

Why it exists: victims that a budget does not allow to be evicted come last. It must not evict. Invariants: a budget
selects pods of its own namespace only, an empty selector all of them and none at all nobody (policy/v1); a pod whose
eviction the API server has counted already is under no budget (status.disruptedPods).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
#: Sets of labels for which it is remembered who selects them.
_REMEMBERED = 16_384


class Requirement(NamedTuple):
    """One requirement on a label. `operator`: In, NotIn, Exists or DoesNotExist; any other one selects nothing."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels meets it."""
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        return {"Exists": value is not None, "DoesNotExist": value is None}.get(self.operator, False)


class DisruptionBudget(NamedTuple):
    """One PodDisruptionBudget."""

    namespace: str
    name: str
    selector: tuple[Requirement, ...] | None
    """None selects nothing."""
    allowed: int = 0
    """status.disruptionsAllowed."""
    disrupted: frozenset[str] = frozenset()
    """Names of pods whose eviction is counted in `allowed` already."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether it selects a pod of its namespace."""
        return self.selector is not None and all(each.accepts(labels) for each in self.selector)


class DisruptionBudgets:
    """All budgets."""

    def __init__(self) -> None:
        self.known = True
        """Whether they are known at all; a live extender without the permission to list them does not know."""
        self.version = 0
        """Grows with every change."""
        self.selections = 0
        """Grows when other pods may be under a budget than before."""
        self._numbers: dict[tuple[str, str], int] = {}
        self._budgets: list[DisruptionBudget | None] = []
        self._in_namespace: dict[str, list[int]] = {}
        self._selecting: dict[tuple[str, Labels], tuple[int, ...]] = {}

    def put(self, budget: DisruptionBudget) -> bool:
        """Record a budget as it is now; returns whether that changes anything."""
        key = budget.namespace, budget.name
        number = self._numbers.setdefault(key, len(self._budgets))
        if number == len(self._budgets):
            self._budgets.append(None)
            self._in_namespace.setdefault(budget.namespace, []).append(number)
        known = self._budgets[number]
        if known == budget:
            return False
        if known is None or known.selector != budget.selector:
            self._selecting.clear()
            self.selections += 1
        self._budgets[number] = budget
        self.version += 1
        return True

    def remove(self, namespace: str, name: str) -> bool:
        """Record that a budget is gone; returns whether it was known."""
        number = self._numbers.get((namespace, name))
        if number is None or self._budgets[number] is None:
            return False
        self._budgets[number] = None
        self._selecting.clear()
        self.selections += 1
        self.version += 1
        return True

    @property
    def allowed(self) -> list[int]:
        """The disruptions that each allows, by number."""
        return [0 if budget is None else budget.allowed for budget in self._budgets]

    def names(self) -> Iterable[tuple[str, str]]:
        """Return namespace and name of each."""
        return [(each.namespace, each.name) for each in self._budgets if each is not None]

    def of(self, namespace: str, name: str, labels: Labels) -> tuple[int, ...]:
        """Return the numbers of the budgets that a pod is under."""
        if namespace not in self._in_namespace:
            return ()
        key = namespace, labels
        found = self._selecting.get(key)
        if found is None:
            if len(self._selecting) >= _REMEMBERED:
                self._selecting.clear()
            found = self._selecting[key] = tuple(self._select(namespace, dict(labels)))
        return tuple(number for number in found if not self._has_counted(number, name)) if found else ()

    def _has_counted(self, number: int, name: str) -> bool:
        budget = self._budgets[number]
        return budget is not None and name in budget.disrupted

    def _select(self, namespace: str, labels: Mapping[str, str]) -> Iterable[int]:
        for number in self._in_namespace[namespace]:
            budget = self._budgets[number]
            if budget is not None and budget.selects(labels):
                yield number
