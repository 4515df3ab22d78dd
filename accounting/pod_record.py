"""The few numbers that the cache keeps of a pod.

Why it exists: 100,000 pods must fit in memory and an event must cost microseconds, so a pod is boiled down once. It
must not know arrays or nodes' cards. Invariant: a record is a pure function of the pod as it is now.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from accounting.holdings import DeviceUse, Held, Total, held_by, pod_total, requested_total
from accounting.mig_profiles import UNKNOWN, MigInstance
from accounting.pod import Allocation, DeviceRow, Pod, UnreadableAllocation, further_rows, is_ambiguous
from accounting.quota_scope import PodScope
from accounting.status import Problem, ProblemCode
from accounting.vendor import DEFAULT_VENDOR_KEY
from accounting.vendor_part import part_of, requested_vendors, rows_of

_NOTHING_HELD = Held()


class State(StrEnum):
    """Which of its numbers a pod holds now."""

    PEAK = "peak"
    STEADY = "steady"
    RELEASED = "released"


class VendorTotals(NamedTuple):
    """A pod's totals over one vendor's cards."""

    vendor: str
    peak: Total
    steady: Total


class PodRecord(NamedTuple):
    """One pod: where it is and what it holds in each state."""

    uid: str
    namespace: str
    name: str
    node: str | None
    state: State
    peak: tuple[DeviceUse, ...] = ()
    steady: tuple[DeviceUse, ...] = ()
    total_peak: Total = Total()
    total_steady: Total = Total()
    blocks: tuple[str, ...] | None = None
    """None: blocks nothing. Else the allocation cannot be read and these cards are blocked.

    Empty, or none of them on the node: the whole node is blocked.
    """
    problem: Problem | None = None
    readable: bool = False
    """The allocation could be read (or there is none and none is needed)."""
    edited: bool = False
    """The allocation changed after the pod was bound; see `edited_after`."""
    scope: PodScope = PodScope()
    """By what a ResourceQuota with scopes selects the pod."""
    cpu_milli: int = 0
    vendor: str = DEFAULT_VENDOR_KEY
    """Key of the vendor whose cards it is about, if it is about one vendor's."""
    instances: tuple[tuple[str, tuple[MigInstance, ...]], ...] = ()
    """Card UUID -> its rows' parts of the card, of cards where some row has one."""
    several: tuple[VendorTotals, ...] = ()
    """Its totals by vendor, if it is about cards of several vendors; `total_peak` and `total_steady` are over all."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def held(self) -> tuple[DeviceUse, ...]:
        """What the pod holds now, per card."""
        if self.state is State.RELEASED:
            return ()
        return self.peak if self.state is State.PEAK else self.steady

    @property
    def vendor_totals(self) -> "tuple[VendorTotals, ...]":
        """Its totals by vendor."""
        return self.several or (VendorTotals(self.vendor, self.total_peak, self.total_steady),)

    @property
    def held_totals(self) -> tuple[tuple[str, Total], ...]:
        """What a namespace's quotas are charged for the pod now, by vendor key."""
        if not self.several:
            return ((self.vendor, self.held_total),)
        if self.state is State.RELEASED:
            return ()
        return tuple((vendor, peak if self.state is State.PEAK else steady) for vendor, peak, steady in self.several)

    @property
    def held_total(self) -> Total:
        """What a namespace's quota is charged for the pod now."""
        if self.state is State.RELEASED:
            return Total()
        return self.total_peak if self.state is State.PEAK else self.total_steady

    def in_state(self, state: State) -> "PodRecord":
        """Return the record of the same pod in another state. What `_replace` does, in a fraction of its time."""
        return PodRecord(
            self.uid,
            self.namespace,
            self.name,
            self.node,
            state,
            self.peak,
            self.steady,
            self.total_peak,
            self.total_steady,
            self.blocks,
            self.problem,
            self.readable,
            self.edited,
            self.scope,
            self.cpu_milli,
            self.vendor,
            self.instances,
            self.several,
        )

    def with_allocation_of(self, earlier: "PodRecord") -> "PodRecord":
        """Return this record with the cards that an earlier reading of the same pod named; see `Cache.update_pod`."""
        return self._replace(
            peak=earlier.peak,
            steady=earlier.steady,
            total_peak=earlier.total_peak,
            total_steady=earlier.total_steady,
            blocks=None,
            readable=True,
            edited=earlier.edited,
            vendor=earlier.vendor,
            instances=earlier.instances,
            several=earlier.several,
        )

    def edited_after(self, earlier: "PodRecord") -> "PodRecord":
        """Return this record beside an earlier reading of the same bound pod.

        A pod's cards do not change after its Binding, so an allocation that does is suspect: per card and dimension the
        larger of both readings counts for as long as the process lives, and the edit is a problem.
        """
        same = (self.peak, self.steady, self.instances) == (earlier.peak, earlier.steady, earlier.instances)
        if not earlier.edited and same:
            return self
        message = "was edited after the pod was bound; per card the larger of both readings counts"
        peak = _larger(self.peak, earlier.peak)
        # Without inits a pod holds the same in both states, which is worked out once then.
        is_one = self.steady is self.peak and earlier.steady is earlier.peak
        return self._replace(
            peak=peak,
            steady=peak if is_one else _larger(self.steady, earlier.steady),
            # Without instances it holds all of a card in MIG mode.
            instances=self.instances if self.instances == earlier.instances else (),
            total_peak=Total(*map(max, self.total_peak, earlier.total_peak)),
            total_steady=Total(*map(max, self.total_steady, earlier.total_steady)),
            several=_larger_totals(self, earlier),
            problem=Problem(ProblemCode.UNDECODABLE_ALLOCATION, f"pod {self.key}", message),
            edited=True,
        )


