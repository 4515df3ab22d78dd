"""What is held for VMs: the sets of one cluster, the objects that tell of them, and what decides where they are.

Why it exists: holds come from VMIs' specs or from objects of their own, and are moved by passes; all of that must reach
the ledger, and those who wait for what becomes free. It must not know the wire. Invariants: the ledger has what is kept
in the same step; with hold sets off nothing is decided, and all that is told still counts and ends; an object's own
word on where a hold is counts when it is first told, and when this replica takes over: only the leader writes it.
"""

from collections.abc import Iterator

from accounting.holders import Hold, HoldState, KeptSet, LedgerPlaces, RawDevices, VmiKey, bind_set, full_pass
from accounting.holders.hold_sets import HoldSet
from accounting.pod import Pod
from accounting.status import Problem, ProblemCode
from extender.cluster.events import Events

Name = tuple[str, str]
"""Namespace and name of an object that tells of a hold."""


class HoldSets:
    """Sets by VMI."""

    def __init__(self, devices: RawDevices, events: Events, *, decides: bool) -> None:
        """`decides`: whether anything is placed."""
        self.decides = decides
        self._devices = devices
        self._events = events
        self._places = LedgerPlaces(devices)
        self._told: dict[Name, Hold] = {}
        self._of: dict[VmiKey, set[Name]] = {}
        if decides:
            events.assumed.subscribe(lambda event: self.answer(event.pod))

    # -- asking ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many VMs something is held for."""
        return len(self._devices.holds())

    def held(self) -> list[KeptSet]:
        """Return every set, in no order."""
        return [KeptSet(vmi, holds) for vmi, holds in self._devices.holds().items()]

    def names(self) -> set[Name]:
        """Return the objects that tell of holds."""
        return set(self._told)

    def told(self, name: Name) -> Hold | None:
        """Return a hold as its object says it."""
        return self._told.get(name)

    def unwritten(self) -> list[Name]:
        """Return the objects that do not say where their holds are, sorted."""
        return sorted(name for name in self._told if self.decided(name) is not None)

    def decided(self, name: Name) -> Hold | None:
        """Return a hold as its object should say it; None if it says so, or there is no such object."""
        told = self._told.get(name)
        if told is None:
            return None
        kept = next((hold for hold in self._devices.holds().get(told.vmi, ()) if hold.name == told.name), told)
        return None if (told.node, told.state) == (kept.node, kept.state) else kept

    def problems(self) -> Iterator[Problem]:
        """Yield the sets that have no node though they had one."""
        for vmi, holds in self._devices.holds().items():
            for hold in holds:
                if hold.state is HoldState.LOST:
                    break
            else:
                continue
            lost = [hold for hold in holds if hold.state is HoldState.LOST]
            if lost:
                wanted = ", ".join(f"{hold.units} of {hold.key}" for hold in lost)
                message = f"no node has room for what is held for it: {wanted}"
                yield Problem(ProblemCode.LOST_HOLDS, f"vmi {vmi.namespace}/{vmi.name}", message)

    # -- objects that tell of holds -------------------------------------------------------------------------------

    def put(self, hold: Hold) -> None:
        """Record a hold as its object says it; `hold.name` is the object's."""
        name = (hold.vmi.namespace, hold.name)
        before = self._told.get(name)
        if before == hold:
            return
        self._told[name] = hold
        if before is not None and before.vmi != hold.vmi:
            self._drop(name, before.vmi)
        self._of.setdefault(hold.vmi, set()).add(name)
        self._compose(hold.vmi)

    def remove(self, name: Name) -> None:
        """Record that an object is gone."""
        known = self._told.pop(name, None)
        if known is not None:
            self._drop(name, known.vmi)

    def _drop(self, name: Name, vmi: VmiKey) -> None:
        own = self._of[vmi]
        own.discard(name)
        if not own:
            del self._of[vmi]
        self._compose(vmi)

    def _compose(self, vmi: VmiKey) -> None:
        """Let the ledger have a VM's set, each hold where it was decided to be."""
        kept = {hold.name: hold for hold in self._devices.holds().get(vmi, ())}
        now = []
        for name in sorted(self._of.get(vmi, ())):
            told, known = self._told[name], kept.get(name[1])
            follows = known is None or not self.decides
            now.append(told if follows or known is None else told._replace(node=known.node, state=known.state))
        self._change(vmi, tuple(now))

    def take_over(self) -> None:
        """Let every hold be where its object says: another replica wrote that last."""
        for vmi in sorted(self._of):
            before = self._devices.holds().get(vmi, ())
            told = tuple(self._told[name] for name in sorted(self._of[vmi]))
            if told != before:
                self._devices.put_holds(vmi, told)
                self._decided(vmi, before)

    # -- deciding -------------------------------------------------------------------------------------------------

    def full_pass(self) -> Iterator[None]:
        """Do all that is to be done, yielding after each set; between two steps anything may change."""
        before = dict(self._devices.holds())
        sets = self._devices.holds()
        for key in full_pass(sets, self._places, lambda _, __: None):
            if key is not None:
                self._decided(key, before.get(key, ()))
                before[key] = sets.get(key, ())
            yield

    def answer(self, pod: Pod) -> None:
        """Let what is held for a launcher's VM be where a bind has just put the launcher, if all of it has room there.

        This is all that a bind waits for.
        """
        key = self._devices.launcher_of(pod.namespace, pod.uid) if pod.raw and pod.node is not None else None
        holds = self._devices.holds().get(key, ()) if key is not None else ()
        if key is not None and holds and bind_set(holds, str(pod.node), self._places) != holds:
            self._decided(key, holds)

    def decide(self, vmi: VmiKey, holds: HoldSet) -> None:
        """Take over what was decided, as a journal says it."""
        self._change(vmi, holds)

    def _decided(self, key: VmiKey, before: HoldSet) -> None:
        now = self._devices.holds().get(key, ())
        self._events.holds_decided.publish(key, now)
        self._tell(key, before, now)

    def _change(self, vmi: VmiKey, holds: HoldSet) -> None:
        before = self._devices.holds().get(vmi, ())
        if holds != before:
            self._devices.put_holds(vmi, holds)
            self._tell(vmi, before, holds)

    def _tell(self, vmi: VmiKey, before: HoldSet, now: HoldSet) -> None:
        """Tell where something may have become free, and who has changed."""
        for node in sorted({hold.node for hold in before if hold.node is not None} - {hold.node for hold in now}):
            self._events.freed.publish(node)
        known = self._devices.vmi(vmi)
        self._events.machine_changed.publish(vmi, frozenset() if known is None else known.active_pods)
