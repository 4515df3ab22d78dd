"""What the API server's own quotas charge for the known pods.

Why it exists: the API server charges a pod from its creation on, bound or not, by resource name, and no question may
cost a look at all pods. It must not know limits. Invariant: the sums are over all kept pods that have not ended.
"""

from accounting.pod import Pod
from accounting.quota_scope import Selector
from accounting.state import NamespaceSums


class ApiCharges:
    """Sums by namespace and resource name."""

    def __init__(self) -> None:
        self._sums = NamespaceSums()

    def of(self, namespace: str, selector: Selector = ()) -> dict[str, int]:
        """Return the sums over the namespace's pods that a selector selects."""
        return self._sums.of(namespace, selector)

    def namespaces(self) -> list[str]:
        """Return the namespaces with pods that are charged, sorted."""
        return self._sums.namespaces()

    def change(self, before: Pod | None, after: Pod | None) -> None:
        """Count a pod as it is now in place of as it was before."""
        if before is not None and after is not None and _charge(before) == _charge(after):
            return
        if before is not None and _is_charged(before):
            self._sums.take(before.namespace, before.scope, before.api_charge)
        if after is not None and _is_charged(after):
            self._sums.add(after.namespace, after.scope, after.api_charge)


def _charge(pod: Pod) -> tuple[object, ...]:
    return pod.terminal, pod.namespace, pod.scope, pod.api_charge


def _is_charged(pod: Pod) -> bool:
    return bool(pod.api_charge) and not pod.terminal
