"""Pods -> accounting values. Together with `convert_node`, the only module that knows both worlds.

It must not do I/O. Invariant: conversion never fails for an object that decodes; what cannot be used in it becomes an
Invalid, an UnreadableAllocation or a Problem in the value.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from accounting.demand import ContainerResources, charged_amount, container_charge, container_requests, pod_charge
from accounting.lifecycle import InitStatus, inits_over
from accounting.pod import Allocation, Container, ContainerKind, Pod, UnreadableAllocation
from accounting.policy import (
    Policies,
    make_policies,
    parse_card_policy,
    parse_node_policy,
    parse_weights,
    unknown_card_words,
    unknown_node_words,
)
from accounting.selection import Selection, parse_bool, parse_list, parse_types
from accounting.status import Invalid
from accounting.vendor import Vendor
from accounting.vendor_part import checked_vendors
from extender.allocation_text import join_texts, mig_part, unpack_rows
from extender.config import Settings
from extender.cpu import pod_cpu_milli
from extender.scopes import scope_of
from extender.wire import core_v1

NODE_POLICY = "hami.io/node-scheduler-policy"
CARD_POLICY = "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
_ANNOTATIONS = "metadata.annotations[{}]"
_TERMINAL = frozenset({"Succeeded", "Failed"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Digits of a second below the microseconds at which Python's times end.
_BELOW_MICROSECONDS = re.compile(r"[.,][0-9]{6}([0-9]{1,3})")


def convert_pod(wire: core_v1.Pod, settings: Settings) -> Pod:
    """Return a pod as accounting sees it. A manifest without metadata.uid is known by namespace/name."""
    return with_rows(convert_without_rows(wire, settings), rows_text(wire, settings), settings)


def rows_text(wire: core_v1.Pod, settings: Settings) -> str:
    """Return the allocation annotations of all vendors as one text; "" if there is none."""
    annotations = wire.metadata.annotations if wire.metadata is not None else None
    if not annotations:
        return ""
    texts = {each.key: annotations.get(each.devices_allocated_annotation, "") for each in settings.vendors}
    for vendor in settings.vendors:
        mig = annotations.get(vendor.mig_annotation, "") if vendor.mig_annotation else ""
        if mig and texts[vendor.key]:
            texts[mig_part(vendor.key)] = mig
    return join_texts(texts)


def with_rows(pod: Pod, text: str, settings: Settings) -> Pod:
    """Return a pod with the allocation that its annotations say."""
    rows = allocation_of(pod, text, settings)
    return pod if rows is None else pod.with_allocation(rows)


def allocation_of(pod: Pod, text: str, settings: Settings) -> Allocation | UnreadableAllocation | None:
    """Return the allocation that a pod's annotations say; None if they say nothing."""
    if not text:
        return None
    fields = _tools(settings.vendors).allocation_fields
    return checked_vendors(pod, unpack_rows(text, len(pod.containers), "", fields), fields)


def convert_without_rows(wire: core_v1.Pod, settings: Settings, allocation_text: str = "") -> Pod:
    """Return all of a pod but its allocation. `allocation_text`: the text that stands for it, see `rows_text`."""
    meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or core_v1.PodSpec()
    status = wire.status or core_v1.PodStatus()
    # Names of nodes and namespaces, and UUIDs of cards, stand in many pods: interned, each is in memory once.
    namespace, name = sys.intern(meta.namespace or "default"), meta.name or ""
    annotations = meta.annotations or {}
    containers, charge, invalid = _containers(spec, settings)
    vendors = _asked_vendors(containers, settings)
    selections, policies, misread, ignored = _choices(annotations, settings, vendors)
    return Pod(
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        containers=containers,
        node=sys.intern(spec.nodeName) if spec.nodeName else None,
        terminal=status.phase in _TERMINAL,
        deleting=meta.deletionTimestamp is not None,
        inits_over=_inits_over(spec, status),
        invalid=(*invalid, *misread) if any(container.request for container in containers) or invalid else (),
        selection=selections[0],
        policies=policies,
        api_charge=charge,
        scope=scope_of(spec, status),
        cpu_milli=pod_cpu_milli(spec),
        further_selections=selections[1:],
        ignored=ignored,
        allocation_text=allocation_text,
    )


def _asked_vendors(containers: tuple[Container, ...], settings: Settings) -> tuple[Vendor, ...]:
    """Return the vendors whose cards the containers ask for; the first vendor that is on, if they ask for none."""
    vendors = settings.vendors
    if len(vendors) == 1:
        return vendors
    asked = {request.vendor for each in containers for request in each.requests}
    return tuple(vendor for vendor in vendors if vendor.key in asked) or vendors[:1]


