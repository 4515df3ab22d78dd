"""Namespace quotas on managed resources: what they limit, and whether a pod would pass a limit.

Why it exists: a namespace's limit and what its pods are charged must be compared in one unit. It keeps no usage;
callers pass it in. Invariants: of several quota objects with the same scopes the tightest wins, a missing limit means
unlimited, 0 blocks every pod that asks for the resource, and a changed object replaces its limits in one step.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from accounting.demand import Demand
from accounting.holdings import Total, least_total
from accounting.mig_profiles import MIG_MODE
from accounting.pod import Pod
from accounting.quota.objects import Quota, managed_resources
from accounting.quota_scope import Selector, selects
from accounting.selection import Selection
from accounting.status import Problem, ProblemCode
from accounting.vendor import Vendor


class Limit(NamedTuple):
    """The tightest limit on one resource among a namespace's quotas with the same selector."""

    namespace: str
    quota: str
    """The name of the object that sets it; of equals the first by name."""
    resource: str
    hard: int
    selector: Selector
    enforced_by_api: bool
    """Whether the API server enforces a limit on the resource for the same pods, by its own charge."""


class Exceeded(NamedTuple):
    """One limit that a pod would pass, or that is passed already."""

    limit: Limit
    used: int
    added: int
    at_least: bool = False
    """Part of it is known only on a card; `added` is the least that it can be."""

    @property
    def resource(self) -> str:
        """The resource's name."""
        return self.limit.resource

    @property
    def hard(self) -> int:
        """The limit."""
        return self.limit.hard

    def __str__(self) -> str:
        least = "at least " if self.at_least else ""
        return f"{limit_text(self.limit, self.used)}, the pod adds {least}{self.added}"


def limit_text(limit: Limit, used: int) -> str:
    """Return a limit and what is used of it, with the name of the quota object."""
    scopes = f" ({', '.join(map(str, limit.selector))})" if limit.selector else ""
    return f"quota {limit.namespace}/{limit.quota}{scopes}: {limit.resource}: hard {limit.hard}, used {used}"


class Left(NamedTuple):
    """What the tightest limit on a resource leaves."""

    most: int
    """The most that the pod's total.peak may be."""
    limit: Limit
    used: int


class Budget(NamedTuple):
    """What a namespace's quotas leave for a pod of whose total a part is known only on its cards."""

    vendor: str
    """Key of the vendor whose cards' memory and cores it is."""
    memory: Left | None = None
    """Of memory, in MiB; None: not limited, or known already."""
    cores: Left | None = None
    """Of cores in percent of a card. Only an instance of a card in MIG mode has other cores than those asked."""
    sized: bool = True
    """The memory depends on shared cards too: percentages and whole cards. Else it does only in MIG mode."""
    further: "tuple[Budget, ...]" = ()
    """The budgets of other vendors' cards."""

    def of_vendor(self, vendor: str) -> "Budget | None":
        """Return the budget for one vendor's cards."""
        return next((each for each in (self, *self.further) if each.vendor == vendor), None)

    @property
    def mib_of_shared_cards(self) -> int | None:
        """The most MiB of shared cards. None: nothing depends on the choice, because rows have what is asked."""
        return None if self.memory is None or not self.sized else self.memory.most

    @property
    def most(self) -> tuple[int | None, int | None]:
        """The most MiB and the most cores of any cards; None: not limited. What adds nothing passes no limit."""
        memory, cores = (None if left is None else max(left.most, 0) for left in (self.memory, self.cores))
        return memory, cores


class QuotaCheck(NamedTuple):
    """What a namespace's quotas say of one pod: the limits that it would pass wherever it goes, and what is left."""

    exceeded: tuple[Exceeded, ...] = ()
    budget: Budget | None = None
    """For a pod whose cards decide how much it adds, under a limit on that; whether it keeps it, they decide."""


UNLIMITED = QuotaCheck()


