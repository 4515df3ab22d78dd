"""From a pod object of the API server or kube-scheduler to the registry.

Why it exists: watches, reads and filter's requests carry pods in the same form, and all of them must be recorded in the
same way. It must not do I/O, nor keep anything: the registry has what is known of pods, and `accounting.pod_state` what
each step means. Invariant: nothing of a bound pod that has not changed is read a second time.
"""

from accounting.pod import Pod
from extender.cluster import Cluster, Heard, pod_facts
from extender.convert import (
    PodReader,
    allocation_of,
    claimed_requests,
    has_ended,
    held_or_rows,
    scheduler_keys,
    without_claimed,
)
from extender.wire import core_v1, watched


class PodInformer:
    """Records pods in one cluster's registry."""

    def __init__(self, cluster: Cluster) -> None:
        self._claims = cluster.resource_claims
        self._registry = cluster.registry
        self._settings, self._reader = cluster.settings, PodReader(cluster.settings)
        self._keys = frozenset(scheduler_keys(cluster.settings.vendors))

    def asked_about(self, wire: core_v1.Pod) -> None:
        """Record a pod that filter was asked about."""
        uid = (wire.metadata.uid if wire.metadata is not None else None) or ""
        self._registry.note_question(uid, pod_facts(wire, self._keys))

    def shown(self, wire: watched.Pod, uid: str) -> None:
        """Record a pod as a list or a watch shows it, which may be late. Raises `msgspec.DecodeError`."""
        if has_ended(wire):
            # It holds nothing, whatever else it says.
            self._registry.tell_ended(uid)
        else:
            self._record(wire, Heard.WATCH)

    def read(self, wire: watched.AnyPod) -> Pod:
        """Record a pod as it was read just now, so its version is the newest one; returns it with its cards."""
        return self._record(wire, Heard.READ)

    def _record(self, wire: watched.AnyPod, heard: Heard) -> Pod:
        """Record a pod; returns it, with its annotation's cards if it was read."""
        settings, registry, is_read = self._settings, self._registry, heard is Heard.READ
        # Only the Binding says which cards a pod holds.
        is_bound = wire.spec is not None and bool(wire.spec.nodeName)
        pod = self._reader.convert(wire, self._reader.rows_text(wire) if is_bound else "")
        if is_bound and wire.status is not None and wire.status.extendedResourceClaimStatus is not None:
            pod = self._without_claimed(wire, pod)
        rows = allocation_of(pod, pod.allocation_text, settings) if is_read else None
        if pod.terminal:
            registry.tell_ended(pod.uid)
            return pod.with_allocation(rows)
        if not registry.tell_again(pod, heard):
            text = pod.allocation_text
            held = rows if is_read or not text else held_or_rows(pod, text, settings)
            if held is None and not pod.concerned:
                registry.tell_cardless(pod)
                return pod.with_allocation(rows)
            registry.tell(pod, heard, held)
        registry.note_facts(pod.uid, pod_facts(wire, self._keys), heard)
        return pod.with_allocation(rows) if is_read else pod

    def _without_claimed(self, wire: watched.AnyPod, pod: Pod) -> Pod:
        """Return a pod without what a claim of its own has been given for it, which that claim counts."""
        claim, served = claimed_requests(wire)
        if not claim or not self._claims.is_given(claim, pod.uid):
            return pod
        own: watched.AnyPod
        # The two forms of a pod have a type each.
        if isinstance(wire, watched.Pod):  # noqa: SIM108 - see above
            own = without_claimed(wire, served)
        else:
            own = without_claimed(wire, served)
        left = self._reader.convert(own, pod.allocation_text)
        # The API server's quota charges the pod all the same.
        return left._replace(api_charge=pod.api_charge)
