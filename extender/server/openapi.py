"""The OpenAPI document of /api/v1, made from the types of the answers.

Why it exists: clients are generated from it, so it must match what is served. It must not answer requests. Invariant:
it has exactly the paths of /api/v1 that are served.
"""

from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from extender import __version__
from extender.reports import MARKS, shapes

Json = dict[str, Any]
_NAME: Json = {"type": "string", "minLength": 1}
_POD = ("namespace", "name")


class Parameter(NamedTuple):
    """One parameter of a query."""

    name: str
    text: str
    schema: Mapping[str, Any] = MappingProxyType({"type": "string"})


class Operation(NamedTuple):
    """One method of one path. `answer`: the type of a 200's body."""

    path: str
    text: str
    answer: Any
    parameters: tuple[Parameter, ...] = ()
    method: str = "get"
    media: str = "application/json"
    further_media: str = ""
    """Another form of a 200's body, as text."""
    statuses: tuple[int, ...] = ()
    """Statuses other than 200, each with an error as body."""
    is_embedded: bool = False
    """Whether only an embedded cluster has it."""
    is_list: bool = False


_PAGED = (
    Parameter("limit", "Entries of one page; at most 1,000 come.", {"type": "integer", "minimum": 1}),
    Parameter("continue", "The token of the page before, from its header Continue."),
    Parameter("fields", "Comma list of the fields that are wanted, such as node,devices.uuid."),
)
_MARKS: Json = {"type": "string", "enum": ["any", *MARKS]}
_OF_NODE = Parameter("node", "Only what is on this node.")
_OF_NAMESPACE = Parameter("namespace", "Only this namespace.")

OPERATIONS = (
    Operation("/api/v1/summary", "The cluster in few numbers.", shapes.Summary),
    Operation(
        "/api/v1/nodes",
        "Every node with its cards.",
        list[shapes.NodeEntry],
        (
            *_PAGED,
            _OF_NODE,
            Parameter("model", "Only nodes with a card of this model."),
            Parameter("problem", "Only nodes with such a card; any: with a wrong one.", _MARKS),
        ),
        statuses=(400,),
        is_list=True,
    ),
    Operation("/api/v1/nodes/{node}", "One node.", shapes.NodeEntry, statuses=(404,)),
    Operation(
        "/api/v1/pods",
        "Every pod that asks for or holds cards.",
        list[shapes.PodEntry],
        (*_PAGED, _OF_NODE, _OF_NAMESPACE),
        statuses=(400,),
        is_list=True,
    ),
    Operation(
        "/api/v1/claims",
        "Every DRA claim that holds cards.",
        list[shapes.ClaimEntry],
        (*_PAGED, _OF_NODE, _OF_NAMESPACE),
        statuses=(400,),
        is_list=True,
    ),
    Operation(
        "/api/v1/holds",
        "What is held for each VM, and where.",
        list[shapes.HoldEntry],
        (*_PAGED, _OF_NODE, _OF_NAMESPACE),
        statuses=(400,),
        is_list=True,
    ),
    Operation("/api/v1/pods/{namespace}/{name}", "One pod in full.", shapes.PodDetail, statuses=(404,)),
    Operation("/api/v1/pods/{namespace}/{name}/why", "Why a pod waits.", shapes.Why, statuses=(404,)),
    Operation(
        "/api/v1/what-if", "Why pods that need not exist would wait.", list[shapes.Why], (), "post", statuses=(400, 413)
    ),
    Operation(
        "/api/v1/options",
        "What could still be placed: free, not in total.",
        shapes.Options,
        (
            Parameter("memory", "Comma list of share sizes in MiB; default: parts of each model's largest card."),
            Parameter("namespace", "Says as well what this namespace's budgets of whole devices leave."),
        ),
        statuses=(400,),
    ),
    Operation(
        "/api/v1/usage",
        "What namespaces hold.",
        list[shapes.NamespaceUse],
        (*_PAGED, _OF_NAMESPACE),
        statuses=(400,),
        is_list=True,
    ),
    Operation(
        "/api/v1/usage/records",
        "What pods and VMs have had, and for how long, if records are kept.",
        list[shapes.UsageRecord],
        (
            *_PAGED,
            _OF_NAMESPACE,
            Parameter("format", "json, or csv as a whole.", {"type": "string", "enum": ["json", "csv"]}),
        ),
        statuses=(400, 404),
        further_media="text/csv",
        is_list=True,
    ),
    Operation(
        "/api/v1/decisions",
        "The last decisions, the newest first.",
        list[shapes.DecisionEntry],
        (
            Parameter("limit", "At most so many.", {"type": "integer", "minimum": 1, "maximum": 1000}),
            *_PAGED[1:],
            Parameter("pod", "Only those of this pod, namespace/name."),
        ),
        statuses=(400,),
        is_list=True,
    ),
    Operation(
        "/api/v1/verify",
        "Every card and everything that is wrong.",
        shapes.Verified,
        _PAGED,
        statuses=(400,),
        is_list=True,
    ),
    Operation(
        "/api/v1/quotas",
        "Every limit and what is used of it.",
        list[shapes.QuotaEntry],
        (*_PAGED, _OF_NAMESPACE),
        statuses=(400,),
        is_list=True,
    ),
    Operation("/api/v1/changes", "Server-sent events of what changed.", str, media="text/event-stream"),
    Operation(
        "/api/v1/pods",
        "Create a pod, or replace it with its status.",
        shapes.PodEntry,
        (),
        "post",
        statuses=(400, 403, 409, 413, 415),
        is_embedded=True,
    ),
    Operation(
        "/api/v1/pods/{namespace}/{name}",
        "Delete a pod.",
        shapes.Deleted,
        (),
        "delete",
        statuses=(403, 404),
        is_embedded=True,
    ),
)


