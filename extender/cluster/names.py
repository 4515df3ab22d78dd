"""Which pod has a name.

Why it exists: people and locks use names, everything else uses UIDs, and two pods may have the same name one after
another, or even at once for a while. It must not know anything else of pods. Invariants: a name leads to at most one
pod; a namespace without pods leaves nothing behind.
"""

from accounting.pod import Pod


class NameIndex:
    """UIDs by namespace and name."""

    def __init__(self) -> None:
        self._uids: dict[str, dict[str, str]] = {}  # namespace -> name -> UID

    def __len__(self) -> int:
        return sum(map(len, self._uids.values()))

    def uid(self, namespace: str, name: str) -> str | None:
        """Return the UID of the pod that has a name."""
        names = self._uids.get(namespace)
        return None if names is None else names.get(name)

    def leads_to(self, pod: Pod) -> bool:
        """Whether a pod has its name."""
        names = self._uids.get(pod.namespace)
        return names is not None and names.get(pod.name) == pod.uid

    def put(self, pod: Pod, *, takes_over: bool) -> None:
        """Give a pod its name. `takes_over`: even if another pod has it."""
        names = self._uids.get(pod.namespace)
        if names is None:
            names = self._uids[pod.namespace] = {}
        if takes_over:
            names[pod.name] = pod.uid
        else:
            names.setdefault(pod.name, pod.uid)

    def drop(self, pod: Pod) -> None:
        """Remove a pod's name, if the pod has it."""
        names = self._uids.get(pod.namespace)
        if names is None or names.get(pod.name) != pod.uid:
            return
        del names[pod.name]
        if not names:
            del self._uids[pod.namespace]
