"""Creates, replaces and patches objects under Kubernetes' rules.

It exists as the counterpart of the server's generic registry: system fields, preconditions, status subresources, writes
that change nothing. It must not know HTTP. Invariant: a write is decided and done without an await, so nothing changes
between check and write; a refused write changes nothing, not even the version.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from tests.apiserver.calls import Call
from tests.apiserver.patches import apply_patch
from tests.apiserver.pods import bind, binding_obstacle, complete_new_pod
from tests.apiserver.resources import NAMESPACES, PODS, Json, Resource
from tests.apiserver.statuses import ApiError, Cause, already_exists, conflict, invalid, not_found, stale
from tests.apiserver.store import Store
from tests.apiserver.stored import Stored
from tests.apiserver.validation import binding_complaint, check_object, check_update, has_text_maps

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_KEPT = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Registry:
    """The writes that the server offers, apart from deletion."""

    def __init__(self, store: Store, now: Callable[[], datetime], rng: Random) -> None:
        self.store = store
        self._now = now
        self._rng = rng

    def timestamp(self, later_seconds: int = 0) -> str:
        """Return the time as the API writes it."""
        return format_time(datetime.fromtimestamp(self._now().timestamp() + later_seconds, UTC))

    def create(self, call: Call, obj: Json) -> Stored:
        """POST."""
        resource, meta = call.resource, _meta(call, obj)
        if meta.get("resourceVersion"):
            raise ApiError(500, "resourceVersion should not be set on objects to be created", reason="")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(self._rng.choices(_SUFFIX_ALPHABET, k=5))
        if not meta.get("name"):
            text = "Required value: name or generateName is required"
            raise invalid(resource.qualified_kind, "", [Cause("FieldValueRequired", text, "metadata.name")])
        self.complete(resource, obj, call.namespace)
        check_object(resource, obj)
        key = f"{call.namespace}/{meta['name']}" if resource.namespaced else meta["name"]
        if self.store.get(resource, key) is not None:
            raise already_exists(resource.qualified, meta["name"])
        return self.store.put(resource, obj, None)

    def complete(self, resource: Resource, obj: Json, namespace: str) -> None:
        """Fill in what the server decides about a new object."""
        meta = obj["metadata"]
        for key in _SYSTEM:
            meta.pop(key, None)
        if resource.namespaced:
            meta["namespace"] = namespace
        meta["uid"] = self.new_uid()
        meta["creationTimestamp"] = self.timestamp()
        if resource.drops_status_on_create:
            obj["status"] = {}
        if resource is PODS:
            complete_new_pod(obj, self.timestamp())
        elif resource is NAMESPACES:
            meta["labels"] = {"kubernetes.io/metadata.name": meta["name"], **(meta.get("labels") or {})}
            obj |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}

    def new_uid(self) -> str:
        """Return a random UID; the same seed gives the same ones."""
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def replace(self, call: Call, obj: Json) -> tuple[Stored, bool]:
        """PUT; returns the object, and whether it was created."""
        meta = _meta(call, obj)
        if meta.setdefault("name", call.name) != call.name:
            raise ApiError(
                400, f"the name of the object ({meta['name']}) does not match the name on the URL ({call.name})"
            )
        row = self.store.get(call.resource, call.key)
        uid = meta.get("uid")
        if row is None:
            if not call.resource.create_on_update or call.subresource:
                raise not_found(call.resource.qualified, call.name)
            if uid:
                raise conflict(call.resource.qualified, call.name, _uid_mismatch(uid, ""))
            meta.pop("resourceVersion", None)
            return self.create(call, obj), True
        if uid and uid != row.uid:
            raise conflict(call.resource.qualified, call.name, _uid_mismatch(uid, row.uid))
        if not meta.get("resourceVersion") and not call.resource.unconditional_update:
            text = "Invalid value: 0: must be specified for an update"
            cause = Cause("FieldValueInvalid", text, "metadata.resourceVersion")
            raise invalid(call.resource.qualified, call.name, [cause])
        return self._update(call, row, obj), False

    def patch(self, call: Call, patch: Any, content_type: str) -> Stored:  # noqa: ANN401 - a decoded body
        """PATCH."""
        row = self.get(call)
        patched = apply_patch(row.decode(), patch, content_type)
        if not has_text_maps(patched):
            raise invalid(
                call.resource.qualified_kind, call.name, [Cause("FieldValueInvalid", "Invalid value", "patch")]
            )
        meta = _meta(call, patched)
        if meta.get("name") != call.name:
            raise ApiError(
                400, f"the name of the object ({meta.get('name')}) does not match the name on the URL ({call.name})"
            )
        return self._update(call, row, patched)

    def bind(self, call: Call, binding: Json) -> None:
        """POST of a Binding: node, annotations, labels and condition in one write."""
        meta = _meta(call, binding)
        if meta.get("name") != call.name:
            raise ApiError(400, "name in URL does not match name in Binding object")
        complaint = binding_complaint(binding)
        if complaint is not None:
            raise complaint
        row = self.get(call)
        qualified, uid, version = call.resource.qualified, meta.get("uid"), meta.get("resourceVersion")
        if uid and uid != row.uid:
            raise conflict(qualified, call.name, _uid_mismatch(uid, row.uid))
        if version and version != str(row.version):
            why = f"Precondition failed: ResourceVersion in precondition: {version}, "
            raise conflict(qualified, call.name, f"{why}ResourceVersion in object meta: {row.version}")
        pod = row.decode()
        obstacle = binding_obstacle(pod)
        if obstacle is not None:
            raise conflict("pods/binding", call.name, obstacle)
        bind(pod, binding, self.timestamp())
        self.store.put(PODS, pod, row)

    def get(self, call: Call) -> Stored:
        """Return the object of a call. Raises ApiError 404."""
        row = self.store.get(call.resource, call.key)
        if row is None:
            raise not_found(call.resource.qualified, call.name)
        return row

    def _update(self, call: Call, row: Stored, new: Json) -> Stored:
        resource, meta, old = call.resource, new["metadata"], row.decode()
        version = meta.get("resourceVersion")
        if version and version != str(row.version):
            raise stale(resource.qualified, call.name)
        meta["resourceVersion"] = str(row.version)
        new = _with_fixed_parts(call, new, old)
        check_update(resource, new, old)
        if resource.has_generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if new == old:
            return row
        if meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds") and not meta.get("finalizers"):
            return self.store.remove(resource, row)
        return self.store.put(resource, new, row)


def format_time(moment: datetime) -> str:
    """Return a moment as the API writes it, in whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_fixed_parts(call: Call, new: Json, old: Json) -> Json:
    """Return the new object, with what this call cannot change taken from the old one."""
    meta, old_meta = new["metadata"], old["metadata"]
    meta.setdefault("uid", old_meta["uid"])
    for key in _KEPT:
        if old_meta.get(key) is not None:
            meta[key] = old_meta[key]
    if "generation" in old_meta:
        meta["generation"] = old_meta["generation"]
    for key in ("annotations", "labels", "finalizers", "ownerReferences"):
        if not meta.get(key):
            meta.pop(key, None)
    if call.subresource == "status":
        return _with_status_only(new, old)
    if call.resource.has_status and "status" in old:
        new["status"] = old["status"]
    return {key: value for key, value in new.items() if key not in ("kind", "apiVersion")}


def _with_status_only(new: Json, old: Json) -> Json:
    # As in the real server, labels and annotations may change with the status, owners may not.
    meta, status = new["metadata"], dict(new.get("status") or {})
    meta.pop("ownerReferences", None)
    if "ownerReferences" in old["metadata"]:
        meta["ownerReferences"] = old["metadata"]["ownerReferences"]
    if "qosClass" in old.get("status", {}):
        status.setdefault("qosClass", old["status"]["qosClass"])
    return {**old, "metadata": meta, "status": status}


def _meta(call: Call, obj: Json) -> Json:
    meta: Json = obj.setdefault("metadata", {})
    namespace = meta.get("namespace") or call.namespace
    if call.resource.namespaced and namespace != call.namespace:
        raise ApiError(400, "the namespace of the provided object does not match the namespace sent on the request")
    if call.resource.namespaced:
        meta["namespace"] = namespace
    return meta


def _uid_mismatch(asked: str, actual: str) -> str:
    return f"Precondition failed: UID in precondition: {asked}, UID in object meta: {actual}"
