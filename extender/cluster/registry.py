"""Everything that is known of pods: one entry per UID, and one way to forget it.

Why it exists: a pod becomes known in six ways (files, requests, filter's questions, our own binds, lists and watches,
reads of a single pod), each of which may be early or late, and a card must never look free because one was late. It
must not do I/O, nor judge whether a pod fits. `accounting.pod_state` has the table of states and steps; the cache has a
pod's record and `Claims` its claim, and `state` combines them. Invariants: a booking or a claim has an entry; after
`forget` nothing of the UID is left; an event is published only after the change.

- *The annotation wins over what was assumed.* Of two writers only one Binding was accepted, and the annotation says
  which.
- *Edits.* A pod's cards do not change after its Binding. If the allocation does change, or can no longer be read, the
  larger of both readings counts per card and dimension while this process lives, and it is a problem. After a restart
  there is no earlier reading, so only the object counts.
- *Names.* Everything is by UID. Where the watch reports deletions, each of two pods with one name ends by its own.
"""

from accounting.answers import Claim, Claims
from accounting.holdings import Held
from accounting.pod import Allocation, Pod, UnreadableAllocation
from accounting.pod_record import PodRecord, pod_state, record_pod
from accounting.pod_state import TRANSITIONS, PodEvent, PodState
from accounting.state.cache import Cache
from extender.cluster.arrivals import Arrivals
from extender.cluster.entry import Heard, unpacked, without_node
from extender.cluster.events import Events
from extender.cluster.known_pods import KnownPods
from extender.cluster.podfacts import PodFacts, is_older

Rows = Allocation | UnreadableAllocation | Held | None
"""The allocation that the text of a pod's rows says, for a pod given with packed rows; the pod's holding is enough."""


