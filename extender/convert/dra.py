"""ResourceClaims and ResourceSlices -> accounting values.

It must not do I/O. Invariants: conversion never fails for an object that decodes; a quantity that cannot be read never
makes a claim hold less than it may.
"""

import sys
from collections.abc import Iterable, Mapping

from accounting.errors import QuantityError
from accounting.holders import Claim, DeviceId, Result, Slice, SliceDevice
from accounting.quantity import parse_quantity
from extender.wire import core_v1, resource_v1

#: No card has more, and sums of such numbers do not wrap.
_MOST_BYTES = 2**60
_MOST_PERCENT = 2**31
_NODE_NAME = "metadata.name"


def mapped_resource(wire: resource_v1.DeviceClass) -> tuple[str, str]:
    """Return a class's name and the resource name that it maps; "" if it maps none."""
    name = "" if wire.metadata is None else wire.metadata.name or ""
    return name, (wire.spec and wire.spec.extendedResourceName) or ""


def convert_claim(wire: resource_v1.ResourceClaim) -> Claim:
    """Return what a claim has been given. Without a namespace it is in `default`, as a manifest may be."""
    meta, status = wire.metadata or core_v1.ObjectMeta(), wire.status
    namespace, name = meta.namespace or "default", meta.name or ""
    allocation = None if status is None else status.allocation
    results = (allocation and allocation.devices and allocation.devices.results) or ()
    return Claim(
        meta.uid or f"{namespace}/{name}",
        sys.intern(namespace),
        name,
        tuple(map(_result, results)),
        None if allocation is None else _node(allocation),
        _owner(meta.ownerReferences) if meta.ownerReferences else "",
    )


def convert_slice(wire: resource_v1.ResourceSlice) -> Slice:
    """Return the devices of a slice; one of counters alone has none."""
    meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or resource_v1.SliceSpec()
    pool = spec.pool or resource_v1.Pool()
    return Slice(
        meta.name or "",
        sys.intern(spec.driver or ""),
        sys.intern(pool.name or ""),
        pool.generation or 0,
        sys.intern(spec.nodeName) if spec.nodeName else None,
        tuple(map(_device, spec.devices or ())),
        max(1, pool.resourceSliceCount or 1),
    )


def _result(wire: resource_v1.Result) -> Result:
    device = DeviceId(sys.intern(wire.driver or ""), sys.intern(wire.pool or ""), sys.intern(wire.device or ""))
    consumed = wire.consumedCapacity
    if not wire.shareID or not consumed:
        return Result(device, bool(wire.adminAccess), wire.shareID or "")
    return Result(
        device,
        bool(wire.adminAccess),
        wire.shareID,
        _amount(consumed, "memory", device.driver, _MOST_BYTES),
        _amount(consumed, "cores", device.driver, _MOST_PERCENT),
    )


def _amount(consumed: Mapping[str, object], name: str, driver: str, most: int) -> int | None:
    """Return what is consumed, rounded up; None if nothing is said or it cannot be read: then it is all there is."""
    for spelled in (name, f"{driver}/{name}"):
        if spelled in consumed:
            return _whole(consumed[spelled], most)
    return None


def _whole(raw: object, most: int) -> int | None:
    """Return a quantity as a whole number, rounded up; None if it is none."""
    try:
        value = parse_quantity(raw).value()
    except QuantityError:
        return None
    return min(value, most) if value >= 0 else None


def _owner(owners: Iterable[core_v1.OwnerReference]) -> str:
    """Return the UID of the pod that controls an object; "" if none does."""
    return next((each.uid or "" for each in owners if each.kind == "Pod" and each.controller), "")


def _node(allocation: resource_v1.Allocation) -> str | None:
    """Return the one node to which an allocation is limited by its name; None if it is not, or to several."""
    selector = allocation.nodeSelector
    terms = (selector and selector.nodeSelectorTerms) or ()
    if len(terms) != 1:
        return None
    names = set[str]()
    for field in terms[0].matchFields or ():
        if field.key == _NODE_NAME and field.operator == "In":
            names.update(field.values or ())
    return names.pop() if len(names) == 1 else None


def _device(wire: resource_v1.Device) -> SliceDevice:
    basic = wire.basic or resource_v1.DeviceBody()
    attributes, capacity = wire.attributes or basic.attributes or {}, wire.capacity or basic.capacity or {}
    return SliceDevice(
        wire.name or "",
        {name: each.string for name, each in attributes.items() if each.string is not None},
        {name: size for name, each in capacity.items() if (size := _whole(each.value, _MOST_BYTES)) is not None},
    )
