"""The text of a pod's allocation annotation.

Why it exists: this text is the one source of accounting, and HAMi's device plugin reads the same text. It must not know
which annotation the text came from. Invariant: decoding what was encoded gives the rows back, and text that cannot be
trusted becomes an UnreadableAllocation, never a smaller allocation.

Format (HAMi v2.10 devices.go): a device is `uuid,type,memory,cores` followed by `:`; a container's row is its devices
followed by `;`, also when it is empty and also the last one; init containers first, then apps, in spec order. The
plugin appends one more `;` at each rewrite, and some writers spell "no device" as `,,0,0:`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from accounting.mig_profiles import UNKNOWN, MigInstance
from accounting.pod import Allocation, Container, DeviceRow, FurtherRow, UnreadableAllocation
from accounting.row_order import rows_by_container
from accounting.status import Invalid
from accounting.vendor import DEFAULT_VENDOR_KEY

# At most 18 digits: Python refuses to convert very long texts, and int32 needs 10.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
#: Kubernetes' bound of all annotations of an object together (apimachinery's TotalAnnotationSizeLimitB).
_LONGEST_TEXT = 2**18
#: Cards and containers in one text. Reading one takes 5 us.
_MOST_PARTS = 4096
#: A device as writers write it, every number surely in its range.
_PLAIN = re.compile(r"([^,]+),[^,]*,([0-9]{1,9}),([0-9]{1,4})", re.ASCII)
_NOWHERE = "[0-0]"
_INDEXED = re.compile(r"(.+)\[[0-9]+(?:-[0-9]+)?\]", re.ASCII)
#: A row of one such device, as nearly all are.
_PLAIN_ROW = re.compile(r"([^,:]*[^,:\]]),[^,:]*,([0-9]{1,9}),([0-9]{1,4}):", re.ASCII)
_FIELDS = 4
#: Row and device -> the card that the MIG annotation names for it, and its part of that card.
Instances = Mapping[tuple[int, int], tuple[str, MigInstance]]
NO_INSTANCES: Instances = {}
_MEMORY_MAX = 2**31 - 1
#: A row's cores are percent of one card. Cards sum them in 32 bits, which a row near that limit would wrap around.
_CORES_MAX = 10_000


def encode_allocation(allocation: Allocation, vendor_key: str) -> str:
    """Return the annotation text of an allocation: one row per container.

    An instance that nobody knows is written as HAMi before v2.10 wrote all, since the MIG annotation cannot name it.
    """
    return "".join(
        "".join(f"{_written(row)},{vendor_key},{row.memory},{row.cores}:" for row in rows) + ";" for rows in allocation
    )


def _written(row: DeviceRow) -> str:
    if row.instance is None:
        return row.uuid
    return f"{row.uuid}{_NOWHERE}" if row.instance == UNKNOWN or _INDEXED.fullmatch(row.uuid) else row.uuid


def decode_allocation(
    text: str,
    containers: tuple[Container, ...],
    field: str,
    share: Callable[[str], str] = str,
    vendor: str = DEFAULT_VENDOR_KEY,
    instances: Instances = NO_INSTANCES,
) -> Allocation | UnreadableAllocation:
    """Read an annotation text for a pod with these containers.

    Unreadable are: a text longer than any that an API server keeps, or of more cards and containers than any pod has,
    which is not read at all; a non-empty part without a comma or with too few fields, a memory or cores value that is
    no integer, negative or too large, an empty UUID, and a text without any card whose rows are not one per container.
    Extra fields are accepted. Which row is whose: `accounting.row_order`. `share` returns the one text that stands for
    all UUIDs equal to its argument. `vendor`: key of the one whose annotation it is. The type field is not read, since
    some writers put a model there. `instances`: what the MIG annotation names.
    """
    if len(text) > _LONGEST_TEXT or text.count(":") + text.count(";") > _MOST_PARTS:
        why = f"has more than {_LONGEST_TEXT} characters or {_MOST_PARTS} parts"
        return UnreadableAllocation((), Invalid(field, _shown(text), why))
    rows: list[tuple[DeviceRow, ...]] = []
    for part in _rows(text):
        row = _row(part, field, share, vendor)
        if isinstance(row, Invalid):
            return UnreadableAllocation(_readable_uuids(text), row)
        rows.append(row)
    if len(rows) < len(containers) and not any(rows):
        why = f"names no card in {len(rows)} rows for {len(containers)} containers"
        return UnreadableAllocation((), Invalid(field, _shown(text), why))
    return rows_by_container(_with_instances(rows, instances, vendor) if instances else rows, containers, vendor)


def _with_instances(
    rows: list[tuple[DeviceRow, ...]], instances: Instances, vendor: str
) -> list[tuple[DeviceRow, ...]]:
    """Return a vendor's rows as written with the instances that the MIG annotation names, by row and device.

    HAMi numbers the rows that it writes, so this comes before the question whose they are. A row for which another card
    is named has an instance that nobody knows.
    """
    return [
        tuple(_with_instance(row, instances.get((at, device)), vendor) for device, row in enumerate(own))
        for at, own in enumerate(rows)
    ]


def _with_instance(row: DeviceRow, named: tuple[str, MigInstance] | None, vendor: str) -> DeviceRow:
    if named is None:
        return row
    instance = named[1] if named[0] == row.uuid else UNKNOWN
    return FurtherRow.of(row.uuid, row.memory, row.cores, vendor, instance)


def named_instances(allocation: Allocation) -> list[dict[str, object]]:
    """Return the MIG annotation of a vendor's rows, before it is encoded: one entry per known instance."""
    return [
        {
            "containerIndex": container,
            "deviceIndex": device,
            "gpuUUID": row.uuid,
            "profile": row.instance.profile,
            "placement": {"start": row.instance.start, "size": row.instance.size},
        }
        for container, own in enumerate(allocation)
        for device, row in enumerate(own)
        if row.instance not in (None, UNKNOWN)
    ]


