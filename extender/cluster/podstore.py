"""Pods by UID, kept small.

Why it exists: 100,000 pods must fit in memory, and the rows of an allocation take more room than all the rest of a pod,
while hardly anybody asks for them. It must not know where pods come from. Invariants: what is taken out equals what was
put in; `charges` are the sums over the pods that are kept and not terminal of what the API server's quota charges.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter

from accounting.pod import Pod
from accounting.state import NamespaceSums
from extender.convert import pack_rows, unpack_rows

_lasting = attrgetter(*(name for name in Pod._fields if name not in ("inits_over", "allocation")))


class PodStore(Mapping[str, Pod]):
    """Pods by UID."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self.changes = 0
        """How often a pod was put or taken out so far."""
        self.charges = NamespaceSums()
        """By resource name. The API server charges a pod from its creation on, whether it is bound or not."""

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[str]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)

    def __getitem__(self, uid: str) -> Pod:
        return unpacked(self._pods[uid])

    def put(self, pod: Pod) -> None:
        """Keep a pod. It may be given with the text of its rows in their place."""
        allocation = pod.allocation
        if isinstance(allocation, tuple) and any(allocation):
            pod = pod._replace(allocation=None, allocation_text=pack_rows(allocation))
        self._keep(pod)

    def __delitem__(self, uid: str) -> None:
        pod = self._pods.pop(uid)
        self.changes += 1
        if _is_charged(pod):
            self.charges.take(pod.namespace, pod.scope, pod.api_charge)

    def _keep(self, pod: Pod) -> None:
        known = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        self.changes += 1
        if known is not None and _charge(known) == _charge(pod):
            return
        if known is not None and _is_charged(known):
            self.charges.take(known.namespace, known.scope, known.api_charge)
        if _is_charged(pod):
            self.charges.add(pod.namespace, pod.scope, pod.api_charge)

    def bare(self, uid: str) -> Pod | None:
        """Return a pod without its rows, which is quick."""
        return self._pods.get(uid)

    def bare_in(self, namespace: str) -> list[Pod]:
        """Return a namespace's pods without their rows, which is quick."""
        return [pod for pod in self._pods.values() if pod.namespace == namespace]

    def has(self, pod: Pod) -> bool:
        """Whether a pod, given with the text of its rows, is what is kept, its inits' state apart."""
        kept = self._pods.get(pod.uid)
        return kept is not None and bool(kept.allocation_text) and bool(_lasting(kept) == _lasting(pod))

    def waiting(self) -> list[Pod]:
        """Return the pods that ask for cards and are on no node, which is quick."""
        return [pod for pod in self._pods.values() if pod.node is None and not pod.terminal and pod.asks]

    def all_bare(self) -> list[Pod]:
        """Return every pod without its rows, in no order, which is quick; see `unpacked`."""
        return list(self._pods.values())

    def concerning_cards(self) -> Iterator[Pod]:
        """Yield the pods that ask for or hold cards."""
        return (unpacked(pod) for pod in self._pods.values() if concerns_cards(pod))


def _charge(pod: Pod) -> tuple[object, ...]:
    return pod.terminal, pod.namespace, pod.scope, pod.api_charge


def _is_charged(pod: Pod) -> bool:
    return bool(pod.api_charge) and not pod.terminal


def concerns_cards(pod: Pod) -> bool:
    """Whether a pod asks for or holds cards."""
    return pod.asks or bool(pod.allocation_text) or pod.allocation is not None


def unpacked(pod: Pod) -> Pod:
    """Return a kept pod with its rows."""
    if not pod.allocation_text:
        return pod
    return pod.with_allocation(unpack_rows(pod.allocation_text, pod.containers, "allocation"))
