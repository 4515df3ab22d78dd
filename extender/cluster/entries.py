"""The kept pods, by UID and by name.

Why it exists: an entry, its name, its place in the order of forgetting and the API server's charge for it must come and
go together. It must not know bookings, nor how pods become known. Invariants: a UID has at most one entry; a name leads
to an entry; after `drop` nothing of the UID is left here; whether a pod waits is noted whenever it changes.
"""

from collections import OrderedDict
from collections.abc import KeysView, ValuesView

from accounting.pod import Pod
from extender.cluster.apicharges import ApiCharges
from extender.cluster.entry import Heard, PodEntry, packed, waits
from extender.cluster.names import NameIndex


class Entries:
    """One entry per UID."""

    def __init__(self) -> None:
        self.charges = ApiCharges()
        self.changes = 0
        """How often a pod was kept or dropped so far."""
        self.by_uid: dict[str, PodEntry] = {}
        """To be read only."""
        self.names = NameIndex()
        self._asked: OrderedDict[str, None] = OrderedDict()  # UIDs that only filter asked about, longest ago first
        self.waiting: dict[str, None] = {}
        """The UIDs of the pods that ask for cards or whole devices and are on no node."""

    def __contains__(self, uid: object) -> bool:
        return uid in self.by_uid

    def __len__(self) -> int:
        return len(self.by_uid)

    def keys(self) -> KeysView[str]:
        """Return all UIDs."""
        return self.by_uid.keys()

    def values(self) -> ValuesView[PodEntry]:
        """Return all entries."""
        return self.by_uid.values()

    def get(self, uid: str) -> PodEntry | None:
        """Return the entry of a pod."""
        return self.by_uid.get(uid)

    def holder(self, namespace: str, name: str) -> PodEntry | None:
        """Return the entry of the pod that has a name."""
        uid = self.names.uid(namespace, name)
        return None if uid is None else self.by_uid[uid]

    def asked_longest_ago(self, most: int) -> str | None:
        """Return the pod that filter asked about longest ago, if more pods than that are known only from filter."""
        return next(iter(self._asked)) if len(self._asked) > most else None

    def keep(self, pod: Pod, heard: Heard, *, takes_name: bool) -> PodEntry:
        """Keep a pod. `takes_name`: also take its name from another pod."""
        uid = pod.uid
        entry, pod = self.by_uid.get(uid), packed(pod)
        if entry is None:
            entry = self.by_uid[uid] = PodEntry(pod, heard)
            if pod.api_charge:
                self.charges.change(None, pod)
            if waits(pod):
                self.waiting[uid] = None
        else:
            if (entry.pod.name, entry.pod.namespace) != (pod.name, pod.namespace):
                self.names.drop(entry.pod)
            self.charges.change(entry.pod, pod)
            entry.pod = pod
            self._note_waiting(pod)
        self.names.put(pod, takes_over=takes_name)
        if heard is not entry.heard or heard is Heard.QUESTION:
            self.hear(entry, heard)
        self.changes += 1
        return entry

    def change(self, entry: PodEntry, pod: Pod) -> None:
        """Replace a kept pod by one that has the same name and is charged the same."""
        entry.pod = pod
        self._note_waiting(pod)

    def ask_again(self, entry: PodEntry) -> None:
        """Note that filter asked about an unchanged pod again, which is known from filter only."""
        self.names.put(entry.pod, takes_over=False)
        self._asked.move_to_end(entry.pod.uid)

    def hear(self, entry: PodEntry, heard: Heard) -> None:
        """Note where a pod is known from."""
        uid = entry.pod.uid
        if entry.heard is Heard.QUESTION:
            self._asked.pop(uid, None)
        if heard is Heard.QUESTION:
            self._asked[uid] = None
        entry.heard = heard

    def drop(self, uid: str) -> None:
        """Drop a pod."""
        entry = self.by_uid.pop(uid)
        self.changes += 1
        self.names.drop(entry.pod)
        self._asked.pop(uid, None)
        self.waiting.pop(uid, None)
        self.charges.change(entry.pod, None)

    def _note_waiting(self, pod: Pod) -> None:
        if waits(pod):
            self.waiting[pod.uid] = None
        else:
            self.waiting.pop(pod.uid, None)
