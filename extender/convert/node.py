"""From Node and ResourceQuota objects to accounting values.

It must not do I/O. Invariant: conversion never fails for an object that decodes; an unusable part becomes a Problem in
the value, as for pods.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from accounting.errors import QuantityError
from accounting.node import Node
from accounting.quantity import parse_quantity
from accounting.quota import Quota, read_quota
from accounting.register import (
    Register,
    decode_legacy_register,
    merge_registers,
    read_register,
    unreadable,
    with_reserved,
)
from accounting.selection import parse_list
from accounting.status import Problem
from accounting.topology import Link, is_single_numa, read_links, unreadable_links
from accounting.vendor import RegisterFormat, Vendor
from extender.config import Settings
from extender.convert.annotations import TOTAL_LIMIT_BYTES
from extender.convert.cpu import allocatable_cpu_milli
from extender.convert.resources import allocatable_of
from extender.convert.scopes import selector_of
from extender.wire import core_v1
from extender.wire.unreadable import UNREADABLE, why_unreadable


def convert_node(wire: core_v1.Node, settings: Settings) -> Node:
    """Return a node's cards and limits."""
    first, *others = settings.vendors
    meta, status = wire.metadata or core_v1.ObjectMeta(), wire.status or core_v1.NodeStatus()
    # Pods and requests name it; interned, it is in memory once.
    name, annotations = sys.intern(meta.name or ""), meta.annotations or {}
    allocatable = status.allocatable or {}
    register = merge_registers(
        name, [_register(name, annotations.get(each.register_annotation), each) for each in settings.vendors]
    )
    register = with_reserved(register, settings.reserved_memory)
    cordons = (annotations.get(each.cordon_annotation, "") for each in settings.vendors if each.cordon_annotation)
    links, misread = _links(name, annotations, register, settings.vendors)
    return Node(
        name=name,
        devices=register.devices,
        cordoned=frozenset(uuid for text in cordons for uuid in parse_list(text)),
        duplicated=register.duplicated,
        count_allocatable=_count_allocatable(allocatable, first.count_resource),
        cpu_milli=allocatable_cpu_milli(allocatable),
        single_numa=is_single_numa(meta.labels or {}, annotations),
        links=links,
        problems=(*register.problems, *misread),
        resource_names=_names(tuple(allocatable), tuple(status.capacity or ())),
        further_allocatable=tuple((each.key, _count_allocatable(allocatable, each.count_resource)) for each in others),
        allocatable=allocatable_of(allocatable),
    )


@lru_cache(maxsize=1_024)
def _names(allocatable: tuple[str, ...], capacity: tuple[str, ...]) -> frozenset[str]:
    """Return all names as one set, which nodes of one kind share."""
    return frozenset((*allocatable, *capacity))


def _links(
    node: str, annotations: Mapping[str, str], register: Register, vendors: Sequence[Vendor]
) -> tuple[tuple[Link, ...], tuple[Problem, ...]]:
    """Read the scores of links between the cards; they do not affect whether a pod fits."""
    links: list[Link] = []
    problems: list[Problem] = []
    for text in (annotations.get(each.link_scores_annotation) for each in vendors if each.link_scores_annotation):
        if not text:
            continue
        try:
            value = msgspec.json.decode(text)
        except UNREADABLE as error:
            found, misread = unreadable_links(node, why_unreadable(error, "is not JSON: "))
        else:
            found, misread = read_links(node, value, (device.uuid for device in register.devices))
        links += found
        problems += misread
    return tuple(links), tuple(problems)


def _register(node: str, text: str | None, vendor: Vendor) -> Register:
    if not text:
        return Register()
    if len(text) > TOTAL_LIMIT_BYTES:
        return unreadable(node, f"has more than the {TOTAL_LIMIT_BYTES} characters that Kubernetes keeps")
    if vendor.register_format is RegisterFormat.TEXT:
        decoded = decode_legacy_register(text)
        return unreadable(node, decoded) if isinstance(decoded, str) else read_register(node, decoded, vendor)
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE as error:
        return unreadable(node, why_unreadable(error, "is not JSON: "))
    return read_register(node, value, vendor)


def _count_allocatable(allocatable: Mapping[str, object], name: str) -> int | None:
    """Return the kubelet's allocatable count, at most int32; None if it is missing or not a quantity."""
    if name not in allocatable:
        return None
    try:
        return max(0, min(parse_quantity(allocatable[name]).value(), 2**31 - 1))
    except QuantityError:
        return None


def convert_quota(wire: core_v1.ResourceQuota, settings: Settings) -> Quota:
    """Return a ResourceQuota's limits on managed resources."""
    meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or core_v1.QuotaSpec()
    namespace = sys.intern(meta.namespace or "default")
    return read_quota(namespace, meta.name or "", spec.hard or {}, settings.vendors, selector_of(spec))
