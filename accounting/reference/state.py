"""The slow reference of what pods hold and what cards have left, in plain Python, one card and one pod at a time.

Why it exists: tests and benchmarks compare the fast code with it, so it follows the words of the rules and never the
shape of that code. It must not know arrays, records or caches; it takes nodes and pods as they are now. Invariant:
everything is computed anew from the objects, so no history can matter. Only tests and benchmarks may use it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from accounting.node import Device, Node
from accounting.pod import Allocation, ContainerKind, DeviceRequest, DeviceRow, Pod

#: A row with this many cores takes the card for itself.
ALONE = 100


class Amounts(NamedTuple):
    """Slots (or a number of cards), memory in MiB, cores in percent."""

    slots: int = 0
    memory: int = 0
    cores: int = 0


def add(*parts: Amounts) -> Amounts:
    """Return the sums, dimension by dimension."""
    if len(parts) == 1:
        return parts[0]
    slots = memory = cores = 0
    for part in parts:
        slots, memory, cores = slots + part[0], memory + part[1], cores + part[2]
    return Amounts(slots, memory, cores)


def _most(*parts: Amounts) -> Amounts:
    slots = memory = cores = 0
    for part in parts:
        slots, memory, cores = max(slots, part[0]), max(memory, part[1]), max(cores, part[2])
    return Amounts(slots, memory, cores)


def less(whole: Amounts, part: Amounts) -> Amounts:
    """Return the differences, dimension by dimension."""
    return Amounts(whole[0] - part[0], whole[1] - part[1], whole[2] - part[2])


# -- what one pod holds ------------------------------------------------------------------------------------------------


class Holding(NamedTuple):
    """What a pod holds on one card, or in total: in its two states, and now."""

    peak: Amounts
    steady: Amounts
    held: Amounts


def card_holdings(pod: Pod) -> dict[str, Holding]:
    """Return what a pod holds on each card that its allocation names."""
    rows = _rows(pod)
    uuids = sorted({row.uuid for own in rows for row in own})
    return {u: _holding(pod, [add(*[amounts_of(row) for row in own if row.uuid == u]) for own in rows]) for u in uuids}


def total_holding(pod: Pod) -> Holding:
    """Return what a pod holds in total: by its rows, or by its spec where they cannot be read."""
    rows = _rows(pod)
    return _holding(pod, [add(*map(amounts_of, own)) for own in rows]) if rows else requested_holding(pod)


def requested_holding(pod: Pod) -> Holding:
    """Return the total by the spec: count, memory x count, cores x count; a percentage has no memory of its own."""
    asked = [container.request or DeviceRequest(0, 0, 0, 0) for container in pod.containers]
    return _holding(pod, [Amounts(ask.count, ask.memory * ask.count, ask.cores * ask.count) for ask in asked])


def _holding(pod: Pod, own: Sequence[Amounts]) -> Holding:
    """Apply the rule. `own`: what each container uses."""
    kinds = _kinds(pod, own)
    steady = peak = add(*[part for kind, part in zip(kinds, own, strict=True) if kind is not ContainerKind.INIT])
    for i, kind in enumerate(kinds):
        if kind is ContainerKind.INIT:
            before = [own[j] for j in range(i) if kinds[j] is ContainerKind.SIDECAR]
            peak = _most(peak, add(own[i], *before))
    return Holding(peak, steady, Amounts() if pod.terminal else steady if pod.inits_over else peak)


def _held_phases(pod: Pod) -> Iterator[list[DeviceRow]]:
    """Yield the rows that are alive together, for every phase that the pod's state still holds."""
    held = () if pod.terminal else _rows(pod)
    rows = list(zip(_kinds(pod, held), held, strict=True))
    for i, (kind, own) in enumerate(rows):
        if kind is ContainerKind.INIT and not pod.inits_over:
            yield [*own, *(row for before, more in rows[:i] if before is ContainerKind.SIDECAR for row in more)]
    yield [row for kind, own in rows if kind is not ContainerKind.INIT for row in own]


def _kinds(pod: Pod, own: Sequence[object]) -> list[ContainerKind]:
    """Return the kind of what each entry is held by. Rows of unknown containers are held as an app's are."""
    return [each.kind for each in pod.containers][: len(own)] + [ContainerKind.APP] * (len(own) - len(pod.containers))


def _rows(pod: Pod) -> Allocation:
    return pod.allocation if isinstance(pod.allocation, tuple) else ()


