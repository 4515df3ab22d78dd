"""Evicts pods: a delete that a PodDisruptionBudget may refuse.

It exists because a client that evicts must accept a budget's refusal. It must not recompute budgets, which a controller
does and a test plays. Invariant: as in the real server, an accepted eviction takes one from the budget that selects the
pod and names the pod in it; no budget protects a pod that does not run yet, or is already being deleted.
"""

from tests.apiserver.calls import Call
from tests.apiserver.deletion import Deleted, delete, read_options
from tests.apiserver.registry import Registry
from tests.apiserver.resources import BUDGETS, Json
from tests.apiserver.selectors import matches_labels
from tests.apiserver.statuses import ApiError
from tests.apiserver.stored import Stored

_WITHOUT_BUDGET = ("Succeeded", "Failed", "Pending")


def evict(registry: Registry, call: Call, eviction: Json) -> Deleted:
    """POST of an Eviction. Raises ApiError 400, 404, 409, 429 or 500."""
    name = eviction["metadata"].get("name")
    if name != call.name:
        raise ApiError(400, "name in URL does not match name in Eviction object: BadRequest")
    row, options = registry.get(call), read_options(eviction.get("deleteOptions"), "")
    pod = row.decode()
    budgets = _budgets(registry, row)
    if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in _WITHOUT_BUDGET:
        budgets = []
    if len(budgets) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, why)
    if budgets and options.uid in (None, row.uid):
        _take(registry, budgets[0], row.name)
    return delete(registry, call, options)


def _budgets(registry: Registry, pod: Stored) -> list[Stored]:
    rows = registry.store.tables[BUDGETS].rows
    return [
        row
        for row in rows
        if row.namespace == pod.namespace and matches_labels(row.decode()["spec"].get("selector"), pod.labels)
    ]


def _take(registry: Registry, row: Stored, pod: str) -> None:
    budget = row.decode()
    status = budget.setdefault("status", {})
    if status.get("disruptionsAllowed", 0) <= 0:
        healthy, needed = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {row.name} needs {needed} healthy pods and has {healthy} currently",
        }
        why = "Cannot evict pod as it would violate the pod's disruption budget."
        raise ApiError(429, why, details={"causes": [cause]})
    status["disruptionsAllowed"] -= 1
    status.setdefault("disruptedPods", {})[pod] = registry.timestamp()
    registry.store.put(BUDGETS, budget, row)
