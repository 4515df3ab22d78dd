"""Usage records of one cluster: what every pod and VM has had of card models and raw keys, and for how long.

Why it exists: bills and reports need share times time, from what is counted and from nothing that a user can write. It
must not do I/O. Invariants: amounts are those of the cache's records and of the ledger of whole devices; a device that
a VM holds is the VM's, and its launchers have only what they request beyond; one function opens, changes and closes.

What happens to pods comes in watch events, which must be quick, so it is noted with its time and added up later, in
short steps. What concerns whole devices is rare, and added up at once: there one pod's share depends on others.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from accounting.answers import raw_request
from accounting.holders import Owner, Phase, RawDevices, Record, Subject, UsageRecords, VmiKey, split_by_phase
from accounting.holdings import DeviceUse
from accounting.pod_info import NOT_STARTED
from accounting.pod_record import PodRecord, State
from accounting.pod_state import PodState
from accounting.state.cache import Cache
from extender.cluster.events import Events
from extender.cluster.registry import PodRegistry

Held = dict[tuple[Subject, Phase], tuple[int, ...]]
_NS = 10**9
_PER_STEP = 200
_COUNTED = frozenset({PodState.BOUND, PodState.ADDED})
#: A card that its node does not register any more has no model that could be looked up.
UNKNOWN_MODEL = "unknown"


class _Noted(NamedTuple):
    """A pod as it was at some time; without a record it has nothing any more."""

    at_ns: int
    uid: str
    record: PodRecord | None
    started: int


class UsageLedger:
    """The records, and what is still to be added up."""

    def __init__(
        self,
        cache: Cache,
        registry: PodRegistry,
        devices: RawDevices,
        events: Events,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.records = UsageRecords()
        self.now_ns = now_ns
        self._cache = cache
        self._registry = registry
        self._devices = devices
        self._noted: deque[_Noted] = deque()
        self._with_raw: dict[str, str] = {}  # UIDs of pods that request whole devices -> namespace
        self._owners: dict[VmiKey, Owner] = {}
        self._subjects: dict[str, Subject] = {}  # one object per model
        events.changed.subscribe(lambda event: self._pod_changed(event.uid))
        events.machine_changed.subscribe(lambda event: self._machine_changed(event.key, event.listed))

    def take_up(self, records: Iterable[Record]) -> None:
        """Go on with the records of an earlier process, and with what is known already."""
        self.records.restore(records)
        for uid in list(self._cache.pods):
            self._pod_changed(uid)
        for vmi in list(self._devices.vmis()):
            self._machine_changed(vmi.key, vmi.active_pods)

    # -- what happens ---------------------------------------------------------------------------------------------

    def _pod_changed(self, uid: str) -> None:
        record = self._cache.pods.get(uid) if self._cache.state(uid) in _COUNTED else None
        pod = self._registry.kept_pod(uid)
        noted = _Noted(self.now_ns(), uid, record, NOT_STARTED if pod is None else pod.started)
        if pod is not None and pod.raw:
            self._with_raw[uid] = pod.namespace
        namespace = self._with_raw.get(uid)
        if namespace is not None:
            if pod is None:
                del self._with_raw[uid]
            self._add(noted)
            self._share_out(self._devices.launcher_of(namespace, uid), noted.at_ns)
        elif record is not None or self.records.is_open(uid) or self._noted:
            self._noted.append(noted)

    def _machine_changed(self, key: VmiKey, listed: frozenset[str]) -> None:
        now = self.now_ns()
        # A pod that another VMI lists too becomes or ceases to be that one's launcher.
        others = {lister for uid in listed for lister in self._devices.listers_of(uid)}
        for each in sorted({key} | others):
            self._share_out(each, now)
        for uid in listed:
            if self._devices.pod(uid) is not None:
                self._put_pod(uid, now)

    def _share_out(self, key: VmiKey | None, now_ns: int) -> None:
        """Record what a VM holds, and what its launchers have beyond that."""
        if key is None:
            return
        vmi = self._devices.vmi(key)
        if vmi is None:
            gone = self._owners.pop(key, None)
            if gone is not None:
                self.records.close(gone.uid, now_ns)
            return
        owner = self._owners[key] = Owner("vmi", vmi.namespace, vmi.name, vmi.uid)
        held: Held = {}
        for hold in self._devices.holds().get(key, ()):
            if hold.node is not None:
                place = Subject("raw", hold.key), Phase.STEADY
                held[place] = (held.get(place, (0,))[0] + hold.units,)
        self.records.put(owner, held, now_ns)
        for uid in sorted(vmi.active_pods):
            if self._devices.pod(uid) is not None:
                self._put_pod(uid, now_ns)

    # -- adding up ------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[None]:
        """Add up what was noted, in short steps."""
        while self._noted:
            for _ in range(min(_PER_STEP, len(self._noted))):
                self._add(self._noted.popleft())
            yield

    def catch_up(self) -> None:
        """Add up everything that was noted."""
        for _ in self.steps():
            pass

    def close_unknown(self) -> None:
        """Close the records of owners that are gone, once everything was listed: those of an earlier process."""
        self.catch_up()
        known = {uid for uid in self._cache.pods if self._cache.state(uid) in _COUNTED}
        self.records.close_others(known | {owner.uid for owner in self._owners.values()}, self.now_ns())

    def _add(self, noted: _Noted) -> None:
        if noted.record is None or noted.record.state is State.RELEASED:
            self.records.close(noted.uid, noted.at_ns)
            return
        at_ns = noted.at_ns
        if noted.started != NOT_STARTED and not self.records.knows(noted.uid):
            # It was there before this process was: its status says since when.
            at_ns = min(at_ns, noted.started * _NS)
        self.records.put(_owner(noted.record), self._held(noted.record), at_ns)

    def _put_pod(self, uid: str, now_ns: int) -> None:
        record = self._cache.pods.get(uid)
        if record is not None and self._cache.state(uid) in _COUNTED:
            pod = self._registry.kept_pod(uid)
            self._add(_Noted(now_ns, uid, record, NOT_STARTED if pod is None else pod.started))

    def _held(self, record: PodRecord) -> Held:
        """Return what a pod has now, by subject and phase."""
        peak, steady = self._by_model(record, record.peak), self._by_model(record, record.steady)
        held: Held = {}
        for subject in peak.keys() | steady.keys():
            nothing = (0, 0, 0)
            parts = split_by_phase(
                peak.get(subject, nothing), steady.get(subject, nothing), past_inits=record.state is State.STEADY
            )
            held |= {(subject, phase): amounts for phase, amounts in parts.items()}
        pod = self._registry.kept_pod(record.uid)
        if pod is not None and pod.raw:
            beyond = self._devices.beyond_holds(raw_request(pod, record.node))
            held |= {(Subject("raw", key), Phase.STEADY): (units,) for key, units in beyond.items() if units}
        return held

    def _by_model(self, record: PodRecord, uses: tuple[DeviceUse, ...]) -> dict[Subject, tuple[int, ...]]:
        found: dict[Subject, tuple[int, ...]] = {}
        node = self._cache.nodes.get(record.node or "")
        models = {} if node is None else {device.uuid: device.type for device in node.devices}
        for use in uses:
            model = models.get(use.uuid) or UNKNOWN_MODEL
            subject = self._subjects.setdefault(model, Subject("card", model))
            before = found.get(subject, (0, 0, 0))
            found[subject] = (before[0] + use.slots, before[1] + use.memory, before[2] + use.cores)
        return found


def _owner(record: PodRecord) -> Owner:
    return Owner("pod", record.namespace, record.name, record.uid)
