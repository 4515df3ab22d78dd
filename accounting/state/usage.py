"""Sums over a namespace's pods from which the usage of any quota follows.

Why it exists: a quota counts some of a namespace's pods, may change at any moment, and may be made long after its pods.
So nothing is kept per quota: amounts are summed by namespace and pod scope, of which there are few, and what a quota
has used is the sum over the scopes that it selects. It must not know limits. Invariants: the sums are those over the
pods that were added and not taken away; a scope without pods leaves nothing behind.
"""

from collections import defaultdict
from collections.abc import Iterable

from accounting.quota_scope import PodScope, Selector, selects

#: Names and amounts: the dimensions of a total, or resource names.
Amounts = Iterable[tuple[str, int]]

_DIMENSIONS = "count", "memory", "cores"


def charge_names(vendor: int) -> tuple[str, ...]:
    """Return the names under which a total of a vendor's cards is summed, by the vendor's number."""
    return _DIMENSIONS if vendor == 0 else tuple(f"{vendor}/{name}" for name in _DIMENSIONS)


class _Sums:
    """The sums over the pods of one namespace and scope."""

    __slots__ = ("amounts", "pods")

    def __init__(self) -> None:
        self.pods = 0
        self.amounts: defaultdict[str, int] = defaultdict(int)


class NamespaceSums:
    """Amounts by namespace and pod scope."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[PodScope, _Sums]] = {}

    def add(self, namespace: str, scope: PodScope, amounts: Amounts) -> None:
        """Count one pod."""
        scopes = self._sums.get(namespace)
        if scopes is None:
            scopes = self._sums[namespace] = {}
        sums = scopes.get(scope)
        if sums is None:
            sums = scopes[scope] = _Sums()
        sums.pods += 1
        known = sums.amounts
        for name, amount in amounts:
            known[name] += amount

    def take(self, namespace: str, scope: PodScope, amounts: Amounts) -> None:
        """Take away one pod, with the amounts with which it was counted."""
        scopes = self._sums[namespace]
        sums = scopes[scope]
        sums.pods -= 1
        if sums.pods:
            for name, amount in amounts:
                sums.amounts[name] -= amount
            return
        del scopes[scope]
        if not scopes:
            del self._sums[namespace]

    def of(self, namespace: str, selector: Selector = ()) -> dict[str, int]:
        """Return the sums over the namespace's pods that a selector takes; a name that is missing sums to 0."""
        found: dict[str, int] = {}
        for scope, sums in self._sums.get(namespace, {}).items():
            if not selector or selects(selector, scope):
                for name, amount in sums.amounts.items():
                    found[name] = found.get(name, 0) + amount
        return found

    def by_scope(self, namespace: str) -> dict[tuple[PodScope, str], int]:
        """Return the namespace's sums by pod scope and name."""
        return {
            (scope, name): amount
            for scope, sums in self._sums.get(namespace, {}).items()
            for name, amount in sums.amounts.items()
        }

    def namespaces(self) -> list[str]:
        """Return the namespaces with pods, sorted."""
        return sorted(self._sums)