class PodRegistry(KnownPods):
    """Records what is told of pods; asking is inherited."""

    def __init__(
        self,
        cache: Cache,
        events: Events,
        arrivals: Arrivals,
        claims: Claims | None = None,
        *,
        remembered: int = 10_000,
        deletions_are_told: bool = False,
    ) -> None:
        """`remembered`: the most pods that are known only from filter. The other arguments are those of `Cluster`."""
        super().__init__(cache, claims)
        self._records = cache.pods
        self._arrivals = arrivals
        self._events = events
        self._remembered = remembered
        self._deletions_are_told = deletions_are_told
        self._names, self._by_uid = self._entries.names, self._entries.by_uid

    # -- what is told ------------------------------------------------------------------------------------------------

    def put(self, pod: Pod, heard: Heard) -> Pod:
        """Record a pod as a file or a request says it is now; returns the kept pod."""
        return self._put(pod, heard)

    def ask(self, pod: Pod) -> None:
        """Remember a pod of a filter request, unless it is known in another way.

        An earlier pod of that name stays and keeps its name, so that a filter request cannot free what runs.
        """
        entry = self._entries.get(pod.uid)
        if entry is not None:
            if entry.heard is not Heard.QUESTION:
                return
            if entry.pod is pod:
                # Asked again: only its turn to be forgotten is a later one, and its name may be free by now.
                self._entries.ask_again(entry)
                return
        self._put(without_node(pod), Heard.QUESTION, takes_name=False)
        longest_ago = self._entries.asked_longest_ago(self._remembered)
        if longest_ago is not None:
            self.forget(longest_ago)

    def tell(self, pod: Pod, heard: Heard, rows: Rows = None) -> None:
        """Record a pod as an API server has it or had it: news may come late."""
        if pod.node is None and not pod.terminal:
            late = TRANSITIONS[self._cache.state(pod.uid), PodEvent.SEEN_LATE]
            if late is PodState.ADDED:
                return
        self._put(pod, heard, rows)

    def tell_again(self, pod: Pod, heard: Heard) -> bool:
        """Record a bound pod, given with packed rows, if it equals the kept one; returns whether it does.

        Only its inits may have ended or started again since. Most events are of this kind, and cost little here.
        """
        uid = pod.uid
        entry = self._by_uid.get(uid)
        if entry is None or pod.node is None or not entry.is_as(pod):
            return False
        if self._cache.state(uid) is not PodState.ADDED or not self._names.leads_to(pod):
            return False
        entry.heard = heard
        state, before = pod_state(pod), self._records[uid]
        if before.state is not state:
            self._moments.keep(uid)
            self._cache.update_pod(before.in_state(state))
            self._entries.change(entry, pod)
            self._tell_freed(before, uid)
            self._events.changed.publish(uid)
        return True

    def tell_cardless(self, pod: Pod) -> None:
        """Record that a pod neither asks for nor holds cards: only its CPU is kept, if it is on a node."""
        uid = pod.uid
        if pod.node is None or pod.terminal:
            self.tell_ended(uid)
            return
        self._drop(uid)
        if not self._cache.is_cardless(uid):
            self._arrivals.note(pod)
        self._cache.put_cardless_pod(uid, pod.node, pod.cpu_milli)
        self._events.cardless.publish(pod)

    def tell_ended(self, uid: str) -> None:
        """Record that a pod has ended, or has neither cards nor a node: nothing of it is kept."""
        self._drop(uid)
        self._drop_cardless(uid)

    def note_question(self, uid: str, shown: PodFacts) -> None:
        """Note the facts of a filter request, which may be ahead of the watch or behind it."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.facts is None or is_older(entry.facts.resource_version, shown.resource_version):
            entry.facts = shown

    def note_facts(self, uid: str, told: PodFacts, heard: Heard) -> None:
        """Note the facts of a pod. What was read just now is the newest; a watch may be behind."""
        entry = self._by_uid.get(uid)
        if entry is None:
            return
        known, entry.unlisted, entry.version = entry.facts, False, told.resource_version
        if heard is Heard.READ:
            entry.facts = told
            return
        if known is not None and is_older(told.resource_version, known.resource_version):
            told = told._replace(resource_version=known.resource_version, rejection=known.rejection)
        entry.facts = told
        entry.contradicted = not told.bound and self._cache.state(uid) is not None
        if entry.rejection_at_claim is not None and told.rejection not in (0, entry.rejection_at_claim):
            # Another plugin has rejected it. An equal condition is not written again; then the claim ends by age.
            self.end_claim(uid)

    def unlist(self, uid: str) -> None:
        """Record that a list does not name a pod. It is forgotten, or a read decides; see the table of states."""
        entry = self._entries.get(uid)
        if entry is not None and entry.heard is Heard.QUESTION:
            # Filter's request was ahead of the list.
            return
        if entry is None or TRANSITIONS[self.state(uid), PodEvent.UNLISTED] is None:
            self.forget(uid)
        else:
            entry.unlisted = True

    def take_contradicted(self) -> list[str]:
        """Return the booked pods that were last seen without a node, sorted, and clear their marks."""
        found = [entry for entry in self._entries.values() if entry.contradicted]
        for entry in found:
            entry.contradicted = False
        return sorted(entry.pod.uid for entry in found)

    def forget(self, uid: str) -> None:
        """Forget everything about a pod whose object is gone. What it held is free."""
        self._drop_cardless(uid)
        self._drop(uid)

    # -- claims ---------------------------------------------------------------------------------------------------

    def claim(self, uid: str, claim: Claim, now: float) -> None:
        """Note where a pod will probably go. `now`: seconds of any steady clock."""
        if self.claims is None or TRANSITIONS[self.state(uid), PodEvent.CLAIM] is not PodState.CLAIMED:
            return
        entry = self._entries.get(uid)
        if entry is not None:
            entry.rejection_at_claim = 0 if entry.facts is None else entry.facts.rejection
        self.claims.put(uid, claim, now)
        self._events.claimed.publish(uid, claim)

    def end_claim(self, uid: str) -> None:
        """End a pod's claim, if it has one."""
        if self.claims is not None and self.claims.drop(uid):
            self._claim_ended(uid)

    def expire_claims(self, now: float) -> None:
        """End the claims that are too old."""
        for uid in () if self.claims is None else self.claims.expire(now):
            self._claim_ended(uid)

    def _claim_ended(self, uid: str) -> None:
        entry = self._entries.get(uid)
        if entry is not None:
            entry.rejection_at_claim = None
        self._events.unclaimed.publish(uid)

    def _step(self, uid: str, event: PodEvent) -> None:
        """End a pod's claim if the pod's state no longer allows one."""
        if self.claims is not None and TRANSITIONS[PodState.CLAIMED, event] is not PodState.CLAIMED:
            self.end_claim(uid)

    # -- binding --------------------------------------------------------------------------------------------------

    def assume(self, pod: Pod) -> None:
        """Book a pod with its node and its cards while its bind is being decided."""
        uid = pod.uid
        # From now on it must not be forgotten for lack of room, as pods known only from filter may be.
        entry = self._entries.get(uid)
        self._moments.keep(uid)
        known, heard = (without_node(pod), Heard.BIND) if entry is None else (entry.pod, entry.heard)
        self._entries.keep(known, Heard.BIND if heard is Heard.QUESTION else heard, takes_name=False)
        self._step(uid, PodEvent.ASSUME)
        before = self._records.get(uid)
        self._cache.assume_pod(record_pod(pod))
        self._events.assumed.publish(pod)
        self._tell_freed(before, uid)

    def finish_binding(self, uid: str) -> None:
        """Note that the Binding of an assumed pod was accepted."""
        self._cache.finish_binding(uid)
        self._events.finished.publish(uid)
        self._events.changed.publish(uid)

    def forget_binding(self, uid: str) -> None:
        """Undo a booking whose bind failed for certain."""
        before = self._records.get(uid)
        self._moments.keep(uid)
        self._cache.forget_pod(uid)
        self._events.forgotten.publish(uid)
        self._tell_freed(before, uid)

    def lose_binding(self, uid: str) -> None:
        """End the booking of a pod whose accepted Binding the API server has lost."""
        before, entry = self._records.get(uid), self._entries.get(uid)
        self._moments.keep(uid)
        self._cache.remove_pod(uid)
        if entry is not None:
            self._entries.change(entry, without_node(entry.pod))
            entry.contradicted = False
        self._events.lost.publish(uid)
        self._events.changed.publish(uid)
        self._tell_freed(before, uid)

    # -- keeping --------------------------------------------------------------------------------------------------

    def _put(self, pod: Pod, heard: Heard, rows: Rows = None, *, takes_name: bool = True) -> Pod:
        """Record a pod; returns the kept pod. `takes_name`: also take its name from an earlier pod."""
        uid = pod.uid
        if takes_name and not self._deletions_are_told:
            holder = self._entries.holder(pod.namespace, pod.name)
            if holder is not None and holder.pod.uid != uid:
                self.forget(holder.pod.uid)
        entry, before = self._by_uid.get(uid), self._records.get(uid)
        kept_before = None if entry is None else entry.pod
        record = record_pod(pod, rows)
        if before is not None and self._deletions_are_told:
            record = self._beside_earlier_reading(record, before)
        self._step(uid, _event_of(pod))
        self._moments.keep(uid)
        self._cache.update_pod(record)
        if entry is not None and not record.readable and self._records.get(uid, record).readable:
            # The cache keeps the cards of the last readable allocation, so keep the same rows here.
            pod = pod._replace(containers=entry.pod.containers).with_allocation(unpacked(entry.pod).allocation)
        elif (
            rows is not None
            and not isinstance(rows, Held)
            and (isinstance(rows, UnreadableAllocation) or not any(rows))
        ):
            # No text would unpack to these rows.
            pod = pod.with_allocation(rows)
        if entry is None and not pod.invalid:
            self._arrivals.note(pod)
        self._entries.keep(pod, heard, takes_name=takes_name)
        self._drop_cardless(uid)
        self._events.kept.publish(kept_before, pod)
        self._events.changed.publish(uid)
        if before is not None:
            self._tell_freed(before, uid)
        return pod

    def _drop_cardless(self, uid: str) -> None:
        if self._cache.is_cardless(uid):
            self._cache.remove_cardless_pod(uid)
            self._events.cardless_over.publish(uid)

    def _drop(self, uid: str) -> None:
        if uid not in self._entries:
            return
        before = self._records.get(uid)
        self._step(uid, PodEvent.GONE)
        self._moments.keep(uid)
        self._cache.remove_pod(uid)
        self._entries.drop(uid)
        self._tell_freed(before, uid)
        self._events.over.publish(uid)
        self._events.changed.publish(uid)

    def _beside_earlier_reading(self, record: PodRecord, known: PodRecord) -> PodRecord:
        """Return what counts for a bound pod whose allocation may have been edited since the last reading."""
        # An assumed allocation is no reading: the pod's own annotation wins over it.
        if self._cache.state(record.uid) is PodState.ASSUMED or known.node != record.node:
            return record
        return record.edited_after(known) if known.readable and record.readable else record

    def _tell_freed(self, before: PodRecord | None, uid: str) -> None:
        """Publish the node on which a pod holds less than before, or other cards."""
        after = self._records.get(uid)
        if before is None or before is after or before.node is None:
            return
        if after is None or after.node != before.node or after.held != before.held or after.blocks != before.blocks:
            self._events.freed.publish(before.node)


def _event_of(pod: Pod) -> PodEvent:
    if pod.terminal:
        return PodEvent.ENDED
    return PodEvent.SEEN_UNBOUND if pod.node is None else PodEvent.SEEN_BOUND
