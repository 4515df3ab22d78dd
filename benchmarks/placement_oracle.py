"""Finds whether a placement exists by trying all of them, and whether a given one is legal.

It exists to judge the fast code. It must share nothing with it but plain values: no arrays, no search. Invariant: the
rules are those of docs/accounting.md, applied to one phase of a pod at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from accounting.holdings import DeviceUse
from accounting.node import Device, Node
from accounting.pod import Allocation, ContainerKind, DeviceRequest, DeviceRow, Pod


class Free(NamedTuple):
    """What a card has left for the pod."""

    device: Device
    used: int
    slots: int
    memory: int
    cores: int


#: A container's place in the pod and the UUIDs of its cards.
Taken = dict[int, tuple[str, ...]]


def cards_of(node: Node, uses: Sequence[DeviceUse], pod: Pod) -> dict[str, Free]:
    """Return the cards of a node that could take any container of this pod."""
    held = {use.uuid: use for use in uses}
    cards = {}
    for device in node.devices:
        use = held.get(device.uuid, DeviceUse(device.uuid, 0, 0, 0))
        free = Free(device, use.slots, device.slots - use.slots, device.memory - use.memory, device.cores - use.cores)
        mutex = pod.policies.card.mutex and use.slots > 0
        if device.healthy and not use.exclusive and not mutex and pod.selection.accepts_uuid(device.uuid):
            cards[device.uuid] = free
    return cards


def phases(pod: Pod) -> list[list[int]]:
    """Return the containers that run together, in spec order: one list per init, then one for sidecars and apps."""
    found: list[list[int]] = []
    alive: list[int] = []
    for place, container in enumerate(pod.containers):
        if container.request is None:
            continue
        if container.kind is ContainerKind.INIT:
            found.append([*alive, place])
        else:
            alive.append(place)
    return [*found, alive]


def exists(node: Node, uses: Sequence[DeviceUse], pod: Pod) -> bool:
    """Try every set of cards for every sidecar and app, and then for every init."""
    cards = cards_of(node, uses, pod)
    *inits, steady = phases(pod)

    def fits(phase: list[int], taken: Taken) -> bool:
        init = phase[-1]
        return any(_legal(phase, taken | {init: own}, cards, pod) for own in _sets(init, cards, node, pod))

    return any(all(fits(phase, taken) for phase in inits) for taken in _ways(steady, {}, cards, node, pod))


def legal(node: Node, uses: Sequence[DeviceUse], pod: Pod, allocation: Allocation) -> bool:
    """Whether rows keep every rule: counts, memory of each card, NUMA, and every phase."""
    cards = cards_of(node, uses, pod)
    taken: Taken = {}
    for place, rows in enumerate(allocation):
        request = pod.containers[place].request
        uuids = tuple(row.uuid for row in rows)
        if request is None:
            if rows:
                return False
            continue
        if uuids not in set(_orders(_sets(place, cards, node, pod), uuids)):
            return False
        if any((row.memory, row.cores) != (_memory(cards[row.uuid], request), request.cores) for row in rows):
            return False
        taken[place] = uuids
    return all(_legal(phase, taken, cards, pod) for phase in phases(pod))


def rows_of_init(
    node: Node, uses: Sequence[DeviceUse], pod: Pod, placed: Allocation, place: int
) -> Iterator[tuple[DeviceRow, ...]]:
    """Yield every row that an init may have beside the placed sidecars."""
    cards, request = cards_of(node, uses, pod), pod.containers[place].request
    taken = {at: tuple(row.uuid for row in rows) for at, rows in enumerate(placed)}
    phase = next(phase for phase in phases(pod) if phase and phase[-1] == place)
    for own in _sets(place, cards, node, pod):
        if request is not None and _legal(phase, taken | {place: own}, cards, pod):
            yield tuple(DeviceRow(uuid, _memory(cards[uuid], request), request.cores) for uuid in own)


def _orders(sets: Iterator[tuple[str, ...]], wanted: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the wanted order for a set with the same cards."""
    return (wanted for chosen in sets if sorted(chosen) == sorted(wanted))


def _ways(places: list[int], taken: Taken, cards: dict[str, Free], node: Node, pod: Pod) -> Iterator[Taken]:
    if not places:
        yield taken
        return
    here, *rest = places
    for own in _sets(here, cards, node, pod):
        after = taken | {here: own}
        if _legal(sorted(after), after, cards, pod):
            yield from _ways(rest, after, cards, node, pod)


def _sets(place: int, cards: dict[str, Free], node: Node, pod: Pod) -> Iterator[tuple[str, ...]]:
    request = pod.containers[place].request
    if request is None:
        return
    one_numa = pod.selection.numa_bind or node.single_numa
    for chosen in combinations(sorted(cards), request.count):
        if not one_numa or len({cards[uuid].device.numa for uuid in chosen}) == 1:
            yield chosen


def _memory(card: Free, request: DeviceRequest) -> int:
    percent = request.memory_percentage
    return card.device.memory * percent // 100 if percent else request.memory


def _legal(phase: Sequence[int], taken: Taken, cards: dict[str, Free], pod: Pod) -> bool:
    """Whether the rows of one phase fit, card by card."""
    for uuid in {uuid for place in phase for uuid in taken[place]}:
        here = [pod.containers[place].request for place in phase if uuid in taken[place]]
        if not _card_takes(cards[uuid], [request for request in here if request is not None], pod):
            return False
    return True


def _card_takes(card: Free, rows: list[DeviceRequest], pod: Pod) -> bool:
    if len(rows) > card.slots or sum(_memory(card, row) for row in rows) > card.memory:
        return False
    if sum(row.cores for row in rows) > card.cores:
        return False
    alone = any(row.cores >= 100 for row in rows) or pod.policies.card.mutex
    if alone and (len(rows) > 1 or card.used):
        return False
    return all(
        row.cores or card.device.cores == 0 or sum(before.cores for before in rows[:place]) < card.cores
        for place, row in enumerate(rows)
    )
