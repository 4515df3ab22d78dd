"""Kubernetes objects -> accounting values: the only module that knows both worlds.

It must not do I/O. Invariant: conversion never fails for an object that decodes; what cannot be used in it becomes an
Invalid, an UnreadableAllocation or a Problem in the value.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from accounting.codec import decode_allocation
from accounting.demand import ContainerResources, api_charge, container_request
from accounting.errors import QuantityError
from accounting.lifecycle import InitStatus, inits_over
from accounting.node import Node
from accounting.pod import Allocation, Container, ContainerKind, Pod, UnreadableAllocation
from accounting.policy import Policies, parse_card_policy, parse_node_policy, parse_weights
from accounting.quantity import parse_quantity
from accounting.quota import Quota, read_quota
from accounting.register import Register, read_register, unreadable
from accounting.selection import Selection, parse_bool, parse_list, parse_types
from accounting.status import Invalid
from accounting.vendor import Vendor
from extender.config import Settings
from extender.wire import core_v1

NODE_POLICY = "hami.io/node-scheduler-policy"
CARD_POLICY = "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
_ANNOTATIONS = "metadata.annotations[{}]"
_TERMINAL = frozenset({"Succeeded", "Failed"})
_EVERY_CARD = Selection()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Digits of a second below the microseconds at which Python's times end.
_BELOW_MICROSECONDS = re.compile(r"[.,][0-9]{6}([0-9]{1,3})")


def convert_pod(wire: core_v1.Pod, settings: Settings) -> Pod:
    """Return a pod as accounting sees it. A manifest without metadata.uid is known by namespace/name."""
    meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or core_v1.PodSpec()
    status = wire.status or core_v1.PodStatus()
    namespace, name = meta.namespace or "default", meta.name or ""
    annotations = meta.annotations or {}
    containers, charge, invalid = _containers(spec, settings)
    selection, policies, misread = _choices(annotations, settings)
    return Pod(
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        containers=containers,
        node=spec.nodeName or None,
        terminal=status.phase in _TERMINAL,
        deleting=meta.deletionTimestamp is not None,
        inits_over=_inits_over(spec, status),
        allocation=_allocation(annotations, len(containers), settings),
        invalid=(*invalid, *misread) if any(container.request for container in containers) or invalid else (),
        selection=selection,
        policies=policies,
        api_charge=charge,
    )


def container_kind(container: core_v1.Container) -> ContainerKind:
    """Return the kind of an entry of initContainers."""
    return ContainerKind.SIDECAR if container.restartPolicy == "Always" else ContainerKind.INIT


def _containers(
    spec: core_v1.PodSpec, settings: Settings
) -> tuple[tuple[Container, ...], tuple[tuple[str, int], ...], list[Invalid]]:
    """Return a pod's containers, what the API server charges for them, and what is invalid in them."""
    listed = [("initContainers", container_kind(each), each) for each in spec.initContainers or ()]
    listed += [("containers", ContainerKind.APP, each) for each in spec.containers or ()]
    vendor = settings.vendor
    containers: list[Container] = []
    charged: list[tuple[ContainerKind, _Written]] = []
    invalid: list[Invalid] = []
    for list_name, kind, each in listed:
        name, written = each.name or "", _managed(each.resources, vendor)
        if written is None:
            containers.append(Container(name, kind))
            continue
        read = _container if _is_text(written) else _container.__wrapped__
        container, refused = read(list_name, name, kind, written, vendor)
        containers.append(container)
        invalid.extend(refused)
        charged.append((kind, written))
    overhead = tuple((spec.overhead or {}).get(name) for name in vendor.resources)
    cacheable = all(_is_text(written) for _, written in charged) and _is_text((overhead, ()))
    charge = (_charge if cacheable else _charge.__wrapped__)(tuple(charged), overhead, vendor)
    return tuple(containers), charge, invalid


#: Quantities of the vendor's resources as written, in the order of `Vendor.resources`: limits, requests; None: absent.
_Quantities = tuple[object, ...]
_Written = tuple[_Quantities, _Quantities]


def _managed(resources: core_v1.Resources | None, vendor: Vendor) -> _Written | None:
    if resources is None:
        return None
    limits, requests = resources.limits or {}, resources.requests or {}
    names = vendor.resources
    if not any(name in limits or name in requests for name in names):
        return None
    return tuple(limits.get(name) for name in names), tuple(requests.get(name) for name in names)


def _is_text(written: _Written) -> bool:
    """Whether all quantities are text, as an API server gives them; only then equal keys mean equal values."""
    return all(each is None or isinstance(each, str) for part in written for each in part)


@lru_cache(maxsize=16_384)
def _container(
    list_name: str, name: str, kind: ContainerKind, written: _Written, vendor: Vendor
) -> tuple[Container, tuple[Invalid, ...]]:
    """Read one container. Replicas are written alike, so most containers of a cluster are found in the cache."""
    path = f"spec.{list_name}[{name}].resources"
    request, invalid = container_request(_resources(written, vendor), vendor, path)
    return Container(name, kind, request), invalid


@lru_cache(maxsize=16_384)
def _charge(
    charged: tuple[tuple[ContainerKind, _Written], ...], overhead: _Quantities, vendor: Vendor
) -> tuple[tuple[str, int], ...]:
    extra = {name: raw for name, raw in zip(vendor.resources, overhead, strict=True) if raw is not None}
    return api_charge([(kind, _resources(written, vendor)) for kind, written in charged], extra, vendor)


def _resources(written: _Written, vendor: Vendor) -> ContainerResources:
    limits, requests = (
        {name: raw for name, raw in zip(vendor.resources, part, strict=True) if raw is not None} for part in written
    )
    return ContainerResources(limits, requests)


