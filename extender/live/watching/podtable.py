"""What is told of a pod on a live cluster, and what of it counts.

Why it exists: what is known of a pod comes from four sides (filter's questions, our own binds, lists and watches, reads
of a single pod), each of them early or late, and a card must never look free because one of them was late. The states
of a booking and the steps between them are in `accounting.pod_state`; here is who may take which step. It must not do
I/O. Invariant: a booking ends only when the pod's Binding was refused for certain, or when the pod has ended or is
gone; nothing that is told late takes one away.

| told                      | no booking       | assumed           | bound                 | added              |
|---------------------------|------------------|-------------------|-----------------------|--------------------|
| filter asks               | known            | -                 | -                     | -                  |
| pod without a node        | known            | - (came late)     | - (came late)         | - (came late)      |
| pod on a node, readable   | added, as told   | added, as told    | added; an edit: below | an edit: see below |
| pod on a node, unreadable | added, blocks    | added, blocks     | added, keeps cards    | keeps its cards    |
| pod has ended, or is gone | forgotten        | released          | released              | released           |
| a list does not name it   | forgotten        | a read decides    | a read decides        | released           |
| Binding refused           |                  | forgotten         |                       |                    |
| 409, no answer, or 5xx    |                  | a read or the watch decides (`settling`)  |                    |

Why the cells are as they are:

- *Told late.* A watch is behind our own writes and reads by milliseconds, after a broken connection by minutes. A pod
  never leaves its node, so one without a node tells nothing of a pod that is booked.
- *As told, not as assumed.* Of two writers only one Binding was accepted, and the annotation says whose cards they are.
- *An edit.* The cards of a pod do not change after its Binding. An allocation that does is not believed: per card and
  dimension the larger of both readings counts while this process lives, and it is a problem. The same holds for one
  that can no longer be read. After a restart there is no earlier reading, so the object alone counts.
- *Names.* Everything is by UID. Of two pods with one name, each ends when it is told of, whatever the other's state.
- *What is not listed.* A list may be older than a bind in flight, so for those a read of the pod decides.
"""

from accounting.pod import Pod
from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.convert import allocation_of, convert_without_rows, held_or_rows, rows_text, scheduler_keys
from extender.live.watching.facts import Facts, is_older, pod_facts
from extender.wire import core_v1, watched

_BIND_GOES_ON = (PodState.ASSUMED, PodState.BOUND)


class PodTable:
    """The pods of one cluster and what is known beside them."""

    def __init__(self, cluster: Cluster, facts: Facts) -> None:
        self._cluster = cluster
        self._facts = facts
        self._keys = frozenset(scheduler_keys(cluster.settings.vendors))

    def asked_about(self, wire: core_v1.Pod) -> None:
        """Filter showed a pod; its question may be ahead of the watch, or behind it."""
        uid = (wire.metadata.uid if wire.metadata is not None else None) or ""
        shown, known = pod_facts(wire, self._keys), self._facts.pods.get(uid)
        if known is None or is_older(known.resource_version, shown.resource_version):
            self._facts.pods[uid] = shown

    def told(self, wire: watched.AnyPod, *, by_read: bool = False) -> Pod:
        """Record a pod as the API server has it, or had it. Returns it; unbound, without its annotation's cards.

        `by_read`: it was asked for just now, so its version is the newest there is. Otherwise what is returned has no
        cards either.
        """
        settings = self._cluster.settings
        # Nobody but the Binding says which cards a pod holds.
        is_bound = wire.spec is not None and bool(wire.spec.nodeName)
        pod = convert_without_rows(wire, settings, rows_text(wire, settings) if is_bound else "")
        is_new = not self._cluster.observe_again(pod)
        rows = allocation_of(pod, pod.allocation_text, settings) if by_read else None
        held = held_or_rows(pod, pod.allocation_text, settings) if is_new and not by_read else rows
        if is_new and (pod.terminal or not (pod.asks or held is not None)):
            self._forget(pod.uid)
            if pod.node is not None and not pod.terminal:
                self._cluster.put_cardless_pod(pod)
            else:
                self._cluster.remove_cardless_pod(pod.uid)
            return pod.with_allocation(rows)
        new, known = pod_facts(wire, self._keys), self._facts.pods.get(pod.uid)
        if known is not None and not by_read and is_older(new.resource_version, known.resource_version):
            new = new._replace(resource_version=known.resource_version, rejection=known.rejection)
        self._facts.pods[pod.uid] = new
        if is_new:
            self._cluster.observe(pod, held)
        return pod.with_allocation(rows) if by_read else pod

    def version(self, uid: str) -> str:
        """Return the newest resourceVersion that is known of a pod, "" if none is."""
        facts = self._facts.pods.get(uid)
        return "" if facts is None else facts.resource_version

    def is_deleting(self, uid: str) -> bool:
        """Whether a pod's deletion has begun, so that the API server refuses to bind it."""
        facts = self._facts.pods.get(uid)
        return facts is not None and facts.deleting

    def gone(self, uid: str) -> None:
        """A pod has ended, its object is gone, or it concerns no cards."""
        self._forget(uid)
        self._cluster.remove_cardless_pod(uid)

    def unlisted(self, uid: str) -> bool:
        """A list did not name a pod. Returns whether it is given up; else a read decides, or filter was ahead."""
        if self._cluster.is_only_asked_about(uid):
            return False
        if self._cluster.cache.state(uid) in _BIND_GOES_ON:
            # Without facts, see `Binder.seen`.
            self._facts.pods.pop(uid, None)
            return False
        self.gone(uid)
        return True

    def _forget(self, uid: str) -> None:
        self._cluster.delete_pod(uid)
        self._facts.pods.pop(uid, None)
