"""From Pod objects to accounting values.

It must not do I/O. Invariant: conversion never fails for an object that decodes; an unusable part becomes an Invalid,
an UnreadableAllocation or a Problem in the value.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from accounting.holdings import Held
from accounting.pod import Allocation, Container, Pod, UnreadableAllocation
from accounting.pod_info import NOT_STARTED
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
from accounting.vendor import DEFAULT_VENDOR_KEY, Vendor
from accounting.vendor_part import checked_vendors, requested_vendors
from extender.config import Settings
from extender.convert.allocation_text import join_texts, mig_part, unpack_held, unpack_rows
from extender.convert.containers import container_reader
from extender.convert.init_statuses import are_inits_over
from extender.convert.names import misnamed
from extender.convert.pod_info import info_of, started_of
from extender.convert.preempting import preempting_of
from extender.convert.scopes import scope_of
from extender.wire import core_v1, watched

#: Each is fitted on all nodes after the others: at 5,000 nodes that takes about 0.8 ms a container.
MOST_ASKING = 64
NODE_POLICY = "hami.io/node-scheduler-policy"
CARD_POLICY = "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
_ANNOTATIONS = "metadata.annotations[{}]"
#: Limit of an annotation that selects cards, enough for 200 UUIDs: every word is compared with every model.
_LONGEST_CHOICE = 8192
_TERMINAL = frozenset({"Succeeded", "Failed"})
#: Pods for which no vendor can be missing its rows.
_DEFAULT_VENDOR_AT_MOST = ((), (DEFAULT_VENDOR_KEY,))


def convert_pod(wire: core_v1.Pod, settings: Settings) -> Pod:
    """Return a pod as accounting uses it. A manifest without metadata.uid gets namespace/name as its UID.

    A name that no API server accepts is invalid like a bad request: such a pod fits nowhere.
    """
    pod = with_rows(convert_without_rows(wire, settings), rows_text(wire, settings), settings)
    illegal = misnamed(wire.metadata)
    return pod._replace(invalid=(*illegal, *pod.invalid)) if illegal else pod


def has_ended(wire: watched.AnyPod) -> bool:
    """Return whether a pod has succeeded or failed."""
    return wire.status is not None and wire.status.phase in _TERMINAL


def rows_text(wire: watched.AnyPod, settings: Settings) -> str:
    """Return the allocation annotations of all vendors as one text; "" if there is none."""
    return PodReader(settings).rows_text(wire)


def with_rows(pod: Pod, text: str, settings: Settings) -> Pod:
    """Return a pod with the allocation that its annotations say."""
    rows = allocation_of(pod, text, settings)
    return pod if rows is None else pod.with_allocation(rows)


def allocation_of(pod: Pod, text: str, settings: Settings) -> Allocation | UnreadableAllocation | None:
    """Return the allocation that a pod's annotations say; None if there is none."""
    if not text:
        return None
    fields = _tools(settings.vendors).allocation_fields
    return checked_vendors(pod, unpack_rows(text, pod.containers, "", fields), fields)


def held_or_rows(pod: Pod, text: str, settings: Settings) -> Held | Allocation | UnreadableAllocation | None:
    """Return what a pod holds by its annotations' text if that is quick; else `allocation_of`."""
    if text and requested_vendors(pod) in _DEFAULT_VENDOR_AT_MOST:
        held = unpack_held(text, pod.containers)
        if held is not None:
            return held
    return allocation_of(pod, text, settings)


def convert_without_rows(wire: watched.AnyPod, settings: Settings, allocation_text: str = "") -> Pod:
    """Return a pod without its allocation. `allocation_text`: the text that stands for it, see `rows_text`."""
    return PodReader(settings).convert(wire, allocation_text)


