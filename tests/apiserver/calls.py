"""Reads an HTTP request line as an API call: which verb, on which resource, on which object.

It exists so that routing, faults, counting and tests name calls alike, in Kubernetes' own words. It must not read
bodies or answer. Invariant: a path has at most one reading, and one without any is refused as the real server does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.apiserver.resources import BY_PLURAL, REVIEWS, Resource
from tests.apiserver.statuses import ApiError

_ITEM_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES = {
    "pods": ("status", "binding", "eviction"),
    "nodes": ("status",),
    "resourcequotas": ("status",),
    "poddisruptionbudgets": ("status",),
    "resourceclaims": ("status",),
    "virtualmachineinstances": ("status",),
    "holds": ("status",),
}
#: Subresources that are created and not stored.
_CREATED = ("binding", "eviction")
_CORE_PARTS = 2
_GROUP_PARTS = 3


@dataclass(frozen=True, slots=True)
class Call:
    """One API call."""

    method: str
    path: str
    verb: str
    """get, list, watch, create, update, patch or delete."""
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    client: str = ""
    """The caller: the bearer token, or without one the User-Agent."""

    @property
    def target(self) -> str:
        """`pods`, `pods/status`, `pods/binding`, ..."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def key(self) -> str:
        """Return the object's key in its table."""
        return f"{self.namespace}/{self.name}" if self.resource.namespaced else self.name


def read_call(method: str, path: str, query: Mapping[str, str], client: str = "") -> Call:
    """Return the call. Raises ApiError for an unknown path (404) or a method that it does not have (405)."""
    located = _locate([part for part in path.split("/") if part])
    if located is None:
        raise ApiError(404, "the server could not find the requested resource")
    resource, namespace, name, subresource = located
    verb = _verb(method, name, subresource, query)
    if resource in REVIEWS and verb != "create":
        verb = None
    if verb is None or (verb == "create" and resource.namespaced and not namespace):
        raise ApiError(405, "the server does not allow this method on the requested resource")
    return Call(method, path, verb, resource, namespace, name, subresource, query, client)


def is_set(query: Mapping[str, str], key: str) -> bool:
    """Whether a flag of a query is set: it is there, and not 0 or false. Clients write True, true and 1."""
    value = query.get(key)
    return value is not None and value.lower() not in ("0", "false")


def _locate(parts: list[str]) -> tuple[Resource, str, str, str] | None:
    if parts[:1] == ["api"]:
        group, version, rest = "", *parts[1:2], parts[_CORE_PARTS:]
    elif parts[:1] == ["apis"] and len(parts) > _GROUP_PARTS:
        group, version, rest = parts[1], parts[2], parts[_GROUP_PARTS:]
    else:
        return None
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and (group, version, rest[2]) in BY_PLURAL:
        namespace, rest = rest[1], rest[2:]
    resource = BY_PLURAL.get((group, version, rest[0])) if rest else None
    if resource is None or len(rest) > 3 or bool(namespace) > resource.namespaced:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if name and resource.namespaced and not namespace:
        return None
    if subresource and subresource not in _SUBRESOURCES.get(resource.plural, ()):
        return None
    return resource, namespace, name, subresource


def _verb(method: str, name: str, subresource: str, query: Mapping[str, str]) -> str | None:
    if method == "POST":
        return "create" if not name or subresource in _CREATED else None
    if subresource in _CREATED:
        return None
    if name:
        return _ITEM_VERBS.get(method)
    if method == "GET":
        return "watch" if is_set(query, "watch") else "list"
    return None