def pod_state(pod: Pod) -> State:
    """Return which numbers the pod holds by its phase and its inits."""
    if pod.terminal:
        return State.RELEASED
    return State.STEADY if pod.inits_over else State.PEAK


def record_pod(pod: Pod, rows: Allocation | UnreadableAllocation | Held | None = None) -> PodRecord:
    """Boil a pod down. `rows`: its allocation, if the pod is given without, or what it holds by that.

    A bound pod that asks for cards and whose allocation is missing or unreadable holds nothing that can be counted and
    blocks instead; its total comes from its spec.
    """
    if isinstance(rows, Held):
        return _record(pod, rows)
    allocation = pod.allocation if rows is None else rows
    if allocation is None or isinstance(allocation, UnreadableAllocation):
        return _record_without_cards(pod if rows is None else pod.with_allocation(allocation))
    held = held_by(pod.containers, allocation)
    if is_ambiguous(allocation, pod.containers):
        return _record_of(pod, allocation, held)._replace(problem=_ambiguous(pod, allocation))
    return _record_of(pod, allocation, held)


def _record_of(pod: Pod, allocation: Allocation, held: Held) -> PodRecord:
    """Return the record of a pod that holds this by these rows."""
    further = further_rows(allocation)
    if not further and requested_vendors(pod) == (DEFAULT_VENDOR_KEY,):
        return _record(pod, held)
    vendors = _vendors(pod, allocation)
    first = vendors[0] if vendors else DEFAULT_VENDOR_KEY
    several = _by_vendor(pod, allocation, vendors) if len(vendors) > 1 else ()
    return _record(pod, held, first, _instances(further), several)


def _record(
    pod: Pod,
    held: Held,
    vendor: str = DEFAULT_VENDOR_KEY,
    instances: tuple[tuple[str, tuple[MigInstance, ...]], ...] = (),
    several: tuple[VendorTotals, ...] = (),
) -> PodRecord:
    """Return the record of a pod whose allocation could be read."""
    # By position: with names it takes twice the time, and every change of a pod comes through here.
    return PodRecord(
        pod.uid,
        pod.namespace,
        pod.name,
        pod.node,
        pod_state(pod),
        *held,
        None,
        None,
        True,  # noqa: FBT003 - readable
        False,  # noqa: FBT003 - edited
        pod.scope,
        0 if pod.terminal else pod.cpu_milli,
        vendor,
        instances,
        several,
    )


