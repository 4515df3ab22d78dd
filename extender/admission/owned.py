"""Annotations and labels that belong to the scheduler and the node plugin, and who may write them.

Why it exists: the device plugin follows these keys, so a forged allocation would use cards without being counted
(HAMi#3041, #3042, #3074 to #3076, users' reports). It must not know requests. Invariants: a new object has none of
them, whatever its schedulerName; later only trusted accounts change them.
"""

from collections.abc import Iterator, Mapping

from accounting.vendor import Vendor
from extender.admission.decision import Finding, Why
from extender.convert import NODE, PREEMPTING, scheduler_keys
from extender.wire.core_v1 import ObjectMeta

_LONGEST_VALUE = 60


def owned_annotations(vendors: tuple[Vendor, ...]) -> tuple[str, ...]:
    """Return the annotation keys, without repetition, in order."""
    return (*scheduler_keys(vendors), PREEMPTING)


def owned_labels() -> tuple[str, ...]:
    """Return the label keys."""
    return (NODE,)


def written_keys(meta: ObjectMeta, vendors: tuple[Vendor, ...]) -> Iterator[Finding]:
    """Yield a finding per key of the scheduler that a new object carries."""
    for field, values, keys in _parts(meta, vendors):
        for key in keys:
            if key in values:
                why = "belongs to the scheduler; leave it out"
                yield Finding(Why.OWNED_KEY, f"{field}[{key}]: {_shown(values[key])}: {why}")


def changed_keys(old: ObjectMeta, new: ObjectMeta, vendors: tuple[Vendor, ...]) -> Iterator[Finding]:
    """Yield a finding per key of the scheduler that an update sets, changes or removes."""
    for (field, before, keys), (_, after, _) in zip(_parts(old, vendors), _parts(new, vendors), strict=True):
        for key in keys:
            if before.get(key) != after.get(key):
                why = f"belongs to the scheduler; it must stay {_shown(before.get(key))}"
                yield Finding(Why.OWNED_KEY, f"{field}[{key}]: {_shown(after.get(key))}: {why}")


def _parts(
    meta: ObjectMeta, vendors: tuple[Vendor, ...]
) -> tuple[tuple[str, Mapping[str, str], tuple[str, ...]], tuple[str, Mapping[str, str], tuple[str, ...]]]:
    return (
        ("metadata.annotations", meta.annotations or {}, owned_annotations(vendors)),
        ("metadata.labels", meta.labels or {}, owned_labels()),
    )


def _shown(value: str | None) -> str:
    if value is None:
        return "(absent)"
    if not value:
        return "(empty)"
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 3]}..."
