"""What quotas count: what namespaces' pods are charged here, and what the API server charges.

Why it exists: verdicts, metrics and reports need the same sums for different limits, some of them without one pod's own
share. It must not change anything. Invariants: both charges are those of the pods that a limit selects; leaving a pod
out of a sum subtracts exactly what that pod has in it.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence

from accounting.holdings import Total
from accounting.pod import Pod
from accounting.pod_record import PodRecord
from accounting.quota import UNLIMITED, Limit, QuotaCheck, QuotaTable, count_differences, differences_text
from accounting.quota_scope import Selector, selects
from accounting.state.cache import Cache
from extender.cluster.registry import PodRegistry
from extender.config import Settings

#: Pods per step: looking at so many takes a millisecond or two.
_PODS_PER_STEP = 200


class Charges:
    """Answers from the sums of the cache and the registry."""

    def __init__(self, settings: Settings, quotas: QuotaTable, cache: Cache, pods: PodRegistry) -> None:
        self._settings = settings
        self._quotas = quotas
        self._cache = cache
        self._pods = pods

    def check(self, pod: Pod) -> QuotaCheck:
        """Return which limits of its namespace a pod would exceed on any node, and what is left for it.

        The whole pod counts, at its peak; its own earlier booking does not. Takes microseconds per limit of the
        namespace.
        """
        if not self._quotas.limits_of(pod.namespace):
            return UNLIMITED
        return self._quotas.check(
            pod, lambda selector, vendor=None: self._used_without(pod, selector, vendor), mig=self._cache.has_mig
        )

    def check_without(self, pod: Pod, gone: Sequence[PodRecord]) -> QuotaCheck:
        """Return `check` as if these pods were gone as well."""
        others = [record for record in gone if record.namespace == pod.namespace]
        if not others:
            return self.check(pod)

        def used(selector: Selector, vendor: str | None = None) -> Total:
            total = self._used_without(pod, selector, vendor)
            key = vendor or self._settings.vendor.key
            held = [dict(each.held_totals).get(key, Total()) for each in others if selects(selector, each.scope)]
            return Total(*(whole - sum(part) for whole, *part in zip(total, *held, strict=True)))

        return self._quotas.check(pod, used, mig=self._cache.has_mig)

    def used(self, limit: Limit) -> int:
        """Return what the pods that a limit selects are charged now."""
        used = self._quotas.used_of(limit, self._cache.used, limit.namespace, limit.selector)
        return self._quotas.amount(used, limit.resource)

    def used_by_others(self, limit: Limit, pod: Pod) -> int:
        """Return `used` without the given pod's booking."""
        used = self._quotas.used_of(limit, self._used_without, pod, limit.selector)
        return self._quotas.amount(used, limit.resource)

    def by_api(self, limit: Limit) -> int:
        """Return what the API server's quota charges the pods that a limit selects."""
        return self._pods.charges.of(limit.namespace, limit.selector).get(limit.resource, 0)

    def by_api_to_others(self, limit: Limit, pod: Pod) -> int:
        """Return `by_api` without the given pod's."""
        entry = self._pods.entry(pod.uid)
        own = None if entry is None else entry.pod
        counts = own is not None and not own.terminal and own.namespace == limit.namespace
        mine = own.api_charge if own is not None and counts and selects(limit.selector, own.scope) else ()
        return self.by_api(limit) - dict(mine).get(limit.resource, 0)

    def why_they_differ(self, limit: Limit, record: Callable[[Pod], PodRecord]) -> Generator[None, None, list[str]]:
        """Return, in short steps, why `used` and `by_api` differ, and for how many pods each reason holds.

        `record`: returns what a pod holds.
        """
        if self.used(limit) == self.by_api(limit):
            return []
        vendor = next(each for each in self._settings.vendors if limit.resource in each.resources)
        pods = [pod for pod in self._pods.kept() if pod.namespace == limit.namespace]
        reasons = Counter[str]()
        for start in range(0, len(pods), _PODS_PER_STEP):
            some = [(pod, record(pod)) for pod in pods[start : start + _PODS_PER_STEP]]
            reasons.update(count_differences(limit, some, vendor))
            yield None
        return differences_text(reasons)

    def _used_without(self, pod: Pod, selector: Selector, vendor: str | None = None) -> Total:
        """Return what the pods that a selector selects are charged, without the given pod's booking.

        Counts the cards of the vendor with the given key; without a key, those of the first vendor.
        """
        total, own = self._cache.used(pod.namespace, selector, vendor), self._cache.pods.get(pod.uid)
        if own is None or own.namespace != pod.namespace or not selects(selector, own.scope):
            return total
        held = dict(own.held_totals).get(vendor or self._settings.vendor.key, Total())
        return Total(*(a - b for a, b in zip(total, held, strict=True)))
