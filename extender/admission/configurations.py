"""The webhook configurations for the API server, as objects.

Why it exists: the API server must ask about exactly what the webhooks check, so both follow from the table of vendors.
It must not do I/O. Invariants: failurePolicy is Fail, and the matchConditions are so narrow that without the extender
only pods that concern shares of cards are refused, and no kubelet, plugin or controller waits; the extender's own
namespace is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.vendor import Vendor
from extender.admission.owned import owned_annotations, owned_labels
from extender.admission.settings import AdmissionSettings

Json = dict[str, Any]

NAME = "gpu-extender"
SKIP_LABEL = "gpu-extender.io/webhook"
_DOMAIN = "gpu-extender.io"
#: Answers come from memory in a millisecond; the rest of the time is for a replica that is just ending.
_TIMEOUT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Target:
    """The address of the webhooks for the API server."""

    namespace: str = "kube-system"
    """The extender's own namespace. It is left out, so that the extender can start while no replica answers."""
    service: str = "gpu-extender-webhook"
    url: str = ""
    """Instead of the service: https://host:port."""
    ca_bundle: str = ""
    """PEM in base64; empty if it is written later."""
    inject_ca_from: str = ""
    """namespace/name of the cert-manager Certificate whose authority is injected."""


def configurations(
    vendors: tuple[Vendor, ...], settings: AdmissionSettings, target: Target, raw_keys: tuple[str, ...] = ()
) -> list[Json]:
    """Return the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration.

    `raw_keys`: resource names of whole devices, whose budgets are checked for pods and VMs.
    """
    accounts = sorted(settings.trusted_accounts)
    mutating = _webhook("mutate", "/mutate", target, ["CREATE"], ["pods"], [_asks(vendors)])
    mutating["reinvocationPolicy"] = "IfNeeded"
    validating = [
        _webhook("create", "/validate", target, ["CREATE"], ["pods"], [_concerns_cards(vendors, raw_keys)]),
        _webhook(
            "update",
            "/validate",
            target,
            ["UPDATE"],
            ["pods", "pods/status"],
            [_by_others(accounts), _changes_owned_keys(vendors)],
        ),
        _webhook(
            "binding",
            "/validate",
            target,
            ["CREATE"],
            ["pods/binding", "bindings"],
            [_by_others(accounts), _sets_owned_keys(vendors)],
        ),
        _webhook("debug", "/validate", target, ["UPDATE"], ["pods/ephemeralcontainers"], [_debugs_privileged()]),
    ]
    if raw_keys:
        machines = _webhook(
            "machine", "/validate", target, ["CREATE"], ["virtualmachineinstances"], [_names_devices(raw_keys)]
        )
        machines["rules"][0] |= {"apiGroups": ["kubevirt.io"], "apiVersions": ["v1"]}
        validating.append(machines)
    return [
        _configuration("MutatingWebhookConfiguration", target, [mutating]),
        _configuration("ValidatingWebhookConfiguration", target, validating),
    ]


def _configuration(kind: str, target: Target, webhooks: list[Json]) -> Json:
    meta: Json = {"name": NAME}
    if target.inject_ca_from:
        meta["annotations"] = {"cert-manager.io/inject-ca-from": target.inject_ca_from}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": meta, "webhooks": webhooks}


def _webhook(
    name: str, path: str, target: Target, operations: list[str], resources: list[str], conditions: list[Json]
) -> Json:
    client: Json = {"url": target.url.rstrip("/") + path}
    if not target.url:
        client = {"service": {"namespace": target.namespace, "name": target.service, "path": path, "port": 443}}
    if target.ca_bundle:
        client["caBundle"] = target.ca_bundle
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": resources}
    return {
        "name": f"{name}.{_DOMAIN}",
        "clientConfig": client,
        "rules": [rule | {"scope": "Namespaced"}],
        "matchConditions": conditions,
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [target.namespace]},
                {"key": SKIP_LABEL, "operator": "NotIn", "values": ["ignore"]},
            ]
        },
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_SECONDS,
    }


