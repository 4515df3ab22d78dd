"""From watched PodDisruptionBudgets to what preemption knows of them.

It must not do I/O. Invariants: budgets count as unknown until a whole list was read, and stay unknown where they may
not be listed; one that does not decode changes nothing else.
"""

import msgspec

from accounting.disruption import DisruptionBudgets
from extender.convert import convert_disruption_budget
from extender.kube.reflector import Change, Taken
from extender.logs import logger
from extender.wire import policy_v1
from extender.wire.shallow import read_with


class BudgetSink:
    """PodDisruptionBudgets by namespace and name."""

    def __init__(self, budgets: DisruptionBudgets) -> None:
        self._budgets = budgets
        self._decoder = msgspec.json.Decoder(policy_v1.PodDisruptionBudget)
        budgets.known = False

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one budget."""
        try:
            wire = read_with(self._decoder, raw)
        except msgspec.DecodeError as error:
            logger().error("poddisruptionbudget does not decode", why=str(error))
            return Taken(None)
        budget = convert_disruption_budget(wire)
        if not budget.name:
            logger().error("poddisruptionbudget without a name")
            return Taken(None)
        if change is Change.DELETED:
            self._budgets.remove(budget.namespace, budget.name)
        else:
            self._budgets.put(budget)
        identity = f"{budget.namespace}/{budget.name}"
        return Taken(identity, wire.metadata.resourceVersion if wire.metadata is not None else None)

    def replaced(self, identities: set[str]) -> None:
        """Drop every budget that a list did not name; from now on budgets count as known."""
        for namespace, name in list(self._budgets.names()):
            if f"{namespace}/{name}" not in identities:
                self._budgets.remove(namespace, name)
        self._budgets.known = True