def _choices(annotations: Mapping[str, str], settings: Settings) -> tuple[Selection, Policies, list[Invalid]]:
    """Read the annotations that select cards and policies."""
    if annotations.keys().isdisjoint(_choice_keys(settings.vendor)):
        return _EVERY_CARD, settings.policies, []
    vendor, policies = settings.vendor, settings.policies
    invalid: list[Invalid] = []
    if NODE_POLICY in annotations:
        policies = replace(policies, node=parse_node_policy(annotations[NODE_POLICY]))
    if CARD_POLICY in annotations:
        policies = replace(policies, card=parse_card_policy(annotations[CARD_POLICY]))
    if WEIGHTS in annotations:
        weights = parse_weights(annotations[WEIGHTS], _ANNOTATIONS.format(WEIGHTS))
        if isinstance(weights, Invalid):
            invalid.append(weights)
        else:
            policies = replace(policies, weights=weights)
    numa_bind = parse_bool(annotations.get(vendor.numa_bind_annotation) or "false")
    if numa_bind is None:
        field = _ANNOTATIONS.format(vendor.numa_bind_annotation)
        invalid.append(Invalid(field, annotations[vendor.numa_bind_annotation], "must be true or false"))
    selection = Selection(
        use_uuids=frozenset(parse_list(annotations.get(vendor.use_uuid_annotation, ""))),
        nouse_uuids=frozenset(parse_list(annotations.get(vendor.nouse_uuid_annotation, ""))),
        use_types=parse_types(annotations.get(vendor.use_type_annotation, "")),
        nouse_types=parse_types(annotations.get(vendor.nouse_type_annotation, "")),
        modes=annotations.get(vendor.mode_annotation, ""),
        numa_bind=bool(numa_bind),
    )
    return selection, policies, invalid


@lru_cache(maxsize=16)
def _choice_keys(vendor: Vendor) -> frozenset[str]:
    selecting = (
        vendor.use_uuid_annotation,
        vendor.nouse_uuid_annotation,
        vendor.use_type_annotation,
        vendor.nouse_type_annotation,
        vendor.numa_bind_annotation,
        vendor.mode_annotation,
    )
    return frozenset((NODE_POLICY, CARD_POLICY, WEIGHTS, *selecting))


def _allocation(
    annotations: Mapping[str, str], containers: int, settings: Settings
) -> Allocation | UnreadableAllocation | None:
    key = settings.vendor.devices_allocated_annotation
    text = annotations.get(key)
    return decode_allocation(text, containers, _ANNOTATIONS.format(key)) if text else None


def _inits_over(spec: core_v1.PodSpec, status: core_v1.PodStatus) -> bool:
    inits = [each for each in spec.initContainers or () if container_kind(each) is ContainerKind.INIT]
    if not inits:
        return True
    states = {each.name: each.state for each in status.initContainerStatuses or ()}
    everyone = [*(spec.initContainers or ()), *(spec.containers or ())]
    return inits_over(
        [_init_status(states.get(each.name)) for each in inits],
        all_containers_restarting=any(
            condition.type == "AllContainersRestarting" and condition.status == "True"
            for condition in status.conditions or ()
        ),
        restart_rule=any(
            rule.action == "RestartAllContainers" for each in everyone for rule in each.restartPolicyRules or ()
        ),
    )


def _init_status(state: core_v1.ContainerState | None) -> InitStatus:
    terminated = state.terminated if state is not None else None
    if terminated is None or (terminated.exitCode or 0) != 0:
        return InitStatus(succeeded=False)
    return InitStatus(
        succeeded=True,
        started_at_ns=_nanoseconds(terminated.startedAt),
        finished_at_ns=_nanoseconds(terminated.finishedAt),
    )


def _nanoseconds(text: str | None) -> int | None:
    """Return an RFC 3339 time as nanoseconds since 1970; None if it is missing or no time."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    delta = moment - _EPOCH
    below = _BELOW_MICROSECONDS.search(text)
    nanoseconds = int(below[1].ljust(3, "0")) if below else 0
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000 + nanoseconds


def convert_node(wire: core_v1.Node, settings: Settings) -> Node:
    """Return a node's cards and limits."""
    vendor = settings.vendor
    meta, status = wire.metadata or core_v1.ObjectMeta(), wire.status or core_v1.NodeStatus()
    name, annotations = meta.name or "", meta.annotations or {}
    register = _register(name, annotations.get(vendor.register_annotation))
    return Node(
        name=name,
        devices=register.devices,
        cordoned=frozenset(parse_list(annotations.get(vendor.cordon_annotation, ""))),
        duplicated=register.duplicated,
        count_allocatable=_count_allocatable(status.allocatable or {}, vendor.count_resource),
        problems=register.problems,
    )


def _register(node: str, text: str | None) -> Register:
    if not text:
        return Register()
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return unreadable(node, f"is not JSON: {error}")
    return read_register(node, value)


def _count_allocatable(allocatable: Mapping[str, object], name: str) -> int | None:
    """Return the kubelet's allocatable count, at most int32; None if the node does not say or it is no quantity."""
    if name not in allocatable:
        return None
    try:
        return max(0, min(parse_quantity(allocatable[name]).value(), 2**31 - 1))
    except QuantityError:
        return None


def convert_quota(wire: core_v1.ResourceQuota, settings: Settings) -> Quota:
    """Return a ResourceQuota's limits on managed resources."""
    meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or core_v1.QuotaSpec()
    scoped = bool(spec.scopes or spec.scopeSelector)
    return read_quota(meta.namespace or "default", meta.name or "", spec.hard or {}, settings.vendor, scoped=scoped)