def _rows(text: str) -> list[str]:
    parts = text.strip().split(";")
    # Every row is ended by a semicolon, so the last part is a row only if a writer left its semicolon out.
    return parts if parts[-1] else parts[:-1]


def _row(text: str, field: str, share: Callable[[str], str], vendor: str) -> tuple[DeviceRow, ...] | Invalid:
    if not text:
        return ()
    devices = []
    # Most rows are the default vendor's, and there are very many of them.
    make = DeviceRow if vendor == DEFAULT_VENDOR_KEY else partial(FurtherRow.of, vendor=vendor)
    plain = _PLAIN_ROW.fullmatch(text)
    if plain is not None:
        uuid, memory, cores = plain.groups()
        return (make(share(uuid), int(memory), int(cores)),)
    for part in text.split(":"):
        if not part:
            continue
        plain = _PLAIN.fullmatch(part)
        if plain is not None:
            uuid, memory, cores = plain.groups()
            if uuid.endswith("]"):
                devices.append(_indexed(uuid, int(memory), int(cores), share, vendor))
                continue
            devices.append(make(share(uuid), int(memory), int(cores)))
            continue
        device = _device(part, field, share, vendor)
        if isinstance(device, Invalid):
            return device
        if device is not None:
            devices.append(device)
    return tuple(devices)


def _indexed(uuid: str, memory: int, cores: int, share: Callable[[str], str], vendor: str) -> DeviceRow:
    """Read a UUID that ends in `[template-place]`, as HAMi before v2.10 wrote instances of cards in MIG mode.

    What the template was, only that node's configuration of that time knew, so the place is not known (HAMi#2088).
    """
    match = _INDEXED.fullmatch(uuid)
    if match is None:
        return FurtherRow.of(share(uuid), memory, cores, vendor)
    return FurtherRow.of(share(match[1]), memory, cores, vendor, UNKNOWN)


def _device(part: str, field: str, share: Callable[[str], str], vendor: str) -> DeviceRow | Invalid | None:
    fields = part.split(",")
    if len(fields) < _FIELDS:
        return Invalid(field, _shown(part), "must be uuid,type,memory,cores")
    uuid, _, memory, cores = fields[:_FIELDS]
    for name, number, maximum in (("memory", memory, _MEMORY_MAX), ("cores", cores, _CORES_MAX)):
        if not _INTEGER.fullmatch(number):
            why = "is out of range" if number.isascii() and number.lstrip("+-").isdigit() else "is not an integer"
            return Invalid(field, _shown(part), f"{name} {_shown(number)!r} {why}")
        if int(number) < 0:
            return Invalid(field, _shown(part), f"{name} {number} is negative")
        if int(number) > maximum:
            return Invalid(field, _shown(part), f"{name} {number} is more than {maximum}")
    if uuid:
        return _indexed(uuid, int(memory), int(cores), share, vendor)
    if int(memory) or int(cores):
        return Invalid(field, _shown(part), "names no card")
    return None


def _readable_uuids(text: str) -> tuple[str, ...]:
    """Return the UUIDs that the text still names, sorted: the first field of every part that has a comma."""
    found = (part.split(",", 1) for part in _parts(text))
    return tuple(sorted({fields[0] for fields in found if len(fields) > 1 and fields[0]}))


def _parts(text: str) -> Iterable[str]:
    return (part for row in text.strip().split(";") for part in row.split(":"))


def _shown(text: str) -> str:
    """Return a value short enough for a message."""
    return text if len(text) <= 120 else text[:117] + "..."  # noqa: PLR2004 - one line of a terminal
