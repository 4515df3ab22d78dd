"""The annotations that bind writes, and their limits of size.

It must not do I/O. Invariants: every key that belongs to the scheduler is written, as "" if it has no value, so that a
forged one does not survive; annotations that would make the API server refuse every later update are refused here.
Source: HAMi v2.10's keys; the API server merges a Binding's annotations and labels into the pod unchecked (measured on
1.36.2), and refuses every later update of a pod whose annotations are illegal or above 256 KiB.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from accounting.codec import encode_allocation
from accounting.pod import Allocation
from accounting.vendor import NVIDIA, Vendor
from accounting.vendor_part import rows_of
from extender.convert.allocation_text import mig_text

NODE = "hami.io/vgpu-node"
TIME = "hami.io/vgpu-time"
MIG = NVIDIA.mig_annotation
BIND_PHASE = "hami.io/bind-phase"
BIND_TIME = "hami.io/bind-time"
NODE_LOCK = "hami.io/mutex.lock"
RETRY_AT = "gpu-extender.io/retry-at"
PREEMPTING = "gpu-extender.io/preempting"

TOTAL_LIMIT_BYTES = 256 * 1024
_PREFIX_LIMIT = 253
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def scheduler_keys(vendors: Sequence[Vendor]) -> tuple[str, ...]:
    """Return every annotation key of a pod that belongs to the scheduler."""
    of_vendors = [
        key
        for vendor in vendors
        for key in (
            vendor.devices_to_allocate_annotation,
            vendor.devices_allocated_annotation,
            vendor.mig_annotation,
            vendor.runtime_annotation,
            vendor.predicate_time_annotation,
        )
        if key
    ]
    return tuple(dict.fromkeys((NODE, TIME, *of_vendors, BIND_PHASE, BIND_TIME)))


def bind_annotations(
    vendors: Sequence[Vendor], node: str, allocation: Allocation | None, unix_seconds: int, *, lock_mode: bool
) -> dict[str, str]:
    """Return the annotations of a Binding. `lock_mode`: tell HAMi's device plugin to allocate.

    Each vendor's rows are in its own annotation, at their containers' positions. A vendor without rows gets no
    annotation, because its device plugin would wait for one.
    """
    values = dict.fromkeys(scheduler_keys(vendors), "")
    if allocation is None:
        return values
    values |= {NODE: node, TIME: str(unix_seconds)}
    for vendor in vendors:
        rows = rows_of(allocation, vendor.key)
        if any(rows):
            values |= _vendor_annotations(vendor, rows, unix_seconds)
    if lock_mode:
        values |= {BIND_PHASE: "allocating", BIND_TIME: str(unix_seconds)}
    return values


def _vendor_annotations(vendor: Vendor, rows: Allocation, unix_seconds: int) -> dict[str, str]:
    text = encode_allocation(rows, vendor.key)
    values = {vendor.devices_to_allocate_annotation: text, vendor.devices_allocated_annotation: text}
    if vendor.mig_annotation:
        values[vendor.mig_annotation] = mig_text(rows)
    if vendor.predicate_time_annotation:
        values[vendor.predicate_time_annotation] = str(unix_seconds)
    if vendor.runtime_annotation:
        names = {template.memory: template.name for template in vendor.templates}
        cards = [
            {"UUID": row.uuid} | ({"temp": names[row.memory]} if names.get(row.memory) else {})
            for own in rows
            for row in own
        ]
        values[vendor.runtime_annotation] = msgspec.json.encode(cards).decode()
    return values


def bind_labels(node: str, allocation: Allocation | None) -> dict[str, str]:
    """Return the labels of a Binding, "" where there is no legal value, so that a forged one does not survive."""
    return {NODE: node if allocation is not None and _NAME.fullmatch(node) else ""}


def annotation_bytes(annotations: Mapping[str, str]) -> int:
    """Return the size that the API server limits: keys and values in UTF-8."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def first_illegal_key(keys: Iterable[str]) -> str | None:
    """Return the first key that is no qualified name; its prefix is a DNS subdomain, its name at most 63 long."""
    for key in keys:
        prefix, slash, name = key.rpartition("/")
        legal_prefix = not slash or (len(prefix) <= _PREFIX_LIMIT and _SUBDOMAIN.fullmatch(prefix))
        if not (legal_prefix and _NAME.fullmatch(name)):
            return key
    return None
