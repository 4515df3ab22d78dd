"""Namespace quotas on managed resources.

Why it exists: a namespace's limit and what its pods are charged must be compared in one unit. It must not know pods;
it gets totals. Invariants: the tightest of several quota objects wins, a missing limit means unlimited, 0 blocks all,
and a change of a quota object replaces its limits in one step. Source: HAMi v2.10 reads `limits.<memory>` and
`limits.<cores>`; Kubernetes itself only accepts `requests.<name>` for extended resources, so both spellings count
here. Quotas with scopes are kept but not enforced.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from accounting.errors import QuantityError
from accounting.holdings import Total
from accounting.quantity import parse_quantity
from accounting.status import Problem, ProblemCode
from accounting.vendor import Vendor

_PREFIXES = ("limits.", "requests.")


@dataclass(frozen=True, slots=True)
class Quota:
    """One ResourceQuota object's limits on managed resources, by resource name; memory in MiB."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    scoped: bool = False
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Exceeded:
    """One limit that a pod would pass."""

    resource: str
    hard: int
    used: int
    added: int

    def __str__(self) -> str:
        return f"{self.resource}: hard {self.hard}, used {self.used}, the pod adds {self.added}"


def read_quota(namespace: str, name: str, hard: Mapping[str, object], vendor: Vendor, *, scoped: bool = False) -> Quota:
    """Read a ResourceQuota's spec.hard. A key of the vendor's domain that limits nothing managed is a problem."""
    factor = {vendor.memory_resource: max(vendor.memory_factor, 1)}
    managed = (vendor.count_resource, vendor.memory_resource, vendor.cores_resource)
    domain = vendor.count_resource.partition("/")[0] + "/"
    limits: dict[str, int] = {}
    problems = []
    for key, raw in sorted(hard.items()):
        resource = next((key.removeprefix(prefix) for prefix in _PREFIXES if key.startswith(prefix)), key)
        if not resource.startswith(domain):
            continue
        limit = _limit(raw)
        if resource == key or resource not in managed or limit is None:
            why = "is not a quantity" if limit is None else "names nothing that is managed, so it limits nothing"
            problems.append(_problem(namespace, name, f"spec.hard[{key}]: {raw}: {why}"))
            continue
        limit *= factor.get(resource, 1)
        limits[resource] = min(limit, limits.get(resource, limit))
    return Quota(namespace, name, limits, scoped, tuple(problems))


class QuotaTable:
    """All quota objects, and the limits that follow from them."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._quotas: dict[tuple[str, str], Quota] = {}
        self._of_namespace: dict[str, dict[str, Quota]] = {}

    def put(self, quota: Quota) -> None:
        """Record a quota object as it is now."""
        self._quotas[quota.namespace, quota.name] = quota
        self._of_namespace.setdefault(quota.namespace, {})[quota.name] = quota

    def remove(self, namespace: str, name: str) -> None:
        """Record that a quota object is gone."""
        if self._quotas.pop((namespace, name), None) is not None:
            del self._of_namespace[namespace][name]

    def problems(self) -> list[Problem]:
        """Return what is wrong with quota objects."""
        return [problem for key in sorted(self._quotas) for problem in self._quotas[key].problems]

    def limits(self, namespace: str) -> dict[str, int]:
        """Return the tightest limit per resource name, sorted by name."""
        tightest: dict[str, int] = {}
        for quota in self._of_namespace.get(namespace, {}).values():
            if not quota.scoped:
                for resource, limit in quota.hard.items():
                    tightest[resource] = min(limit, tightest.get(resource, limit))
        return dict(sorted(tightest.items()))

    def namespaces(self) -> list[str]:
        """Return the namespaces that have a limit, sorted."""
        return sorted(namespace for namespace in self._of_namespace if self.limits(namespace))

    def exceeded(self, namespace: str, used: Total, added: Total) -> list[Exceeded]:
        """Return the limits that `used` plus `added` would pass; a dimension that adds nothing passes none."""
        found = []
        for resource, hard in self.limits(namespace).items():
            have, more = self.amount(used, resource), self.amount(added, resource)
            if more and have + more > hard:
                found.append(Exceeded(resource, hard, have, more))
        return found

    def amount(self, total: Total, resource: str) -> int:
        """Return a total's number for a managed resource name."""
        vendor = self._vendor
        return {
            vendor.count_resource: total.count,
            vendor.memory_resource: total.memory,
            vendor.cores_resource: total.cores,
        }[resource]


def _limit(raw: object) -> int | None:
    try:
        return parse_quantity(raw).value()
    except QuantityError:
        return None


def _problem(namespace: str, name: str, message: str) -> Problem:
    return Problem(ProblemCode.UNKNOWN_QUOTA_KEY, f"resourcequota {namespace}/{name}", message)