class QuotaTable:
    """All quota objects, and the limits that follow from them."""

    def __init__(self, *vendors: Vendor) -> None:
        self._of_resource = {name: vendor for vendor in vendors for name in managed_resources(vendor) if name}
        self._first = vendors[0]
        self._of_namespace: dict[str, dict[str, Quota]] = {}
        self._limits: dict[str, tuple[Limit, ...]] = {}
        """By namespace; only those with a limit."""
        self._stale: set[str] = set()
        """Namespaces whose limits are worked out when they are asked for."""

    def put(self, quota: Quota) -> bool:
        """Record a quota object as it is now; returns whether that changes anything, as its status does not."""
        quotas = self._of_namespace.setdefault(quota.namespace, {})
        if quotas.get(quota.name) == quota:
            return False
        quotas[quota.name] = quota
        self._stale.add(quota.namespace)
        return True

    def remove(self, namespace: str, name: str) -> bool:
        """Record that a quota object is gone; returns whether it was known."""
        if self._of_namespace.get(namespace, {}).pop(name, None) is None:
            return False
        self._stale.add(namespace)
        return True

    def problems(self) -> list[Problem]:
        """Return what is wrong with quota objects."""
        return [
            problem
            for _, quotas in sorted(self._of_namespace.items())
            for _, quota in sorted(quotas.items())
            for problem in quota.problems
        ]

    def limits_of(self, namespace: str) -> tuple[Limit, ...]:
        """Return the limits of a namespace, those without scopes first, by selector and resource."""
        if namespace in self._stale:
            self._renew(namespace)
        return self._limits.get(namespace, ())

    def limits(self, namespace: str) -> dict[str, int]:
        """Return the limits by text: the resource, and the scopes if there are any."""
        return {
            f"{limit.resource} ({', '.join(map(str, limit.selector))})"
            if limit.selector
            else limit.resource: limit.hard
            for limit in self.limits_of(namespace)
        }

    def namespaces(self) -> list[str]:
        """Return the namespaces that have a limit, sorted."""
        for namespace in sorted(self._stale):
            self._renew(namespace)
        return sorted(self._limits)

    def check(self, pod: Pod, used: Callable[..., Total], *, mig: bool = False) -> QuotaCheck:
        """Return which limits of its namespace a pod would pass, in its true positions, and what is left for it.

        `used`: what the namespace's other pods that a selector takes are charged for the first vendor's cards, or with
        a vendor's key as second argument for that one's. A dimension that adds nothing passes
        no limit. Memory that depends on the card counts at least 1 MiB, so that an exhausted limit blocks it.
        `mig`: there may be cards in MIG mode, whose instances have at least the memory and the cores that are asked.
        """
        limits = self.limits_of(pod.namespace)
        if not limits:
            return UNLIMITED
        parts = {part.selection.vendor: part for part in Demand.of(pod).parts}
        least_of = {key: least_total(part.containers) for key, part in parts.items()}
        exceeded, left = [], dict[str, dict[str, Left]]()
        for limit in limits:
            vendor = self._of_resource[limit.resource]
            if vendor.key not in least_of or not selects(limit.selector, pod.scope):
                continue
            least, certain = least_of[vendor.key]
            have = self.amount(self.used_of(limit, used, limit.selector), limit.resource)
            more = self.amount(least, limit.resource)
            at_least = not certain and limit.resource == vendor.memory_resource
            if more and have + more > limit.hard:
                exceeded.append(Exceeded(limit, have, more, at_least))
            elif at_least or (mig and limit.resource in instance_resources(vendor, parts[vendor.key].selection)):
                own, tightest = left.setdefault(vendor.key, {}), Left(limit.hard - have, limit, have)
                own[limit.resource] = min(own.get(limit.resource, tightest), tightest, key=lambda each: each.most)
        if exceeded or not left:
            return QuotaCheck(tuple(exceeded))
        first, *others = (self._budget(key, own, certain=least_of[key][1]) for key, own in left.items())
        return QuotaCheck(budget=first._replace(further=tuple(others)))

    def _budget(self, key: str, left: dict[str, Left], *, certain: bool) -> Budget:
        vendor = next(each for each in self._of_resource.values() if each.key == key)
        return Budget(key, left.get(vendor.memory_resource), left.get(vendor.cores_resource), not certain)

    def used_of(self, limit: Limit, used: Callable[..., Total], *arguments: object) -> Total:
        """Return what is used of the cards that a limit is about. `used` is told their vendor, if not the first."""
        vendor = self._of_resource[limit.resource]
        return used(*arguments) if vendor == self._first else used(*arguments, vendor.key)

    def passed(self, used: Callable[..., Total]) -> list[Exceeded]:
        """Return the limits below what is used, after a peak came back or the limit was lowered. Nothing is evicted."""
        return [
            Exceeded(limit, have, 0)
            for namespace in self.namespaces()
            for limit in self._limits[namespace]
            if (have := self.amount(self.used_of(limit, used, namespace, limit.selector), limit.resource)) > limit.hard
        ]

    def amount(self, total: Total, resource: str) -> int:
        """Return a total's number for a managed resource name."""
        return total[managed_resources(self._of_resource[resource]).index(resource)]

    def _renew(self, namespace: str) -> None:
        self._stale.discard(namespace)
        quotas = self._of_namespace[namespace]
        limits = _tightest(quotas[name] for name in sorted(quotas))
        if limits:
            self._limits[namespace] = limits
        else:
            self._limits.pop(namespace, None)
        if not quotas:
            del self._of_namespace[namespace]


def instance_resources(vendor: Vendor, selection: Selection) -> tuple[str, ...]:
    """Return the resources of which an instance may have more than a pod asks: none if it takes no card in MIG mode."""
    if not selection.accepts_mode(MIG_MODE, mig=True):
        return ()
    return vendor.memory_resource, vendor.cores_resource


def passed_problem(passed: Exceeded) -> Problem:
    """Return a limit below what is used as a problem."""
    limit = passed.limit
    message = f"{limit_text(limit, passed.used)}; no pod that adds to it is taken"
    return Problem(ProblemCode.OVERCOMMITTED, f"resourcequota {limit.namespace}/{limit.quota}", message)


def _tightest(quotas: Iterable[Quota]) -> tuple[Limit, ...]:
    found: dict[tuple[Selector, str], Limit] = {}
    for quota in quotas:
        for resource, hard in quota.hard.items():
            key, enforced = (quota.selector, resource), resource in quota.enforced_by_api
            known = found.get(key)
            enforced |= known is not None and known.enforced_by_api
            if known is not None and known.hard <= hard:
                found[key] = known._replace(enforced_by_api=enforced)
            else:
                found[key] = Limit(quota.namespace, quota.name, resource, hard, quota.selector, enforced)
    return tuple(found[key] for key in sorted(found))
