"""Carries out one API call and returns its answer.

It exists between the HTTP server and the registry: verb to function, body to object, object to bytes. It must not know
connections or faults. Invariant: it does not await, so a call is carried out whole or not at all.
"""

from typing import Any, NamedTuple

import orjson

from tests.apiserver.calls import Call
from tests.apiserver.deletion import delete, read_options
from tests.apiserver.evictions import evict
from tests.apiserver.pages import Page, list_page
from tests.apiserver.patches import JSON_PATCH, MERGE_PATCHES
from tests.apiserver.registry import Registry
from tests.apiserver.resources import Json
from tests.apiserver.selectors import Selector, read_selector
from tests.apiserver.statuses import ApiError, success
from tests.apiserver.stored import Stored
from tests.apiserver.validation import has_text_maps

#: Kinds that are created at a subresource.
_CREATED_KINDS = {"binding": ("Binding", "v1"), "eviction": ("Eviction", "policy/v1")}
_JSON_TYPES = ("application/json", "", "application/octet-stream")


class Answer(NamedTuple):
    """An answer: its status and its body, whole or as a page of a list."""

    code: int
    body: bytes | Page


def answer(registry: Registry, call: Call, body: bytes, content_type: str) -> Answer:
    """Carry out a call that is not a watch. Raises ApiError."""
    resource = call.resource
    if call.verb == "list":
        return Answer(200, list_page(registry.store, resource, selector_of(call), call.query))
    if call.verb == "get":
        return Answer(200, registry.get(call).alone(resource))
    if call.verb == "delete":
        return _delete(registry, call, body)
    if call.verb == "patch":
        return _object(call, registry.patch(call, _patch(body, content_type), content_type))
    obj = _body(call, body, content_type)
    if call.subresource == "binding":
        registry.bind(call, obj)
        return Answer(201, success(code=201))
    if call.subresource == "eviction":
        evict(registry, call, obj)
        return Answer(201, success(code=201))
    if call.verb == "create":
        return _object(call, registry.create(call, obj), 201)
    row, created = registry.replace(call, obj)
    return _object(call, row, 201 if created else 200)


def selector_of(call: Call) -> Selector:
    """Return the selector of a list or watch. Raises ApiError 400."""
    query = call.query
    return read_selector(call.resource, call.namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))


def _object(call: Call, row: Stored, code: int = 200) -> Answer:
    return Answer(code, row.alone(call.resource))


def _delete(registry: Registry, call: Call, body: bytes) -> Answer:
    options = read_options(_decode(body) if body else None, call.query.get("gracePeriodSeconds", ""))
    row, gone = delete(registry, call, options)
    if call.resource.returns_deleted or not gone:
        return _object(call, row)
    details = {"name": row.name, "kind": call.resource.plural, "uid": row.uid}
    if call.resource.group:
        details["group"] = call.resource.group
    return Answer(200, success(details))


def _body(call: Call, body: bytes, content_type: str) -> Json:
    if content_type not in _JSON_TYPES:
        raise ApiError(
            415,
            f"the body of the request was in an unknown format: {content_type}",
        )
    obj = _decode(body)
    kind, group_version = _CREATED_KINDS.get(call.subresource, (call.resource.kind, call.resource.api_version))
    if obj.get("kind", kind) != kind:
        raise ApiError(400, f"the object provided is of kind {obj['kind']}, {kind} was expected")
    version = obj.get("apiVersion", group_version)
    if version != group_version:
        raise ApiError(
            400,
            f"the API version in the data ({version}) does not match the expected one ({group_version})",
        )
    _check_shape(obj)
    return obj


def _patch(body: bytes, content_type: str) -> Any:  # noqa: ANN401 - an object or a list
    if content_type != JSON_PATCH and content_type not in MERGE_PATCHES:
        raise ApiError(415, f"the body of the request was in an unknown format: {content_type}")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"error decoding patch: {error}") from error


def _decode(body: bytes) -> Json:
    try:
        obj = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the request body cannot be decoded: {error}") from error
    if not isinstance(obj, dict):
        raise ApiError(400, "the request body is not an object")
    return obj


def _check_shape(obj: Json) -> None:
    """Check types. Go refuses to decode wrong ones, so they never reach validation."""
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    if not has_text_maps(obj):
        raise ApiError(400, "json: cannot unmarshal metadata into Go struct field ObjectMeta")
