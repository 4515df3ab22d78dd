"""What a pod holds, straight from the text of its allocation.

Why it exists: nearly every annotation is plain (the default vendor's, at most one card a container), one is read with
every pod that is told of for the first time, and the rows of such a text as objects are needed by nobody. It must not
judge: a text that is not plain is left to `codec`, which is also what says why it cannot be read. Invariant: what it
returns is what `holdings.held_by` returns for the rows that `codec.decode_allocation` reads.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from accounting.holdings import EXCLUSIVE_CORES, DeviceUse, Held, Total, held_by, held_on_one_card, shared_total
from accounting.pod import Container, ContainerKind, DeviceRow
from accounting.row_order import has_moved
from accounting.vendor import DEFAULT_VENDOR_KEY

#: One device at most, every number surely in its range. A UUID with a bracket may name a place of a card in MIG mode.
_ROW = r"(?:([^,:;\]]+),[^,:;]*,([0-9]{1,9}),([0-9]{1,4}):)?;"
#: Patterns of more rows are not worth their room.
_MOST_ROWS = 32
_INIT = ContainerKind.INIT


def held_by_text(text: str, containers: tuple[Container, ...], share: Callable[[str], str] = str) -> Held | None:
    """Return what a pod with these containers holds by an annotation of the default vendor.

    None if the text is not plain, or names no card. `share`: as for `codec.decode_allocation`.
    """
    if not containers or len(containers) > _MOST_ROWS:
        return None
    match = _pattern(len(containers)).fullmatch(text.strip())
    if match is None:
        return None
    fields = match.groups()
    if None in fields and has_moved(fields[::3], containers, DEFAULT_VENDOR_KEY):
        return None
    return (
        _on_one_card(containers, fields, share)
        or _on_cards(containers, fields, share)
        or _by_rows(containers, fields, share)
    )


@lru_cache(maxsize=_MOST_ROWS)
def _pattern(rows: int) -> re.Pattern[str]:
    return re.compile(_ROW * rows + ";*", re.ASCII)


#: Slots, memory, cores.
_Amounts = tuple[int, int, int]
#: Stands for the sum over all cards; no card has this UUID.
_TOTAL = ""
#: UUID, memory and cores of every container, None where it has no card.
_Fields = tuple[str | Any, ...]


def _on_one_card(containers: tuple[Container, ...], fields: _Fields, share: Callable[[str], str]) -> Held | None:
    """Return what is held if all rows are on one card and none is exclusive; else None."""
    card = ""
    slots = memory = cores = most_slots = most_memory = most_cores = 0
    for container, uuid, memory_text, cores_text in zip(
        containers, fields[::3], fields[1::3], fields[2::3], strict=True
    ):
        if uuid is None:
            continue
        with_memory, with_cores = int(memory_text), int(cores_text)
        if with_cores >= EXCLUSIVE_CORES or uuid != (card or uuid):
            return None
        card, with_memory, with_cores = uuid, memory + with_memory, cores + with_cores
        if container.kind is not _INIT:
            slots, memory, cores = slots + 1, with_memory, with_cores
            continue
        most_slots = max(most_slots, slots + 1)
        most_memory, most_cores = max(most_memory, with_memory), max(most_cores, with_cores)
    if not card:
        return None
    steady = slots, memory, cores
    peak = (max(most_slots, slots), max(most_memory, memory), max(most_cores, cores)) if most_slots else steady
    return held_on_one_card(share(card), peak, steady)


def _on_cards(containers: tuple[Container, ...], fields: _Fields, share: Callable[[str], str]) -> Held | None:
    """Return what is held if no row is exclusive, whatever the cards; else None."""
    peak: dict[str, _Amounts] = {}
    steady: dict[str, _Amounts] = {}
    for container, uuid, memory, cores in zip(containers, fields[::3], fields[1::3], fields[2::3], strict=True):
        if uuid is None:
            continue
        row = 1, int(memory), int(cores)
        if row[2] >= EXCLUSIVE_CORES:
            return None
        for key in (uuid, _TOTAL):
            before = steady.get(key)
            with_row = row if before is None else (before[0] + 1, before[1] + row[1], before[2] + row[2])
            if container.kind is _INIT:
                _raise_to(peak, key, with_row)
            else:
                steady[key] = with_row
    if not peak:
        uses, total = _uses(steady, share), _total(steady)
        return Held(uses, uses, total, total) if uses else None
    for key, amounts in steady.items():
        _raise_to(peak, key, amounts)
    return Held(_uses(peak, share), _uses(steady, share), _total(peak), _total(steady))


def _raise_to(peak: dict[str, _Amounts], key: str, to: _Amounts) -> None:
    known = peak.get(key)
    peak[key] = to if known is None else (max(known[0], to[0]), max(known[1], to[1]), max(known[2], to[2]))


def _uses(amounts: dict[str, _Amounts], share: Callable[[str], str]) -> tuple[DeviceUse, ...]:
    return tuple([DeviceUse(share(uuid), *amounts[uuid]) for uuid in sorted(amounts) if uuid != _TOTAL])


def _total(amounts: dict[str, _Amounts]) -> Total:
    return shared_total(*amounts.get(_TOTAL, (0, 0, 0)))


def _by_rows(containers: tuple[Container, ...], fields: _Fields, share: Callable[[str], str]) -> Held | None:
    """Return what is held, exclusive rows and all; None if there is no row."""
    allocation = tuple(
        () if uuid is None else (DeviceRow(share(uuid), int(memory), int(cores)),)
        for uuid, memory, cores in zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    )
    return held_by(containers, allocation) if any(allocation) else None