def _record_without_cards(pod: Pod) -> PodRecord:
    """Return the record of a pod whose allocation is missing or cannot be read."""
    readable = pod.allocation is None and not pod.asks
    if readable and not pod.further_selections:
        return _record(pod, _NOTHING_HELD)
    suspect = pod.node is not None and not pod.terminal and not readable
    vendors = requested_vendors(pod)
    return _record(pod, Held((), (), *requested_total(pod.containers)))._replace(
        blocks=_blocks(pod) if suspect else None,
        problem=_problem(pod) if suspect else None,
        readable=readable,
        vendor=vendors[0] if vendors else DEFAULT_VENDOR_KEY,
        several=_by_vendor(pod, None, vendors) if len(vendors) > 1 else (),
    )


def _vendors(pod: Pod, allocation: Allocation) -> tuple[str, ...]:
    """Return the keys of the vendors whose cards a pod asks for or holds, those that it asks first."""
    return tuple(dict.fromkeys((*requested_vendors(pod), *(row.vendor for own in allocation for row in own))))


def _instances(rows: Sequence[DeviceRow]) -> tuple[tuple[str, tuple[MigInstance, ...]], ...]:
    cards = sorted({row.uuid for row in rows if row.instance is not None})
    return tuple((uuid, tuple(row.instance or UNKNOWN for row in rows if row.uuid == uuid)) for uuid in cards)


def _by_vendor(pod: Pod, allocation: Allocation | None, vendors: tuple[str, ...]) -> tuple[VendorTotals, ...]:
    """Return a pod's totals by vendor, from its rows or else from its spec."""
    if allocation is None:
        return tuple(VendorTotals(key, *requested_total(part_of(pod, key).containers)) for key in sorted(vendors))
    return tuple(VendorTotals(key, *pod_total(pod.containers, rows_of(allocation, key))) for key in sorted(vendors))


def _larger(one: tuple[DeviceUse, ...], other: tuple[DeviceUse, ...]) -> tuple[DeviceUse, ...]:
    """Return per card the larger of two uses in every dimension, sorted by UUID."""
    uses = {use.uuid: use for use in other}
    for use in one:
        also = uses.get(use.uuid)
        if use != also:
            uses[use.uuid] = use if also is None else _max(use, also)
    return tuple([uses[uuid] for uuid in sorted(uses)])


def _larger_totals(one: PodRecord, other: PodRecord) -> tuple[VendorTotals, ...]:
    """Return per vendor the larger of both totals; empty if both are about the same one vendor."""
    if not (one.several or other.several) and one.vendor == other.vendor:
        return ()
    totals = {each.vendor: each for each in other.vendor_totals}
    for vendor, peak, steady in one.vendor_totals:
        _, also_peak, also_steady = totals.get(vendor, VendorTotals(vendor, Total(), Total()))
        larger = Total(*map(max, peak, also_peak)), Total(*map(max, steady, also_steady))
        totals[vendor] = VendorTotals(vendor, *larger)
    return tuple(totals[vendor] for vendor in sorted(totals))


def _max(one: DeviceUse, other: DeviceUse) -> DeviceUse:
    return DeviceUse(
        one.uuid,
        max(one.slots, other.slots),
        max(one.memory, other.memory),
        max(one.cores, other.cores),
        one.exclusive or other.exclusive,
        one.crowded or other.crowded,
    )


def _ambiguous(pod: Pod, allocation: Allocation) -> Problem | None:
    if pod.terminal:
        return None
    message = (
        f"has an allocation of which nobody can tell whose {len(allocation[-1])} of its cards are: "
        "its rows are neither one per container, nor one per container that asks for cards, nor one per app; "
        "the pod holds all of them from start to end"
    )
    return Problem(ProblemCode.AMBIGUOUS_ALLOCATION, f"pod {pod.key}", message)


def _blocks(pod: Pod) -> tuple[str, ...] | None:
    if not pod.asks:
        return None
    if isinstance(pod.allocation, UnreadableAllocation):
        return pod.allocation.readable_uuids
    return () if pod.allocation is None else None


def _problem(pod: Pod) -> Problem | None:
    if isinstance(pod.allocation, UnreadableAllocation):
        return Problem(ProblemCode.UNDECODABLE_ALLOCATION, f"pod {pod.key}", str(pod.allocation.why))
    if pod.allocation is None and pod.asks:
        message = f"is bound to node {pod.node} and asks for cards, but its allocation annotation is absent or empty"
        return Problem(ProblemCode.MISSING_ALLOCATION, f"pod {pod.key}", message)
    return None
