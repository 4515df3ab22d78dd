"""What a pod holds: one formula for cards, for pod totals and for the API server's charge.

Why it exists: sidecars live as long as the apps, ordinary inits do not, and the order of declaration decides which
containers run at the same time. It must not know cards, capacities or the wire. Invariant, per key and dimension
separately:

    before(i) = sum of the sidecars declared before init i
    steady    = sum of all sidecars + sum of all apps
    peak      = max(steady, max over inits i of (init(i) + before(i)))

Source: component-helpers/resource/helpers.go (AggregateContainerRequests) and KEP-753, applied per card.
A slow reference with the same meaning is `accounting.reference.state`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import add
from typing import NamedTuple

from accounting.demand import ContainerDemand
from accounting.pod import Allocation, Container, ContainerKind, DeviceRow

#: A key (card UUID, resource name or "") and its amounts, one per dimension.
Amounts = tuple[int, ...]
Uses = Iterable[tuple[str, Amounts]]

EXCLUSIVE_CORES = 100
#: Holds rows of which nobody can tell whose they are, as long as the pod lives: as an app does.
_WHOLE_POD = ContainerDemand(ContainerKind.APP)


class Resources(NamedTuple):
    """Three integers of one card: slots, memory in MiB, cores in percent of a card."""

    slots: int
    memory: int
    cores: int


class Total(NamedTuple):
    """A pod's total without regard to cards: count of cards, memory in MiB, cores in percent."""

    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    memory: int = 0
    cores: int = 0


class DeviceUse(NamedTuple):
    """What a pod holds on one card in one state."""

    uuid: str
    slots: int
    memory: int
    cores: int
    exclusive: bool = False
    """Some row in a held phase has cores 100: nobody else may join."""
    crowded: bool = False
    """In one and the same phase the pod itself puts another row beside its exclusive one."""


class Held(NamedTuple):
    """What a pod holds by its rows: per card, sorted by UUID, and in total, at its peak and in its steady state."""

    peak: tuple[DeviceUse, ...] = ()
    steady: tuple[DeviceUse, ...] = ()
    total_peak: Total = Total()
    total_steady: Total = Total()


def held_by(containers: tuple[Container, ...], allocation: Allocation) -> Held:
    """Return what a pod with these containers holds by its rows."""
    peak, steady = device_uses(containers, allocation)
    if len(peak) == 1:
        return Held(peak, steady, _one_card_total(peak), _one_card_total(steady))
    return Held(peak, steady, *pod_total(containers, allocation))


def held_on_one_card(card: str, peak: tuple[int, int, int], steady: tuple[int, int, int]) -> Held:
    """Return what a pod holds if all of its rows are on one card and none is exclusive.

    The peak is at least one slot.
    """
    steady_use = (DeviceUse(card, *steady),) if steady[0] else ()
    if peak == steady:
        # Most pods hold the same in both; then it is one object.
        total = shared_total(*peak)
        return Held(steady_use, steady_use, total, total)
    return Held((DeviceUse(card, *peak),), steady_use, shared_total(*peak), shared_total(*steady))


def peak_and_steady(containers: Iterable[tuple[ContainerKind, Uses]]) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
    """Apply the formula. `containers`: kind and uses of every container, init containers first, in spec order.

    Returns the peak and the steady amounts per key. A key that only ordinary inits use is missing from steady; an
    explicit 0 is kept.
    """
    steady: dict[str, Amounts] = {}
    peak: dict[str, Amounts] = {}
    for kind, uses in containers:
        if kind is ContainerKind.INIT:
            own: dict[str, Amounts] = {}
            _add(own, uses)
            for key, amounts in own.items():
                before = steady.get(key)
                _raise_to(peak, key, amounts if before is None else tuple(map(add, amounts, before)))
        else:
            # Until the first app, `steady` is the running sum of the sidecars declared so far: before(i).
            _add(steady, uses)
    if not peak:
        return steady, steady
    for key, amounts in steady.items():
        _raise_to(peak, key, amounts)
    return peak, steady


def device_uses(
    containers: Sequence[Container | ContainerDemand], allocation: Allocation
) -> tuple[tuple[DeviceUse, ...], tuple[DeviceUse, ...]]:
    """Return what the allocation holds per card at its peak and in its steady state, sorted by UUID."""
    containers = _holders(containers, allocation)
    if (uses := _on_one_card(containers, allocation)) is not None:
        return uses
    kinds = [container.kind for container in containers]
    rows = list(zip(kinds, allocation, strict=True))
    peak, steady = peak_and_steady(
        (kind, ((row.uuid, (1, row.memory, row.cores)) for row in own)) for kind, own in rows
    )
    if not any(row.cores >= EXCLUSIVE_CORES for own in allocation for row in own):
        held = _plain(peak)
        # Most pods hold the same in both; then it is one object.
        return held, held if steady == peak else _plain(steady)
    phases = _phases(rows)
    return _marked(peak, phases), _marked(steady, phases[-1:])