class PodReader:
    """Reads pods by some settings; what depends on nothing else is worked out once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._vendors = vendors = settings.vendors
        self._tools, self._containers = _tools(vendors), container_reader(vendors, settings.raw_keys)

    def rows_text(self, wire: watched.AnyPod) -> str:
        """Return the allocation annotations of all vendors as one text; "" if there is none."""
        annotations = wire.metadata.annotations if wire.metadata is not None else None
        if not annotations:
            return ""
        texts: dict[str, str] = {}
        for key, rows, mig in self._tools.annotations:
            text = annotations.get(rows)
            if not text:
                continue
            texts[key] = text
            instances = annotations.get(mig) if mig else None
            if instances:
                texts[mig_part(key)] = instances
        return join_texts(texts) if texts else ""

    def convert(self, wire: watched.AnyPod, allocation_text: str = "") -> Pod:
        """Return a pod without its allocation. `allocation_text`: the text that stands for it, see `rows_text`."""
        meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or core_v1.PodSpec()
        status, settings = wire.status or core_v1.PodStatus(), self._settings
        # Many pods have the same names of nodes and namespaces and the same UUIDs; interned, each is in memory once.
        namespace, name = sys.intern(meta.namespace or "default"), meta.name or ""
        annotations = meta.annotations or {}
        containers, charge, invalid, cpu_milli, requested, raw = self._containers(spec)
        if len(containers) > MOST_ASKING:
            invalid = (*invalid, *_too_many(containers))
        selections, policies, misread, ignored = self._choices(annotations, containers)
        # By position: with names it takes three times as long, and every event of a pod comes through here.
        return Pod(
            meta.uid or f"{namespace}/{name}",
            namespace,
            name,
            containers,
            sys.intern(spec.nodeName) if spec.nodeName else None,
            status.phase in _TERMINAL,
            meta.deletionTimestamp is not None,
            not spec.initContainers or are_inits_over(spec, status),
            None,
            _refused(containers, invalid, misread) if invalid or misread else (),
            selections[0],
            policies,
            charge,
            scope_of(spec, status),
            cpu_milli,
            selections[1:],
            ignored,
            allocation_text,
            info_of(meta, spec, status, requested),
            started_of(status) if status.startTime else NOT_STARTED,
            "" if spec.nodeName or not status.nominatedNodeName else sys.intern(status.nominatedNodeName),
            raw,
            preempting_of(annotations) if settings.evicts and not spec.nodeName else None,
        )

    def _choices(
        self, annotations: Mapping[str, str], containers: tuple[Container, ...]
    ) -> tuple[tuple[Selection, ...], Policies, Sequence[Invalid], tuple[Invalid, ...]]:
        """Read the annotations that select cards, one selection per requested vendor, and those of policies.

        Also returns what is invalid in them, and the words that have no meaning.
        """
        tools, vendors, settings = self._tools, self._vendors, self._settings
        asked = vendors if len(vendors) == 1 else _asked(containers, vendors)
        if annotations.keys().isdisjoint(tools.choice_keys):
            return tools.every_card if asked is vendors else _every_card(asked), settings.policies, (), ()
        return _chosen(*_without_long(annotations, tools.choice_keys), settings.policies, asked)


def _too_many(containers: tuple[Container, ...]) -> tuple[Invalid, ...]:
    asking = sum(bool(container.request) for container in containers)
    why = f"at most {MOST_ASKING} containers of a pod may ask for cards"
    return (Invalid("spec.containers", str(asking), why),) if asking > MOST_ASKING else ()


def _refused(
    containers: tuple[Container, ...], invalid: tuple[Invalid, ...], misread: Sequence[Invalid]
) -> tuple[Invalid, ...]:
    """Return what is invalid in a pod; annotations of a pod that asks for nothing are never invalid."""
    return (*invalid, *misread) if invalid or any(container.request for container in containers) else ()


def _asked(containers: tuple[Container, ...], vendors: tuple[Vendor, ...]) -> tuple[Vendor, ...]:
    """Return the vendors whose cards the containers ask for; the first enabled vendor if they ask for none."""
    asked = {request.vendor for each in containers for request in each.requests}
    return tuple(vendor for vendor in vendors if vendor.key in asked) or vendors[:1]


class _Tools(NamedTuple):
    """What depends only on the vendors, worked out once."""

    choice_keys: frozenset[str]
    """The annotations that choose anything."""
    every_card: tuple[Selection, ...]
    """The choice of a pod without such annotations that asks for cards of all these vendors."""
    allocation_fields: Mapping[str, str]
    """Vendor key -> path of its allocation annotation."""
    annotations: tuple[tuple[str, str, str], ...]
    """Each vendor's key, its allocation annotation and its MIG annotation; the last may be empty."""


@lru_cache(maxsize=16)
def _tools(vendors: tuple[Vendor, ...]) -> _Tools:
    fields = {each.key: _ANNOTATIONS.format(each.devices_allocated_annotation) for each in vendors}
    keys = frozenset().union(*map(_choice_keys, vendors))
    annotations = tuple((each.key, each.devices_allocated_annotation, each.mig_annotation or "") for each in vendors)
    return _Tools(keys, _every_card(vendors), fields, annotations)


def _chosen(
    annotations: Mapping[str, str], too_long: list[Invalid], policies: Policies, asked: tuple[Vendor, ...]
) -> tuple[tuple[Selection, ...], Policies, Sequence[Invalid], tuple[Invalid, ...]]:
    policies, invalid, ignored = _policies(annotations, policies)
    invalid += too_long
    selections = []
    for vendor in asked:
        selections.append(_selection(annotations, vendor, invalid))
        for key, value in vendor.unmanaged_annotations:
            if annotations.get(key) == value:
                invalid.append(Invalid(_ANNOTATIONS.format(key), value, "this way of sharing a card is not managed"))
    return tuple(selections), policies, invalid, ignored


