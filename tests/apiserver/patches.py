"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902).

It exists because clients patch annotations and statuses in both forms. It must not know Kubernetes' types: it treats a
strategic merge patch as a merge patch, so lists in it replace. Invariant: the document that is patched stays as it was.
"""

from copy import deepcopy
from typing import Any

from tests.apiserver.resources import Json
from tests.apiserver.statuses import ApiError

JSON_PATCH = "application/json-patch+json"
MERGE_PATCHES = ("application/merge-patch+json", "application/strategic-merge-patch+json")


def apply_patch(doc: Json, patch: Any, content_type: str) -> Json:  # noqa: ANN401 - a decoded body
    """Return the patched document. Raises ApiError 400, 415 or 422."""
    if content_type in MERGE_PATCHES:
        if not isinstance(patch, dict):
            raise ApiError(400, "the patch is not an object")
        return _merge(doc, patch)
    if content_type != JSON_PATCH:
        raise ApiError(415, f"the body of the request was in an unknown format: {content_type}")
    if not isinstance(patch, list):
        raise ApiError(400, "the patch is not a list of operations")
    result: Any = deepcopy(doc)
    for operation in patch:
        result = _apply(result, operation)
    if not isinstance(result, dict):
        raise _refused("the result is not an object")
    return result


def _merge(doc: Any, patch: Json) -> Json:  # noqa: ANN401 - any JSON value can be replaced by an object
    merged: Json = dict(doc) if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def _apply(doc: Any, operation: Any) -> Any:  # noqa: ANN401 - any JSON value
    try:
        kind, path = operation["op"], _pointer(operation["path"])
        if kind in ("move", "copy"):
            source = _pointer(operation["from"])
            value = _get(doc, source)
            if kind == "move":
                doc = _remove(doc, source)
            return _add(doc, path, deepcopy(value))
        if kind == "remove":
            return _remove(doc, path)
        value = operation["value"]
    except (KeyError, TypeError) as error:
        raise ApiError(400, f"the operation cannot be read: {operation}") from error
    if kind == "add":
        return _add(doc, path, value)
    if kind == "replace":
        _get(doc, path)
        return _add(_remove(doc, path), path, value)
    if kind != "test":
        raise ApiError(400, f"unknown operation: {kind}")
    if _get(doc, path) != value:
        raise _refused(f"testing value {operation['path']} failed")
    return doc


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise KeyError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(doc: Any, path: list[str]) -> Any:  # noqa: ANN401 - any JSON value
    for part in path:
        if isinstance(doc, dict) and part in doc:
            doc = doc[part]
        elif isinstance(doc, list) and _is_index(part, len(doc)):
            doc = doc[int(part)]
        else:
            raise _refused(f"the path does not exist: {'/'.join(path)}")
    return doc


def _add(doc: Any, path: list[str], value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if not path:
        return value
    parent, last = _get(doc, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and (last == "-" or _is_index(last, len(parent) + 1)):
        parent.insert(len(parent) if last == "-" else int(last), value)
    else:
        raise _refused(f"the path does not exist: {'/'.join(path)}")
    return doc


def _remove(doc: Any, path: list[str]) -> Any:  # noqa: ANN401 - any JSON value
    _get(doc, path)
    if not path:
        return None
    parent, last = _get(doc, path[:-1]), path[-1]
    del parent[last if isinstance(parent, dict) else int(last)]
    return doc


def _is_index(part: str, length: int) -> bool:
    return part.isascii() and part.isdigit() and int(part) < length


def _refused(why: str) -> ApiError:
    return ApiError(422, f"the server rejected our request due to an error in our request: {why}")
