"""All rows of a pod as one text, for stores and journals.

Why it exists: a pod has one annotation per vendor, and its rows must be kept, compared and written as one text. It must
not know which vendors exist. Invariants: unpacking a packed text gives the rows back; for a pod with cards of the
default vendor only, the text is its annotation, byte for byte.
"""

import sys
from collections.abc import Iterable, Mapping

import msgspec

from accounting.codec import NO_INSTANCES, Instances, decode_allocation, encode_allocation, named_instances
from accounting.holdings import Held
from accounting.mig_profiles import read_instances
from accounting.plain_rows import held_by_text
from accounting.pod import Allocation, Container, UnreadableAllocation
from accounting.vendor import DEFAULT_VENDOR_KEY
from accounting.vendor_part import merged, rows_of
from extender.wire.unreadable import UNREADABLE

#: Separates the parts of a text. An annotation that contains it is unreadable anyway, so it may be replaced there.
_SEPARATOR, _NO_SEPARATOR = "\x00", "\ufffd"


#: Used in place of a vendor's key for the vendor's MIG annotation.
_MIG = "mig:"


def mig_part(vendor: str) -> str:
    """Return the name under which a vendor's MIG annotation is joined."""
    return _MIG + vendor


def join_texts(texts: Mapping[str, str]) -> str:
    """Return one text made of annotations by vendor key; "" if all are empty."""
    if len(texts) == 1 and DEFAULT_VENDOR_KEY in texts:
        return texts[DEFAULT_VENDOR_KEY].replace(_SEPARATOR, _NO_SEPARATOR)
    filled = {key: text.replace(_SEPARATOR, _NO_SEPARATOR) for key, text in texts.items() if text}
    if not filled or (len(filled) == 1 and DEFAULT_VENDOR_KEY in filled):
        return filled.get(DEFAULT_VENDOR_KEY, "")
    return _SEPARATOR + _SEPARATOR.join(part for key in sorted(filled) for part in (key, filled[key]))


def split_texts(text: str) -> dict[str, str]:
    """Return the annotations by vendor key from a text of `join_texts`."""
    if not text.startswith(_SEPARATOR):
        return {DEFAULT_VENDOR_KEY: text} if text else {}
    keys = text.split(_SEPARATOR)[1:]
    return dict(zip(keys[::2], keys[1::2], strict=True))


def pack_rows(allocation: Allocation) -> str:
    """Return the rows of all vendors as one text."""
    vendors = {row.vendor for own in allocation for row in own} or {DEFAULT_VENDOR_KEY}
    texts = {key: encode_allocation(rows_of(allocation, key), key) for key in vendors}
    for key in vendors:
        texts[mig_part(key)] = mig_text(rows_of(allocation, key))
    return join_texts(texts)


def mig_text(allocation: Allocation) -> str:
    """Return the MIG annotation of a vendor's rows; "" if none has an instance."""
    entries = named_instances(allocation)
    return msgspec.json.encode(entries).decode() if entries else ""


def unpack_rows(
    text: str, containers: tuple[Container, ...], field: str, fields: Mapping[str, str] | None = None
) -> Allocation | UnreadableAllocation:
    """Read a text of `pack_rows` or `join_texts`. `fields`: the path of each vendor's annotation, for messages.

    If one annotation cannot be read, the whole allocation of the pod is unreadable.
    """
    names = fields or {}
    if text and not text.startswith(_SEPARATOR):
        # Only the default vendor's rows, as nearly always.
        key = DEFAULT_VENDOR_KEY
        return decode_allocation(text, containers, names.get(key, field), sys.intern, key)
    texts = split_texts(text)
    read = [
        decode_allocation(each, containers, names.get(key, field), sys.intern, key, _instances(texts, key))
        for key, each in texts.items()
        if not key.startswith(_MIG)
    ]
    unreadable = [each for each in read if isinstance(each, UnreadableAllocation)]
    if unreadable:
        return UnreadableAllocation(tuple(sorted(set(_uuids(read)))), unreadable[0].why)
    if not read:
        return ((),) * len(containers)
    allocations = [each for each in read if not isinstance(each, UnreadableAllocation)]
    return allocations[0] if len(allocations) == 1 else merged(allocations)


def unpack_held(text: str, containers: tuple[Container, ...]) -> Held | None:
    """Return what a pod holds by such a text if that is quick: plain rows of the default vendor only."""
    return None if text.startswith(_SEPARATOR) else held_by_text(text, containers, sys.intern)


def _instances(texts: Mapping[str, str], vendor: str) -> Instances:
    """Return the instances of a vendor's MIG annotation; none if it cannot be read."""
    text = texts.get(mig_part(vendor))
    if not text:
        return NO_INSTANCES
    try:
        instances = read_instances(msgspec.json.decode(text))
    except UNREADABLE:
        return NO_INSTANCES
    return NO_INSTANCES if isinstance(instances, str) else instances


def _uuids(read: Iterable[Allocation | UnreadableAllocation]) -> Iterable[str]:
    for each in read:
        if isinstance(each, UnreadableAllocation):
            yield from each.readable_uuids
        else:
            yield from (row.uuid for own in each for row in own)
