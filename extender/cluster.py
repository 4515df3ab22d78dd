"""The embedded cluster: pods, nodes and quotas held in memory, and the cache that follows from them.

Why it exists: with a dump in place of an API server, something must remember the objects, so that bind works and a
pod's containers can be shown. It must not know HTTP. Invariants: every change reaches the cache in the same step;
what came from files and what came by requests are kept apart, so that files can be read again.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

from accounting.cache import Cache
from accounting.holdings import Total
from accounting.node import Node
from accounting.pod import Pod, UnreadableAllocation
from accounting.pod_record import PodRecord, record_pod
from accounting.quota import Exceeded, Quota, QuotaTable
from accounting.report import problems
from accounting.status import Problem
from extender.config import Settings


@dataclass(frozen=True, slots=True)
class Objects:
    """What one reading of files gave: the objects that decode, and what was wrong with the others."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    quotas: tuple[Quota, ...] = ()
    problems: tuple[Problem, ...] = ()


class Cluster:
    """Objects by name and UID."""

    def __init__(self, settings: Settings, remembered_pods: int = 10_000) -> None:
        self.settings = settings
        self.cache = Cache()
        self.quotas = QuotaTable(settings.vendor)
        self._pods: dict[str, Pod] = {}  # pod UID -> pod
        self._uids: dict[tuple[str, str], str] = {}  # namespace, name -> UID
        self._from_files: set[str] = set()  # UIDs of pods that only files told of
        self._seen: OrderedDict[str, None] = OrderedDict()  # UIDs of pods that only /filter told of, oldest first
        self._remembered_pods = remembered_pods
        self._files = Objects()
        self._changes = 0

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever an answer may change."""
        return self.cache.generation, self._changes

    def pod(self, uid: str) -> Pod | None:
        """Return a pod by UID."""
        return self._pods.get(uid)

    def pod_named(self, namespace: str, name: str) -> Pod | None:
        """Return a pod by name."""
        uid = self._uids.get((namespace, name))
        return None if uid is None else self._pods[uid]

    def pods(self) -> list[Pod]:
        """Return every pod that asks for or holds cards, by namespace, name and UID."""
        relevant = (pod for pod in self._pods.values() if pod.asks or pod.invalid or pod.allocation is not None)
        return sorted(relevant, key=lambda pod: (pod.namespace, pod.name, pod.uid))

    def record(self, pod: Pod) -> PodRecord:
        """Return what a pod holds: as the cache has it, else by itself; unbound, its annotation counts nothing."""
        known = self.cache.pods.get(pod.uid)
        return known or record_pod(pod if pod.node is not None else replace(pod, allocation=None))

    def exceeded(self, pod: Pod) -> list[Exceeded]:
        """Return the quota limits that a pod would pass, its own earlier booking not counted."""
        used = self.cache.used(pod.namespace)
        own = self.cache.pods.get(pod.uid)
        if own is not None and own.namespace == pod.namespace:
            used = Total(*(a - b for a, b in zip(used, own.held_total, strict=True)))
        needed = record_pod(replace(pod, allocation=None)).total_peak
        return self.quotas.exceeded(pod.namespace, used, needed)

    def problems(self) -> list[Problem]:
        """Return everything that is wrong, objects that could not be read included."""
        return sorted({*problems(self.cache), *self.quotas.problems(), *self._files.problems})

    # -- changing -------------------------------------------------------------------------------------------------

    def load(self, files: Objects) -> None:
        """Replace what came from files by what they say now; pods that came by requests stay."""
        self._drop_vanished(files)
        for node in files.nodes:
            self.cache.add_node(node)
        for quota in files.quotas:
            self.quotas.put(quota)
        for pod in files.pods:
            if pod.uid not in self._pods or pod.uid in self._from_files or pod.uid in self._seen:
                self._put(pod, record_pod(pod))
                self._from_files.add(pod.uid)
        self._files = files
        self._changes += 1

    def put_pod(self, pod: Pod) -> Pod:
        """Create or replace a pod; a new UID under a known name replaces the old pod. Returns what is kept.

        A bound pod stays on its node and keeps its cards, as on an API server, where neither can be taken back.
        """
        known = self._pods.get(pod.uid)
        if known is not None and known.node is not None:
            pod = replace(pod, node=pod.node or known.node, allocation=pod.allocation or known.allocation)
        record = record_pod(pod)
        if known is not None and isinstance(pod.allocation, UnreadableAllocation):
            # The cache keeps the cards of the last allocation that could be read; show the same rows.
            pod = replace(pod, allocation=known.allocation or pod.allocation)
        self._from_files.discard(pod.uid)
        self._put(pod, record)
        return pod

    def remember(self, pod: Pod) -> None:
        """Remember a pod that /filter showed, unless it is known already."""
        if pod.uid in self._pods and pod.uid not in self._seen:
            return
        unbound = replace(pod, node=None, allocation=None)
        self._put(unbound, record_pod(unbound))
        self._seen[pod.uid] = None
        if len(self._seen) > self._remembered_pods:
            self.delete_pod(next(iter(self._seen)))

    def delete_pod(self, uid: str) -> None:
        """Forget a pod and release what it holds."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        if self._uids.get((pod.namespace, pod.name)) == uid:
            del self._uids[pod.namespace, pod.name]
        self._seen.pop(uid, None)
        self._from_files.discard(uid)
        self.cache.remove_pod(uid)

    def bind(self, pod: Pod) -> None:
        """Record a pod that was bound here, with its node and its cards."""
        record = record_pod(pod)
        self.cache.assume_pod(record)
        self.cache.finish_binding(pod.uid)
        self._from_files.discard(pod.uid)
        self._put(pod, record)

    def _put(self, pod: Pod, record: PodRecord) -> None:
        earlier = self._uids.get((pod.namespace, pod.name))
        if earlier is not None and earlier != pod.uid:
            self.delete_pod(earlier)
        self._pods[pod.uid] = pod
        self._uids[pod.namespace, pod.name] = pod.uid
        self._seen.pop(pod.uid, None)
        self.cache.add_pod(record)

    def _drop_vanished(self, files: Objects) -> None:
        uids, nodes = {pod.uid for pod in files.pods}, {node.name for node in files.nodes}
        quotas = {(quota.namespace, quota.name) for quota in files.quotas}
        for uid in sorted(self._from_files - uids):
            self.delete_pod(uid)
        for node in self._files.nodes:
            if node.name not in nodes:
                self.cache.remove_node(node.name)
        for quota in self._files.quotas:
            if (quota.namespace, quota.name) not in quotas:
                self.quotas.remove(quota.namespace, quota.name)