@lru_cache(maxsize=2)
def openapi(*, embedded: bool) -> Json:
    """Return the document, which must not be changed. `embedded`: with what changes an embedded cluster."""
    served = [each for each in OPERATIONS if embedded or not each.is_embedded]
    answers = [each.answer for each in served]
    schemas, components = msgspec.json.schema_components(
        [*answers, shapes.Failure], ref_template="#/components/schemas/{name}"
    )
    failure = schemas[-1]
    paths: Json = {}
    for operation, schema in zip(served, schemas, strict=False):
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, schema, failure)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpu-extender",
            "version": __version__,
            "description": "What holds fractions of GPUs. Memory is in MiB, cores in percent of one card.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _described(operation: Operation, schema: Json, failure: Json) -> Json:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[Json] = [{"name": name, "in": "path", "required": True, "schema": _NAME} for name in names]
    parameters += [
        {"name": each.name, "in": "query", "description": each.text, "schema": dict(each.schema)}
        for each in operation.parameters
    ]
    if any(each.name == "fields" for each in operation.parameters):
        # What some fields were chosen of has only these.
        some: Json = {"type": "object"}
        schema = {"anyOf": [schema, some if operation.answer is shapes.Verified else {"type": "array", "items": some}]}
    found: Json = {"description": "The answer.", "content": {operation.media: {"schema": schema}}}
    if operation.further_media:
        found["content"][operation.further_media] = {"schema": {"type": "string"}}
    responses: Json = {"200": found}
    if operation.method == "post" and operation.is_embedded:
        responses["201"] = found
    if operation.is_list:
        responses["304"] = {"description": "Nothing has changed since the ETag in If-None-Match."}
    for status in operation.statuses:
        answers: Json = {} if status in _PLAIN else {"application/json": {"schema": failure}}
        if status in _PLAIN or status == HTTPStatus.FORBIDDEN:
            answers["text/plain"] = {"schema": {"type": "string"}}
        responses[str(status)] = {"description": _STATUS[status], "content": answers}
    described: Json = {"summary": operation.text, "responses": responses}
    if parameters:
        described["parameters"] = parameters
    if operation.method == "post":
        described["requestBody"] = {
            "required": True,
            "description": "Kubernetes manifests as JSON.",
            "content": {"application/json": {"schema": {"type": "object"}, "example": _EXAMPLE}},
        }
    return described


_EXAMPLE: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "example", "namespace": "default"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "example",
                "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}},
            }
        ]
    },
}
_STATUS = {
    400: "The request cannot be used: the field, the value and why.",
    403: "The pod came from a file, or the request from a page of another origin.",
    404: "There is no such object.",
    409: "The pod is bound, and cannot be changed so.",
    413: "The body is too large.",
    415: "The body is compressed, or does not say that it is JSON.",
}
#: Answered before a request reaches a route, or by the server itself.
_PLAIN = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