# -- match conditions --------------------------------------------------------------------------------------------------

_CONTAINERS = "(object.spec.?initContainers.orValue([]) + object.spec.?containers.orValue([]))"
_LISTS = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"


def _asks(vendors: tuple[Vendor, ...]) -> Json:
    """Return the condition: a container names a managed resource."""
    names = _list(dict.fromkeys(name for vendor in vendors for name in vendor.resources))
    return _condition(
        "names-a-managed-resource", f"{_CONTAINERS}.exists(c, {_LISTS}.exists(m, {names}.exists(r, r in m)))"
    )


def _concerns_cards(vendors: tuple[Vendor, ...], raw_keys: tuple[str, ...]) -> Json:
    """Return the condition: a container's resource or an annotation is managed or may be meant as managed."""
    names = dict.fromkeys(name for vendor in vendors for name in vendor.resources)
    parts = _parts_of(names)
    in_resources = f"{_CONTAINERS}.exists(c, {_LISTS}.exists(m, m.exists(k, {_matches('k', parts)})))"
    keys = dict.fromkeys((*_parts_of(owned_annotations(vendors)), *parts))
    raw = f" || {_CONTAINERS}.exists(c, {_LISTS}.exists(m, {_list(raw_keys)}.exists(r, r in m)))" if raw_keys else ""
    in_annotations = f"object.metadata.?annotations.orValue({{}}).exists(k, {_matches('k', keys)})"
    in_labels = f"{_list(owned_labels())}.exists(k, k in object.metadata.?labels.orValue({{}}))"
    return _condition("concerns-cards", f"{in_resources} || {in_annotations} || {in_labels}{raw}")


def _names_devices(raw_keys: tuple[str, ...]) -> Json:
    """A VM names a whole device by a raw key."""
    devices = "object.spec.domain.?devices"
    lists = " + ".join(f"{devices}.?{name}.orValue([])" for name in ("gpus", "hostDevices"))
    return _condition("names-whole-devices", f"({lists}).exists(d, d.?deviceName.orValue('') in {_list(raw_keys)})")


def _parts_of(names: Iterable[str]) -> list[str]:
    """Return texts that such names contain, misspelt or not: the domain's first word, and "gpu"."""
    return list(dict.fromkeys((*(name.partition("/")[0].partition(".")[0] for name in names), "gpu")))


def _matches(variable: str, parts: Iterable[str]) -> str:
    return f"{_list(parts)}.exists(p, {variable}.lowerAscii().contains(p))"


def _by_others(accounts: Sequence[str]) -> Json:
    """Return the condition: the requester is neither the scheduler nor the node plugin, which must never wait."""
    return _condition("by-others", f"!(request.userInfo.username in {_list(accounts)})")


def _changes_owned_keys(vendors: tuple[Vendor, ...]) -> Json:
    """Return the condition: an update sets, changes or removes a key of the scheduler."""
    parts = [
        f"{_list(keys)}.exists(k, object.metadata.?{field}[?k] != oldObject.metadata.?{field}[?k])"
        for field, keys in (("annotations", owned_annotations(vendors)), ("labels", owned_labels()))
    ]
    return _condition("changes-owned-keys", " || ".join(parts))


def _sets_owned_keys(vendors: tuple[Vendor, ...]) -> Json:
    """Return the condition: a Binding carries a key of the scheduler."""
    parts = [
        f"{_list(keys)}.exists(k, k in object.metadata.?{field}.orValue({{}}))"
        for field, keys in (("annotations", owned_annotations(vendors)), ("labels", owned_labels()))
    ]
    return _condition("sets-owned-keys", " || ".join(parts))


def _debugs_privileged() -> Json:
    """Return the condition: an ephemeral container is privileged."""
    containers = "object.spec.?ephemeralContainers.orValue([])"
    return _condition("is-privileged", f"{containers}.exists(c, c.?securityContext.?privileged.orValue(false))")


def _condition(name: str, expression: str) -> Json:
    return {"name": name, "expression": expression}


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"