def _on_one_card(
    containers: Sequence[Container | ContainerDemand], allocation: Allocation
) -> tuple[tuple[DeviceUse, ...], tuple[DeviceUse, ...]] | None:
    """Return `device_uses` of a pod with at most one row a container, all on one card, none exclusive; else None.

    This covers nearly all pods, in a fraction of the time.
    """
    card = ""
    slots = memory = cores = 0
    highest = 0, 0, 0
    for container, own in zip(containers, allocation, strict=True):
        if not own:
            continue
        uuid, row_memory, row_cores = own[0]
        if len(own) > 1 or row_cores >= EXCLUSIVE_CORES or uuid != (card or uuid):
            return None
        card = uuid
        with_row = slots + 1, memory + row_memory, cores + row_cores
        if container.kind is ContainerKind.INIT:
            highest = with_row if highest == (0, 0, 0) else _higher(highest, with_row)
        else:
            slots, memory, cores = with_row
    if not card:
        return (), ()
    steady = (DeviceUse(card, slots, memory, cores),) if slots else ()
    peak = _higher(highest, (slots, memory, cores))
    return (steady if peak == (slots, memory, cores) else (DeviceUse(card, *peak),)), steady


def _higher(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def pod_total(containers: Sequence[Container | ContainerDemand], allocation: Allocation) -> tuple[Total, Total]:
    """Return the pod's peak and steady total from the rows of its allocation."""
    return _totals(
        (container.kind, (len(own), sum(row.memory for row in own), sum(row.cores for row in own)))
        for container, own in zip(_holders(containers, allocation), allocation, strict=True)
    )


def _holders(
    containers: Sequence[Container | ContainerDemand], allocation: Allocation
) -> Sequence[Container | ContainerDemand]:
    """Return what the entries of an allocation are held by: the containers, and perhaps the pod as a whole."""
    return containers if len(allocation) == len(containers) else (*containers, _WHOLE_POD)


def _one_card_total(uses: tuple[DeviceUse, ...]) -> Total:
    """Return `pod_total` for a pod whose rows are all on one card, from what it holds there."""
    return shared_total(uses[0].slots, uses[0].memory, uses[0].cores) if uses else shared_total()


def requested_total(containers: Sequence[Container | ContainerDemand]) -> tuple[Total, Total]:
    """Return the pod's peak and steady total from its spec: (count, memory x count, cores x count) per container.

    A percentage or a whole card contributes no memory, because its size is unknown until a card is chosen.
    """
    return _totals(
        (container.kind, (request.count, request.memory * request.count, request.cores * request.count))
        for container in containers
        for request in container.requests
    )


def requested_count(containers: Sequence[Container | ContainerDemand]) -> int:
    """Return the peak count of `requested_total`, in a fraction of the time: filter needs it for every question."""
    sidecars_and_apps = highest = 0
    for container in containers:
        count = sum([request.count for request in container.requests])
        if container.kind is ContainerKind.INIT:
            highest = max(highest, sidecars_and_apps + count)
        else:
            sidecars_and_apps += count
    return max(highest, sidecars_and_apps)


def least_total(containers: Sequence[Container | ContainerDemand]) -> tuple[Total, bool]:
    """Return the least that the pod's peak total can be, and whether it is exact.

    Like `requested_total`, but a percentage or a whole card contributes 1 MiB of each card.
    """
    asked = [(container.kind, container.request) for container in containers if container.request is not None]
    peak, _ = _totals(
        (kind, (ask.count, (1 if ask.memory_percentage else ask.memory) * ask.count, ask.cores * ask.count))
        for kind, ask in asked
    )
    return peak, not any(ask.memory_percentage for _, ask in asked)


def _totals(containers: Iterable[tuple[ContainerKind, Amounts]]) -> tuple[Total, Total]:
    peak, steady = peak_and_steady((kind, (("", amounts),)) for kind, amounts in containers)
    return shared_total(*peak.get("", ())), shared_total(*steady.get("", ()))


#: Pods ask for the same again and again; equal totals are one object.
shared_total = lru_cache(maxsize=16_384)(Total)


def _phases(rows: list[tuple[ContainerKind, tuple[DeviceRow, ...]]]) -> list[list[tuple[str, int]]]:
    """Return the (uuid, cores) rows alive together: one list per ordinary init, the last for the steady state."""
    phases: list[list[tuple[str, int]]] = []
    alive: list[tuple[str, int]] = []
    for kind, own in rows:
        pairs = [(row.uuid, row.cores) for row in own]
        if kind is ContainerKind.INIT:
            phases.append([*alive, *pairs])
        else:
            alive.extend(pairs)
    return [*phases, alive]


def _marked(amounts: dict[str, Amounts], phases: list[list[tuple[str, int]]]) -> tuple[DeviceUse, ...]:
    exclusive: set[str] = set()
    crowded: set[str] = set()
    for phase in phases:
        here = {uuid for uuid, cores in phase if cores >= EXCLUSIVE_CORES}
        exclusive |= here
        rows_on = Counter(uuid for uuid, _ in phase)
        crowded |= {uuid for uuid in here if rows_on[uuid] > 1}
    return tuple(
        DeviceUse(uuid, slots, memory, cores, uuid in exclusive, uuid in crowded)
        for uuid, (slots, memory, cores) in sorted(amounts.items())
    )


def _plain(amounts: dict[str, Amounts]) -> tuple[DeviceUse, ...]:
    return tuple(DeviceUse(uuid, slots, memory, cores) for uuid, (slots, memory, cores) in sorted(amounts.items()))


def _add(sums: dict[str, Amounts], uses: Uses) -> None:
    for key, amounts in uses:
        known = sums.get(key)
        sums[key] = amounts if known is None else tuple(map(add, amounts, known))


def _raise_to(peak: dict[str, Amounts], key: str, amounts: Amounts) -> None:
    known = peak.get(key)
    peak[key] = amounts if known is None else tuple(map(max, known, amounts))
