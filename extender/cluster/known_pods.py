"""What is known of pods, for those who ask.

Why it exists: many parts ask about pods, and only few tell of them. It must not change what is known; the registry
does. Invariant: asking changes nothing.
"""

from collections.abc import Iterator, KeysView

from accounting.answers import Claims
from accounting.pod import Pod
from accounting.pod_record import PodRecord
from accounting.pod_state import PodState
from accounting.state import Moment, Moments
from accounting.state.cache import Cache
from extender.cluster.apicharges import ApiCharges
from extender.cluster.entries import Entries
from extender.cluster.entry import Heard, PodEntry, unpacked
from extender.cluster.podfacts import PodFacts

KeptPod = tuple[Pod, PodRecord | None]
"""A pod as it is kept, its rows still packed, and its record in the cache, if it has one."""


class KnownPods:
    """All known pods, by UID: their entries, their bookings in the cache, and their claims, if claims are kept."""

    def __init__(self, cache: Cache, claims: Claims | None) -> None:
        self.claims = claims
        self._cache = cache
        self._entries = Entries()
        self._moments = Moments(self._kept_pod)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def charges(self) -> ApiCharges:
        """What the API server's quotas charge for the pods."""
        return self._entries.charges

    @property
    def changes(self) -> int:
        """How often a pod was kept or dropped so far."""
        return self._entries.changes

    @property
    def uids(self) -> KeysView[str]:
        """The UIDs of all pods that concern cards."""
        return self._entries.keys()

    def watched(self) -> set[str]:
        """Return the UIDs of all pods that a list would name, those without cards included."""
        return self._entries.keys() | self._cache.cardless_pods

    def is_cardless(self, uid: str) -> bool:
        """Whether a pod is counted for its CPU alone."""
        return self._cache.is_cardless(uid)

    def entry(self, uid: str) -> PodEntry | None:
        """Return what is known of a pod."""
        return self._entries.by_uid.get(uid)

    def pod(self, uid: str) -> Pod | None:
        """Return a pod with its rows."""
        entry = self._entries.get(uid)
        return None if entry is None else unpacked(entry.pod)

    def named(self, namespace: str, name: str) -> Pod | None:
        """Return the pod that has a name."""
        holder = self.holder(namespace, name)
        return None if holder is None else unpacked(holder.pod)

    def kept(self) -> list[Pod]:
        """Return every pod in no order, its rows still packed, which is quick; `unpacked` reads them."""
        return [entry.pod for entry in self._entries.values()]

    def waiting(self) -> KeysView[str]:
        """Return the UIDs of the pods that ask for cards or whole devices and are on no node."""
        return self._entries.waiting.keys()

    def moment(self) -> Moment[KeptPod | None]:
        """Return the pods as they are now, for those who look at them one by one, by UID."""
        return self._moments.begin()

    def state(self, uid: str) -> PodState | None:
        """Return a pod's state; None if it is not known."""
        booked = self._cache.state(uid)
        if booked is not None or uid not in self._entries:
            return booked
        is_claimed = self.claims is not None and self.claims.get(uid) is not None
        return PodState.CLAIMED if is_claimed else PodState.KNOWN

    def kept_pod(self, uid: str) -> Pod | None:
        """Return a pod as it is kept, its rows still packed, which is quick."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.pod

    def holder(self, namespace: str, name: str) -> PodEntry | None:
        """Return what is known of the pod that has a name."""
        return self._entries.holder(namespace, name)

    def is_heard_of(self, uid: str, heard: Heard) -> bool:
        """Whether a pod was last seen in that way."""
        entry = self._entries.get(uid)
        return entry is not None and entry.heard is heard

    def heard_of(self, heard: Heard) -> set[str]:
        """Return the UIDs of the pods that were last seen in that way."""
        return {entry.pod.uid for entry in self._entries.values() if entry.heard is heard}

    def facts(self, uid: str) -> PodFacts | None:
        """Return what a live cluster knows of a pod in addition; None if nothing."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.facts

    def version(self, uid: str) -> str:
        """Return the newest resourceVersion that is known of a pod, "" if none is."""
        facts = self.facts(uid)
        return "" if facts is None else facts.resource_version

    def unbound(self) -> Iterator[tuple[str, PodFacts]]:
        """Yield the pods that were last seen without a node and have no booking."""
        for entry in self._entries.values():
            facts, uid = entry.facts, entry.pod.uid
            if facts is not None and not facts.bound and self._cache.state(uid) is None:
                yield uid, facts

    def _kept_pod(self, uid: str) -> KeptPod | None:
        entry = self._entries.get(uid)
        return None if entry is None else (entry.pod, self._cache.pods.get(uid))
