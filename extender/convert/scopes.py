"""What quota scopes need of a pod, and the scopes of a quota, read from Kubernetes objects.

It must not do I/O. Invariant: the answers are those of the API server, from the same fields. Source: Kubernetes v1.36,
pkg/quota/v1/evaluator/core/pods.go and pkg/apis/core/v1/helper/qos.
"""

from collections.abc import Iterator

from accounting.errors import QuantityError
from accounting.quantity import parse_quantity
from accounting.quota_scope import PodScope, ScopeRequirement, Selector, make_selector, pod_scope
from extender.wire import core_v1, watched

_COMPUTE = ("cpu", "memory")


def scope_of(spec: watched.AnyPodSpec, status: core_v1.PodStatus) -> PodScope:
    """Return the properties by which quotas with scopes select a pod."""
    deadline = spec.activeDeadlineSeconds
    # By position, in the order of `PodScope`: names take twice the time, and every event of a pod comes through here.
    return pod_scope(
        status.qosClass == "BestEffort" if status.qosClass else _is_best_effort(spec),
        deadline is not None and deadline >= 0,
        spec.priorityClassName or "",
        spec.affinity is not None and any(map(_looks_elsewhere, _terms(spec.affinity))),
    )


def selector_of(spec: core_v1.QuotaSpec) -> Selector:
    """Return which pods a quota counts; entries of `scopes` mean the operator Exists."""
    expressions = (spec.scopeSelector.matchExpressions or ()) if spec.scopeSelector is not None else ()
    return make_selector(
        [
            *(ScopeRequirement(scope) for scope in spec.scopes or ()),
            *(ScopeRequirement(e.scopeName or "", e.operator or "", tuple(e.values or ())) for e in expressions),
        ]
    )


def _is_best_effort(spec: watched.AnyPodSpec) -> bool:
    """Whether nothing requests or limits cpu or memory; pod-level resources, if any, count alone."""
    if spec.resources is not None:
        return not _has_compute(spec.resources)
    containers = (*(spec.initContainers or ()), *(spec.containers or ()))
    return not any(_has_compute(watched.resources_of(each)) for each in containers)


def _has_compute(resources: core_v1.Resources | None) -> bool:
    if resources is None:
        return False
    return any(
        _is_positive(quantities[name])
        for quantities in (resources.limits or {}, resources.requests or {})
        for name in _COMPUTE
        if name in quantities
    )


def _is_positive(raw: object) -> bool:
    try:
        return parse_quantity(raw).nano > 0
    except QuantityError:
        return False


def _terms(affinity: core_v1.Affinity) -> Iterator[core_v1.AffinityTerm | None]:
    for each in (affinity.podAffinity, affinity.podAntiAffinity):
        if each is not None:
            yield from each.requiredDuringSchedulingIgnoredDuringExecution or ()
            for weighted in each.preferredDuringSchedulingIgnoredDuringExecution or ():
                yield weighted.podAffinityTerm


def _looks_elsewhere(term: core_v1.AffinityTerm | None) -> bool:
    return term is not None and (bool(term.namespaces) or term.namespaceSelector is not None)