def container_kind(container: core_v1.Container) -> ContainerKind:
    """Return the kind of an entry of initContainers."""
    return ContainerKind.SIDECAR if container.restartPolicy == "Always" else ContainerKind.INIT


def _containers(
    spec: core_v1.PodSpec, settings: Settings
) -> tuple[tuple[Container, ...], tuple[tuple[str, int], ...], list[Invalid]]:
    """Return a pod's containers, what the API server charges for them, and what is invalid in them."""
    tools = _tools(settings.vendors)
    containers: list[Container] = []
    charged: list[tuple[int, _Charge]] = []
    invalid: list[Invalid] = []
    for list_name, entries in (("initContainers", spec.initContainers), ("containers", spec.containers)):
        for each in entries or ():
            kind = _APP if list_name == "containers" else _SIDECAR if each.restartPolicy == "Always" else _INIT
            written = _NOTHING if each.resources is None else _written(each.resources)
            read = tools.container if _is_text(written) else tools.container.__wrapped__
            container, refused, charge = read(list_name, each.name or "", kind, written)
            containers.append(container)
            if charge is not None:
                invalid.extend(refused)
                charged.append((kind, charge))
    overhead = spec.overhead or {}
    extra = tuple((name, charged_amount(overhead[name])) for name in tools.resources if name in overhead)
    return tuple(containers), _charge(tuple(charged), extra), invalid


#: All quantities of a container as written: names and values of the limits, and of the requests.
_Written = tuple[tuple[tuple[str, object], ...], tuple[tuple[str, object], ...]]
_NOTHING: _Written = ((), ())
#: What the API server charges for one container, per resource name.
_Charge = tuple[tuple[str, int], ...]
#: Numbers stand for kinds where results are remembered: hashing a member of an Enum is slow.
_KINDS = (ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP)
_INIT, _SIDECAR, _APP = range(3)


class _Tools(NamedTuple):
    """What is worked out once per vendor."""

    resources: tuple[str, ...]
    choice_keys: frozenset[str]
    allocation_fields: Mapping[str, str]
    """Vendor key -> where its allocation annotation stands."""
    container: Any
    """(list name, container name, kind, quantities) -> container, what is invalid in it, and its charge, None if it
    asks for nothing that is managed. Remembered: replicas are written alike, so most containers are read once.
    """


@lru_cache(maxsize=16)
def _tools(vendors: tuple[Vendor, ...]) -> _Tools:
    names = tuple(name for vendor in vendors for name in vendor.resources)

    @lru_cache(maxsize=16_384)
    def container(
        list_name: str, name: str, kind: int, written: _Written
    ) -> tuple[Container, tuple[Invalid, ...], _Charge | None]:
        resources = _resources(written, names)
        if not (resources.limits or resources.requests):
            return Container(name, _KINDS[kind]), (), None
        requests, invalid = container_requests(resources, vendors, f"spec.{list_name}[{name}].resources")
        first = requests[0] if requests else None
        return Container(name, _KINDS[kind], first, requests[1:]), invalid, container_charge(resources, *vendors)

    fields = {each.key: _ANNOTATIONS.format(each.devices_allocated_annotation) for each in vendors}
    return _Tools(names, frozenset().union(*map(_choice_keys, vendors)), fields, container)


def _written(resources: core_v1.Resources) -> _Written:
    limits, requests = resources.limits, resources.requests
    return tuple(limits.items()) if limits else (), tuple(requests.items()) if requests else ()


def _is_text(written: _Written) -> bool:
    """Whether all quantities are text, as an API server gives them; only then equal keys mean equal values."""
    for part in written:
        for _, value in part:
            if value.__class__ is not str:
                return False
    return True


@lru_cache(maxsize=16_384)
def _charge(charged: tuple[tuple[int, _Charge], ...], overhead: _Charge) -> _Charge:
    return pod_charge([(_KINDS[kind], charge) for kind, charge in charged], overhead)


def _resources(written: _Written, names: tuple[str, ...]) -> ContainerResources:
    """Return what is written of managed resources, in the order of their names."""
    limits, requests = (
        {name: quantities[name] for name in names if quantities.get(name) is not None}
        for quantities in map(dict, written)
    )
    return ContainerResources(limits, requests)