def _without_long(annotations: Mapping[str, str], keys: frozenset[str]) -> tuple[Mapping[str, str], list[Invalid]]:
    """Return the annotations without those of these keys that are too long to compare with every card."""
    long = sorted(key for key in keys & annotations.keys() if len(annotations[key]) > _LONGEST_CHOICE)
    why = f"has more than {_LONGEST_CHOICE} characters"
    invalid = [Invalid(_ANNOTATIONS.format(key), f"{annotations[key][:40]}...", why) for key in long]
    return ({key: each for key, each in annotations.items() if key not in long} if long else annotations), invalid


@lru_cache(maxsize=64)
def _every_card(vendors: tuple[Vendor, ...]) -> tuple[Selection, ...]:
    return tuple(Selection(vendor=vendor.key) for vendor in vendors)


def _policies(
    annotations: Mapping[str, str], policies: Policies
) -> tuple[Policies, list[Invalid], tuple[Invalid, ...]]:
    """Read the annotations that override the settings. An unknown policy leaves the setting in place (HAMi#2769)."""
    invalid: list[Invalid] = []
    ignored: list[Invalid] = []
    if NODE_POLICY in annotations:
        text = annotations[NODE_POLICY]
        unknown = unknown_node_words(text)
        if not unknown:
            policies = replace(policies, node=parse_node_policy(text))
            if policies.node.looks_ahead:
                policies = replace(policies, card=make_policies(text, None).card)
        ignored += [_ignored(NODE_POLICY, word) for word in unknown]
    if CARD_POLICY in annotations:
        text = annotations[CARD_POLICY]
        unknown = unknown_card_words(text)
        if not unknown:
            policies = replace(policies, card=parse_card_policy(text))
        elif _is_empty_list(text):
            invalid.append(_empty_list(CARD_POLICY, text))
        else:
            ignored += [_ignored(CARD_POLICY, word) for word in unknown]
    if WEIGHTS in annotations:
        weights = parse_weights(annotations[WEIGHTS], _ANNOTATIONS.format(WEIGHTS))
        if isinstance(weights, Invalid):
            invalid.append(weights)
        else:
            policies = replace(policies, weights=weights)
    return policies, invalid, tuple(ignored)


def _ignored(key: str, word: str) -> Invalid:
    return Invalid(_ANNOTATIONS.format(key), word, "is no policy and is ignored")


def _is_empty_list(text: str) -> bool:
    """Whether a comma list is empty. A blank text is not a list: it has no meaning."""
    return bool(text.strip()) and not parse_list(text)


def _empty_list(key: str, text: str) -> Invalid:
    return Invalid(_ANNOTATIONS.format(key), text, "is a list without entries")


def _selection(annotations: Mapping[str, str], vendor: Vendor, invalid: list[Invalid]) -> Selection:
    """Read a vendor's annotations that select cards; adds what is invalid in them to `invalid`."""
    numa_bind = parse_bool(annotations.get(vendor.numa_bind_annotation) or "false")
    if numa_bind is None:
        field = _ANNOTATIONS.format(vendor.numa_bind_annotation)
        invalid.append(Invalid(field, annotations[vendor.numa_bind_annotation], "must be true or false"))
    lists = (key for key in _list_keys(vendor) if _is_empty_list(annotations.get(key, "")))
    invalid += [_empty_list(key, annotations[key]) for key in lists]
    uuids, also = (
        frozenset(parse_list(annotations.get(key, "")))
        for key in (vendor.use_uuid_annotation, vendor.also_use_uuid_annotation)
    )
    if uuids and also:
        # A card must be in both lists. No card has an empty UUID, so a list of only that selects none.
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


def _list_keys(vendor: Vendor) -> tuple[str, ...]:
    """Return the keys of annotations that are comma lists of cards or models."""
    lists = (
        vendor.use_uuid_annotation,
        vendor.nouse_uuid_annotation,
        vendor.also_use_uuid_annotation,
        vendor.also_nouse_uuid_annotation,
        vendor.use_type_annotation,
        vendor.nouse_type_annotation,
    )
    return tuple(filter(None, lists))


def _choice_keys(vendor: Vendor) -> frozenset[str]:
    selecting = (
        *_list_keys(vendor),
        vendor.numa_bind_annotation,
        vendor.mode_annotation,
        *(key for key, _ in vendor.unmanaged_annotations),
    )
    return frozenset((NODE_POLICY, CARD_POLICY, WEIGHTS, *filter(None, selecting)))
