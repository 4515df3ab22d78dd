"""Which pods a ResourceQuota with scopes counts.

Why it exists: `scopes` and `scopeSelector` narrow a quota to some of a namespace's pods, by four facts of a pod that
have nothing to do with cards. It must not know quantities. Invariants: all requirements of a selector must hold; the
empty selector takes every pod; a requirement that cannot be read matches none, like a scope that the API server does
not know. Source: Kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go (podMatchesScopeFunc) and
pkg/apis/core/validation (validateScopedResourceSelectorRequirement).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

BEST_EFFORT, NOT_BEST_EFFORT = "BestEffort", "NotBestEffort"
TERMINATING, NOT_TERMINATING = "Terminating", "NotTerminating"
PRIORITY_CLASS = "PriorityClass"
CROSS_NAMESPACE_POD_AFFINITY = "CrossNamespacePodAffinity"
_EXISTS, _DOES_NOT_EXIST, _IN, _NOT_IN = "Exists", "DoesNotExist", "In", "NotIn"
_SCOPES = frozenset(
    (BEST_EFFORT, NOT_BEST_EFFORT, TERMINATING, NOT_TERMINATING, PRIORITY_CLASS, CROSS_NAMESPACE_POD_AFFINITY)
)
_OPERATORS = frozenset((_EXISTS, _DOES_NOT_EXIST, _IN, _NOT_IN))


class PodScope(NamedTuple):
    """What a quota's scopes ask of a pod."""

    best_effort: bool = False
    """Its QoS class is BestEffort: no container asks for or limits cpu or memory. Cards do not count for it."""
    terminating: bool = False
    """It has an activeDeadlineSeconds; a deletionTimestamp has nothing to do with it."""
    priority_class: str = ""
    cross_namespace_affinity: bool = False
    """Some pod (anti-)affinity term names namespaces or a namespaceSelector."""


#: Equal scopes are one object: a cluster has few of them and many pods.
pod_scope = lru_cache(maxsize=4_096)(PodScope)


class ScopeRequirement(NamedTuple):
    """One requirement of a selector: a scope, an operator, and values for In and NotIn."""

    scope: str
    operator: str = _EXISTS
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == _EXISTS:
            return self.scope
        return " ".join((self.scope, self.operator, ",".join(self.values))).rstrip()

    @property
    def unreadable(self) -> str:
        """Why it matches no pod at all; empty if the API server would accept it."""
        if self.scope not in _SCOPES:
            return "is no scope of pods"
        if self.operator not in _OPERATORS:
            return "must have the operator In, NotIn, Exists or DoesNotExist"
        if self.scope != PRIORITY_CLASS and self.operator != _EXISTS:
            return f"{self.scope} goes with the operator Exists only"
        if bool(self.values) != (self.operator in (_IN, _NOT_IN)):
            return f"{self.operator} {'takes no values' if self.values else 'needs values'}"
        return ""

    def takes(self, pod: PodScope) -> bool:
        """Whether it holds for a pod. NotIn holds for a pod without a priority class, as in a label selector."""
        if self.unreadable:
            return False
        if self.scope == PRIORITY_CLASS:
            return self._takes_priority_class(pod.priority_class)
        return {
            BEST_EFFORT: pod.best_effort,
            NOT_BEST_EFFORT: not pod.best_effort,
            TERMINATING: pod.terminating,
            NOT_TERMINATING: not pod.terminating,
            CROSS_NAMESPACE_POD_AFFINITY: pod.cross_namespace_affinity,
        }[self.scope]

    def _takes_priority_class(self, name: str) -> bool:
        if self.operator == _EXISTS:
            return bool(name)
        if self.operator == _DOES_NOT_EXIST:
            return not name
        return (name in self.values) == (self.operator == _IN)


#: All of these must hold; sorted, each once.
Selector = tuple[ScopeRequirement, ...]


@lru_cache(maxsize=16_384)
def selects(selector: Selector, pod: PodScope) -> bool:
    """Whether a quota with this selector counts a pod."""
    return all(requirement.takes(pod) for requirement in selector)


def make_selector(requirements: Iterable[ScopeRequirement]) -> Selector:
    """Return the selector of these requirements, in any order."""
    return tuple(sorted({each._replace(values=tuple(sorted(set(each.values)))) for each in requirements}))