def amounts_of(row: DeviceRow) -> Amounts:
    """Return what one row takes of its card."""
    return Amounts(1, row.memory, row.cores)


# -- what the cards of a cluster have left -----------------------------------------------------------------------------


class Card(NamedTuple):
    """One card of one node. An orphan is held but not registered, so its capacity is 0."""

    position: int
    device: Device
    orphan: bool
    capacity: Amounts
    requested: Amounts
    exclusive: bool
    overcommitted: bool
    blocked: bool


class ClaimedPart(NamedTuple):
    """What a DRA claim holds on a card by one result."""

    amounts: Amounts
    closed: bool
    """No pod may join: the card is taken whole, or is in MIG mode."""
    whole: bool = False


class NodeState(NamedTuple):
    """One node with its cards by UUID, orphans last. `node` is None where the object is gone."""

    node: Node | None
    cards: Mapping[str, Card]
    blocked: bool
    requested_count: int


def cluster_state(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, NodeState]:
    """Return every node that has an object or holds pods."""
    known = {node.name: node for node in nodes}
    bound: dict[str, list[Pod]] = {name: [] for name in known}
    for pod in pods:
        if pod.node is not None and not pod.terminal:
            bound.setdefault(pod.node, []).append(pod)
    return {name: node_state(known.get(name), on) for name, on in bound.items()}


def node_state(
    node: Node | None,
    pods: Sequence[Pod],
    claimed: Mapping[str, Sequence[ClaimedPart]] = MappingProxyType({}),
    *,
    unmapped: bool = False,
) -> NodeState:
    """Return a node as the bound, non-terminal pods on it leave it.

    `claimed`: by UUID, what DRA claims hold. `unmapped`: a claim has a device there that is no known card.
    """
    registered = {} if node is None else {device.uuid: device for device in node.devices}
    held = [{uuid: of.held for uuid, of in card_holdings(pod).items() if any(of.held)} for pod in pods]
    phases = [phase for pod in pods for phase in _held_phases(pod)]
    named = [uuids & registered.keys() for pod in pods if (uuids := _blocked_uuids(pod)) is not None]
    blocked = frozenset(() if node is None else node.duplicated).union(*named)
    orphans = sorted({uuid for own in held for uuid in own} - registered.keys())
    cards = {}
    for position, device in enumerate([*registered.values(), *(Device(uuid, 0, 0, 0, 0) for uuid in orphans)]):
        uuid, capacity = device.uuid, Amounts(device.slots, device.memory, device.cores)
        holders = [own[uuid] for own in held if uuid in own]
        parts = claimed.get(uuid, ()) if uuid in registered else ()
        requested = add(*holders, *(part.amounts for part in parts))
        alone, beside = _exclusive(uuid, len(holders), phases)
        if parts:
            closed = any(part.closed for part in parts)
            conflict = len(parts) > 1 and (any(part.whole for part in parts) or not all(part.closed for part in parts))
            alone, beside = alone or closed, (bool(holders) and (alone or closed)) or beside or (closed and conflict)
        over = beside or min(less(capacity, requested)) < 0
        orphan = uuid not in registered
        cards[uuid] = Card(position, device, orphan, capacity, requested, alone, over, uuid in blocked)
    return NodeState(node, cards, unmapped or not all(named), sum(total_holding(pod).peak.slots for pod in pods))


def namespaces_used(pods: Iterable[Pod]) -> dict[str, Amounts]:
    """Return what each namespace is charged now for its bound pods."""
    used: dict[str, Amounts] = {}
    for pod in pods:
        if pod.node is not None:
            used[pod.namespace] = add(used.get(pod.namespace, Amounts()), total_holding(pod).held)
    return used


def _exclusive(uuid: str, holders: int, phases: list[list[DeviceRow]]) -> tuple[bool, bool]:
    """Return whether some row takes the card for itself, and whether another row is beside it all the same."""
    here = [[row.cores for row in phase if row.uuid == uuid] for phase in phases]
    alone = [cores for cores in here if any(share >= ALONE for share in cores)]
    return bool(alone), bool(alone) and (holders > 1 or any(len(cores) > 1 for cores in alone))


def _blocked_uuids(pod: Pod) -> set[str] | None:
    """Return the UUIDs that can still be read in an allocation that counts for nothing; None if it counts."""
    if not pod.asks or isinstance(pod.allocation, tuple):
        return None
    return set(() if pod.allocation is None else pod.allocation.readable_uuids)
