"""Pods and nodes, as far as whole devices under raw keys are concerned: from the registry's events to the ledger.

Why it exists: the ledger must have a pod exactly where the cache has it, assumed and lost Bindings included, and the
cache knows no raw keys. It must not judge; `accounting.answers.raw` does. Invariants: what the ledger has of a pod is a
function of its entry and its booking; pods and nodes without raw keys cost nothing here.
"""

from collections.abc import Iterator

from accounting.answers import raw_request
from accounting.holders import RawDevices, overcommitted
from accounting.node import Node
from accounting.state.cache import Cache
from accounting.status import Problem, ProblemCode
from extender.cluster.events import Events, Kept
from extender.cluster.registry import PodRegistry


class RawPods:
    """Keeps a ledger in step with one cluster."""

    def __init__(self, keys: tuple[str, ...], devices: RawDevices, cache: Cache, registry: PodRegistry) -> None:
        self._keys = frozenset(keys)
        self._devices = devices
        self._cache = cache
        self._registry = registry
        self._events: Events

    def subscribe(self, events: Events) -> None:
        """Follow pods from now on."""
        self._events = events
        if not self._keys:
            return
        events.kept.subscribe(self._kept)
        events.over.subscribe(lambda event: self._remove(event.uid))
        events.assumed.subscribe(lambda event: self._look(event.pod.uid))
        for topic in (events.forgotten, events.lost):
            topic.subscribe(lambda event: self._look(event.uid))

    def put_node(self, node: Node) -> None:
        """Record what a node has of raw keys."""
        if self._keys:
            self._devices.put_node(node.name, {key: units for key, units in node.allocatable if key in self._keys})

    def _kept(self, event: Kept) -> None:
        if event.pod.raw or (event.before is not None and event.before.raw):
            self._look(event.pod.uid)

    def _look(self, uid: str) -> None:
        """Record a pod as it is kept and booked now."""
        pod, booked = self._registry.kept_pod(uid), self._cache.pods.get(uid)
        if pod is None or pod.terminal or not pod.raw:
            self._remove(uid)
            return
        self._devices.put_pod(raw_request(pod, pod.node if booked is None else booked.node))

    def _remove(self, uid: str) -> None:
        known = self._devices.pod(uid)
        self._devices.remove_pod(uid)
        if known is not None and any(self._devices.hard(known.namespace, key) is not None for key, _ in known.units):
            self._events.quota_changed.publish(known.namespace)


def raw_overcommitted(devices: RawDevices) -> Iterator[Problem]:
    """Yield the nodes on which more whole devices are used than there are."""
    for each in overcommitted(devices):
        numbers = f"{each.used} are used of {each.allocatable}: {', '.join(each.users)}"
        yield Problem(ProblemCode.RAW_OVERCOMMITTED, f"node {each.node} key {each.key}", numbers)


def uncounted_keys(devices: RawDevices) -> Iterator[Problem]:
    """Yield the VMs whose GPUs nobody counts."""
    for vmi in devices.vmis():
        if vmi.uncounted and not vmi.is_over:
            message = f"names GPUs that no --raw-key counts: {', '.join(vmi.uncounted)}"
            yield Problem(ProblemCode.UNKNOWN_RAW_KEY, f"vmi {vmi.namespace}/{vmi.name}", message)
