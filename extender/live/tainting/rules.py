"""DeviceTaintRules (resource.k8s.io v1 and v1beta2) as they are written and read.

It must not do I/O. Invariant: a rule's name follows from its device, so that the same device never has two.
"""

import hashlib
from typing import Any

import msgspec

from accounting.holders import DeviceId
from extender.wire.shallow import read_json

LABEL, LABEL_VALUE = "app.kubernetes.io/managed-by", "gpu-extender"
KEY = "gpu-extender.io/held"


class _Meta(msgspec.Struct):
    name: str = ""


class _Rule(msgspec.Struct):
    metadata: _Meta


def rule_name(device: DeviceId) -> str:
    """Return the name of the rule of a device."""
    text = "/".join(device)
    return f"gpu-extender-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def rule_of(device: DeviceId, version: str) -> dict[str, Any]:
    """Return the rule that keeps new claims off a device. Claims that have it keep it."""
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": rule_name(device), "labels": {LABEL: LABEL_VALUE}},
        "spec": {
            "deviceSelector": {"driver": device.driver, "pool": device.pool, "device": device.device},
            "taint": {"key": KEY, "effect": "NoSchedule"},
        },
    }


def name_of_rule(raw: msgspec.Raw) -> str:
    """Return a rule's name; "" if it does not decode."""
    try:
        return read_json(raw, _Rule).metadata.name
    except msgspec.DecodeError:
        return ""
