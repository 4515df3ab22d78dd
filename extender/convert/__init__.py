"""From Kubernetes objects to accounting values, and the texts of annotations.

Only this package knows both. Invariant: conversion never fails for an object that decodes.
"""

from extender.convert.allocation_text import pack_rows, unpack_rows
from extender.convert.annotations import (
    NODE,
    NODE_LOCK,
    PREEMPTING,
    RETRY_AT,
    TOTAL_LIMIT_BYTES,
    annotation_bytes,
    bind_annotations,
    bind_labels,
    first_illegal_key,
    scheduler_keys,
)
from extender.convert.claimed import claimed_requests, without_claimed
from extender.convert.disruption import convert_disruption_budget
from extender.convert.dra import convert_claim, convert_slice, mapped_resource
from extender.convert.hold import convert_hold, place_of
from extender.convert.manifests import InputError, Manifest, parse_json_manifests, parse_manifests, read_manifests
from extender.convert.names import misnamed
from extender.convert.node import convert_node, convert_quota
from extender.convert.pod import (
    CARD_POLICY,
    NODE_POLICY,
    WEIGHTS,
    PodReader,
    allocation_of,
    convert_pod,
    convert_without_rows,
    has_ended,
    held_or_rows,
    rows_text,
)
from extender.convert.preempting import preempting_of, preempting_text
from extender.convert.raw_budgets import read_raw_budgets
from extender.convert.templates import pod_manifests
from extender.convert.usage_file import read_usage, usage_lines
from extender.convert.virtual_machine import convert_vmi

__all__ = [
    "CARD_POLICY",
    "NODE",
    "NODE_LOCK",
    "NODE_POLICY",
    "PREEMPTING",
    "RETRY_AT",
    "TOTAL_LIMIT_BYTES",
    "WEIGHTS",
    "InputError",
    "Manifest",
    "PodReader",
    "allocation_of",
    "annotation_bytes",
    "bind_annotations",
    "bind_labels",
    "claimed_requests",
    "convert_claim",
    "convert_disruption_budget",
    "convert_hold",
    "convert_node",
    "convert_pod",
    "convert_quota",
    "convert_slice",
    "convert_vmi",
    "convert_without_rows",
    "first_illegal_key",
    "has_ended",
    "held_or_rows",
    "mapped_resource",
    "misnamed",
    "pack_rows",
    "parse_json_manifests",
    "parse_manifests",
    "place_of",
    "pod_manifests",
    "preempting_of",
    "preempting_text",
    "read_manifests",
    "read_raw_budgets",
    "read_usage",
    "rows_text",
    "scheduler_keys",
    "unpack_rows",
    "usage_lines",
    "without_claimed",
]
