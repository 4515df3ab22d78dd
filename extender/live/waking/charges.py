"""What namespaces were charged when a quota may have caused a refusal.

Why it exists: when a quota's use falls, a pod may fit on any node, not only on the one where something ended. It must
not know limits or pods. Invariants: an entry holds, per pod scope and amount, the most that was charged at any refusal
since the last look, so a fall between two refusals is seen; a namespace without refused pods has no entry.
"""

from collections.abc import Callable, Mapping

from accounting.quota_scope import PodScope

#: Pod scope and name of an amount -> what pods of this scope are charged. A quota may count some scopes only.
Charges = Mapping[tuple[PodScope, str], int]


class ChargesAtRefusal:
    """The charges of namespaces with refused pods, by name."""

    def __init__(self, charges: Callable[[str], Charges]) -> None:
        """`charges`: what a namespace's pods are charged now."""
        self._charges = charges
        self._then: dict[str, dict[tuple[PodScope, str], int]] = {}

    def __len__(self) -> int:
        return len(self._then)

    def note(self, namespace: str) -> None:
        """Note that a quota of this namespace refused a pod, or may have refused it on some node."""
        then = self._then.setdefault(namespace, {})
        for key, amount in self._charges(namespace).items():
            then[key] = max(amount, then.get(key, 0))

    def have_fallen(self, is_refused: Callable[[str], bool]) -> bool:
        """Return whether some namespace is charged less than at a refusal; the next call compares with now.

        `is_refused`: whether a namespace still has refused pods; other namespaces are forgotten.
        """
        fallen = False
        for namespace, then in list(self._then.items()):
            if not is_refused(namespace):
                del self._then[namespace]
                continue
            now = self._charges(namespace)
            if any(now.get(key, 0) < amount for key, amount in then.items()):
                self._then[namespace] = dict(now)
                fallen = True
        return fallen

    def clear(self) -> None:
        """Forget everything, when no refused pods are left."""
        self._then.clear()