def _choices(
    annotations: Mapping[str, str], settings: Settings, vendors: tuple[Vendor, ...]
) -> tuple[tuple[Selection, ...], Policies, list[Invalid], tuple[Invalid, ...]]:
    """Read the annotations that select cards, one selection per vendor, and policies.

    Returns also what is invalid in them, and the words that mean nothing.
    """
    if annotations.keys().isdisjoint(_tools(settings.vendors).choice_keys):
        return _every_card(vendors), settings.policies, [], ()
    policies, invalid, ignored = _policies(annotations, settings.policies)
    selections = []
    for vendor in vendors:
        selections.append(_selection(annotations, vendor, invalid))
        for key, value in vendor.unmanaged_annotations:
            if annotations.get(key) == value:
                invalid.append(Invalid(_ANNOTATIONS.format(key), value, "this way of sharing a card is not managed"))
    return tuple(selections), policies, invalid, ignored


@lru_cache(maxsize=64)
def _every_card(vendors: tuple[Vendor, ...]) -> tuple[Selection, ...]:
    return tuple(Selection(vendor=vendor.key) for vendor in vendors)


def _policies(
    annotations: Mapping[str, str], policies: Policies
) -> tuple[Policies, list[Invalid], tuple[Invalid, ...]]:
    invalid: list[Invalid] = []
    ignored: list[Invalid] = []
    if NODE_POLICY in annotations:
        text = annotations[NODE_POLICY]
        policies = replace(policies, node=parse_node_policy(text))
        if policies.node.looks_ahead:
            policies = replace(policies, card=make_policies(text, None).card)
        ignored += [_ignored(NODE_POLICY, word) for word in unknown_node_words(text)]
    if CARD_POLICY in annotations:
        text = annotations[CARD_POLICY]
        policies = replace(policies, card=parse_card_policy(text))
        ignored += [_ignored(CARD_POLICY, word) for word in unknown_card_words(text)]
    if WEIGHTS in annotations:
        weights = parse_weights(annotations[WEIGHTS], _ANNOTATIONS.format(WEIGHTS))
        if isinstance(weights, Invalid):
            invalid.append(weights)
        else:
            policies = replace(policies, weights=weights)
    return policies, invalid, tuple(ignored)


def _ignored(key: str, word: str) -> Invalid:
    return Invalid(_ANNOTATIONS.format(key), word, "is no policy and is ignored")


def _selection(annotations: Mapping[str, str], vendor: Vendor, invalid: list[Invalid]) -> Selection:
    """Read a vendor's selecting annotations; adds what is invalid in them to `invalid`."""
    numa_bind = parse_bool(annotations.get(vendor.numa_bind_annotation) or "false")
    if numa_bind is None:
        field = _ANNOTATIONS.format(vendor.numa_bind_annotation)
        invalid.append(Invalid(field, annotations[vendor.numa_bind_annotation], "must be true or false"))
    uuids, also = (
        frozenset(parse_list(annotations.get(key, "")))
        for key in (vendor.use_uuid_annotation, vendor.also_use_uuid_annotation)
    )
    if uuids and also:
        # A card must be in both lists. No card has an empty UUID, so a list of that alone takes none.
        uuids = uuids & also or frozenset({""})
    refused = (vendor.nouse_uuid_annotation, vendor.also_nouse_uuid_annotation)
    return Selection(
        use_uuids=uuids or also,
        nouse_uuids=frozenset(uuid for key in refused for uuid in parse_list(annotations.get(key, ""))),
        use_types=parse_types(annotations.get(vendor.use_type_annotation, "")),
        nouse_types=parse_types(annotations.get(vendor.nouse_type_annotation, "")),
        modes=annotations.get(vendor.mode_annotation, ""),
        numa_bind=bool(numa_bind),
        vendor=vendor.key,
    )


def _choice_keys(vendor: Vendor) -> frozenset[str]:
    selecting = (
        vendor.use_uuid_annotation,
        vendor.nouse_uuid_annotation,
        vendor.also_use_uuid_annotation,
        vendor.also_nouse_uuid_annotation,
        vendor.use_type_annotation,
        vendor.nouse_type_annotation,
        vendor.numa_bind_annotation,
        vendor.mode_annotation,
        *(key for key, _ in vendor.unmanaged_annotations),
    )
    return frozenset((NODE_POLICY, CARD_POLICY, WEIGHTS, *filter(None, selecting)))


def _inits_over(spec: core_v1.PodSpec, status: core_v1.PodStatus) -> bool:
    inits = [each for each in spec.initContainers or () if container_kind(each) is ContainerKind.INIT]
    if not inits:
        return True
    states = {each.name: each.state for each in status.initContainerStatuses or ()}
    if len(inits) == 1 and not _succeeded(states.get(inits[0].name)):
        return False
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


def _succeeded(state: core_v1.ContainerState | None) -> bool:
    terminated = None if state is None else state.terminated
    return terminated is not None and not terminated.exitCode


def _init_status(state: core_v1.ContainerState | None) -> InitStatus:
    terminated = None if state is None else state.terminated
    if terminated is None or not _succeeded(state):
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
