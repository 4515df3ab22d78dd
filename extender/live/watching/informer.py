"""From a pod as the API server or kube-scheduler wrote it to the registry.

Why it exists: watches, reads and filter's questions tell of pods in the same form, and what they tell must go the same
way. It must not do I/O, nor keep anything: what is known of pods is in the registry, and what a step means in
`accounting.pod_state`. Invariant: of a bound pod that is told of as before, nothing is read a second time.
"""

from accounting.pod import Pod
from extender.cluster import Cluster, Heard, pod_facts
from extender.convert import allocation_of, convert_without_rows, held_or_rows, rows_text, scheduler_keys
from extender.wire import core_v1, watched


class PodInformer:
    """Tells one cluster's registry."""

    def __init__(self, cluster: Cluster) -> None:
        self._registry = cluster.registry
        self._settings = cluster.settings
        self._keys = frozenset(scheduler_keys(cluster.settings.vendors))

    def asked_about(self, wire: core_v1.Pod) -> None:
        """Filter showed a pod."""
        uid = (wire.metadata.uid if wire.metadata is not None else None) or ""
        self._registry.note_question(uid, pod_facts(wire, self._keys))

    def told(self, wire: watched.AnyPod, *, by_read: bool = False) -> Pod:
        """Record a pod as the API server has it, or had it. Returns it; unbound, without its annotation's cards.

        `by_read`: it was asked for just now, so its version is the newest there is. Otherwise what is returned has no
        cards either.
        """
        settings, registry = self._settings, self._registry
        # Nobody but the Binding says which cards a pod holds.
        is_bound = wire.spec is not None and bool(wire.spec.nodeName)
        pod = convert_without_rows(wire, settings, rows_text(wire, settings) if is_bound else "")
        heard = Heard.READ if by_read else Heard.WATCH
        rows = allocation_of(pod, pod.allocation_text, settings) if by_read else None
        if not registry.tell_again(pod, heard):
            held = rows if by_read else held_or_rows(pod, pod.allocation_text, settings)
            if pod.terminal or not (pod.concerned or held is not None):
                registry.tell_cardless(pod)
                return pod.with_allocation(rows)
            registry.tell(pod, heard, held)
        registry.note_facts(pod.uid, pod_facts(wire, self._keys), heard)
        return pod.with_allocation(rows) if by_read else pod
