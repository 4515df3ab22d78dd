"""What an object must satisfy to be stored: names, labels, annotations, and the fields that may not change.

It exists because an API server that accepts everything hides bugs: an illegal annotation makes every later update of a
pod fail. It must not store or default. Invariant: what the real server accepts is accepted; the reverse is not
promised.
"""

import re
from collections.abc import Iterable
from typing import Any

from tests.apiserver.resources import Json, Resource
from tests.apiserver.statuses import ApiError, Cause, invalid

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
_NAME_CHARACTERS = 253
_PART_CHARACTERS = 63
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_POD_UPDATES = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FIXED_META = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def check_object(resource: Resource, obj: Json) -> None:
    """Raise ApiError 422 unless the object is legal by itself."""
    meta = obj["metadata"]
    causes = [*_name(meta["name"]), *_labels(meta.get("labels")), *_annotations(meta.get("annotations"))]
    if resource.kind == "Pod":
        causes.extend(_pod_spec(obj.get("spec") or {}))
    if resource.kind == "Lease":
        causes.extend(_lease_spec(obj.get("spec") or {}))
    if causes:
        raise invalid(resource.qualified_kind, meta["name"], causes)


def check_update(resource: Resource, new: Json, old: Json) -> None:
    """Raise ApiError 422 unless the object is legal and may follow `old`."""
    check_object(resource, new)
    meta, old_meta = new["metadata"], old["metadata"]
    causes = [_immutable(f"metadata.{key}", meta.get(key)) for key in _FIXED_META if meta.get(key) != old_meta.get(key)]
    if old_meta.get("deletionTimestamp"):
        added = set(meta.get("finalizers") or ()) - set(old_meta.get("finalizers") or ())
        if added:
            text = "Forbidden: no new finalizers can be added if the object is being deleted"
            causes.append(Cause("FieldValueForbidden", text, "metadata.finalizers"))
    if resource.kind == "Pod":
        causes.extend(_pod_changes(new.get("spec") or {}, old.get("spec") or {}))
    if causes:
        raise invalid(resource.qualified_kind, meta["name"], causes)


def has_text_maps(obj: Json) -> bool:
    """Whether labels and annotations map texts to texts. Go refuses to decode others, before any validation."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return False
    maps = [meta.get(key) or {} for key in ("annotations", "labels")]
    return all(isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in maps)


def binding_complaint(binding: Json) -> ApiError | None:
    """Return what is wrong with the target of a Binding."""
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        return ApiError(500, f'target.kind: Unsupported value: "{target["kind"]}"', reason="")
    return None if target.get("name") else ApiError(500, "target.name: Required value", reason="")


def _name(name: str) -> Iterable[Cause]:
    if len(name) > _NAME_CHARACTERS or not _SUBDOMAIN.fullmatch(name):
        text = f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of ...'
        yield Cause("FieldValueInvalid", text, "metadata.name")


def _labels(labels: dict[str, str] | None) -> Iterable[Cause]:
    for key, value in (labels or {}).items():
        if not _is_qualified(key):
            yield Cause(
                "FieldValueInvalid", f'Invalid value: "{key}": name part must consist of ...', "metadata.labels"
            )
        if value and not _is_part(value):
            text = f'Invalid value: "{value}": a valid label must be an empty string or consist of ...'
            yield Cause("FieldValueInvalid", text, "metadata.labels")


def _annotations(annotations: dict[str, str] | None) -> Iterable[Cause]:
    where, size = "metadata.annotations", 0
    for key, value in (annotations or {}).items():
        size += len(key.encode()) + len(value.encode())
        if not _is_qualified(key.lower()):
            yield Cause("FieldValueInvalid", f'Invalid value: "{key}": name part must consist of ...', where)
    if size > ANNOTATIONS_LIMIT_BYTES:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes", where)


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _NAME_CHARACTERS and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return _is_part(name)


def _is_part(text: str) -> bool:
    return len(text) <= _PART_CHARACTERS and _PART.fullmatch(text) is not None


def _pod_spec(spec: Json) -> Iterable[Cause]:
    containers = spec.get("containers") or []
    if not containers:
        yield Cause("FieldValueRequired", "Required value", "spec.containers")
    for where in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(where) or []):
            for key in ("name", "image"):
                if not container.get(key):
                    yield Cause("FieldValueRequired", "Required value", f"spec.{where}[{position}].{key}")


def _lease_spec(spec: Json) -> Iterable[Cause]:
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        text = f"Invalid value: {duration}: must be greater than 0"
        yield Cause("FieldValueInvalid", text, "spec.leaseDurationSeconds")
    if transitions is not None and transitions < 0:
        text = f"Invalid value: {transitions}: must be greater than or equal to 0"
        yield Cause("FieldValueInvalid", text, "spec.leaseTransitions")


def _pod_changes(new: Json, old: Json) -> Iterable[Cause]:
    gates, old_gates = new.get("schedulingGates") or [], old.get("schedulingGates") or []
    if any(gate not in old_gates for gate in gates):
        yield Cause("FieldValueForbidden", "Forbidden: only deletion is allowed", "spec.schedulingGates")
    tolerations = new.get("tolerations") or []
    if any(toleration not in tolerations for toleration in old.get("tolerations") or []):
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield Cause("FieldValueForbidden", text, "spec.tolerations")
    if _fixed(new, gated=bool(old_gates)) != _fixed(old, gated=bool(old_gates)):
        yield Cause("FieldValueForbidden", _POD_UPDATES, "spec")


def _fixed(spec: Json, *, gated: bool) -> Json:
    """Return a pod's spec without the fields that may change."""
    free = {"activeDeadlineSeconds", "schedulingGates", "tolerations", *(("affinity", "nodeSelector") if gated else ())}
    fixed = {key: value for key, value in spec.items() if key not in free and value not in (None, "", [], {})}
    for where in ("initContainers", "containers"):
        if where in fixed:
            fixed[where] = [{key: value for key, value in one.items() if key != "image"} for one in fixed[where]]
    return fixed


def _immutable(where: str, value: Any) -> Cause:  # noqa: ANN401 - any JSON value
    shown = f'"{value}"' if isinstance(value, str) else value
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: field is immutable", where)
