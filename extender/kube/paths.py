"""Every path of the API server that is asked for.

Why it exists: a name that is pasted into a path can lead somewhere else (`../../../nodes/n1` as a pod's name reached a
Node), and an API server takes %2F for a slash, so quoting alone does not help. It must not send requests. Invariant: a
path names exactly the resource that it was made for; names were checked where they came in, so an illegal one here is a
bug.
"""

from typing import NamedTuple
from urllib.parse import quote

from accounting.errors import InvariantViolation
from extender.wire.names import why_no_label, why_no_subdomain


class Resource(NamedTuple):
    """A resource of the API: what its paths begin with, and its plural."""

    group_version: str
    plural: str


NODES = Resource("/api/v1", "nodes")
PODS = Resource("/api/v1", "pods")
RESOURCE_QUOTAS = Resource("/api/v1", "resourcequotas")
SECRETS = Resource("/api/v1", "secrets")
DISRUPTION_BUDGETS = Resource("/apis/policy/v1", "poddisruptionbudgets")
EVENTS = Resource("/apis/events.k8s.io/v1", "events")
LEASES = Resource("/apis/coordination.k8s.io/v1", "leases")
TOKEN_REVIEWS = Resource("/apis/authentication.k8s.io/v1", "tokenreviews")
ACCESS_REVIEWS = Resource("/apis/authorization.k8s.io/v1", "subjectaccessreviews")
MUTATING_WEBHOOKS = Resource("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = Resource("/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")


def api_path(
    resource: Resource, name: str | None = None, *, namespace: str | None = None, subresource: str | None = None
) -> str:
    """Return a resource's path. None: without a namespace over all of them, without a name the collection.

    Raises `InvariantViolation` for a name that no API server accepts; an empty one would name the whole collection.
    """
    parts = [resource.group_version]
    if namespace is not None:
        parts += ["namespaces", _checked(namespace, why_no_label(namespace))]
    parts.append(resource.plural)
    if name is not None:
        parts.append(_checked(name, why_no_subdomain(name)))
    if subresource is not None:
        parts.append(subresource)
    return "/".join(parts)


def group_path(group: str, version: str) -> str:
    """Return where an API server says what it has of a group in a version. Raises as `api_path` does."""
    return "/".join(["/apis", _checked(group, why_no_subdomain(group)), _checked(version, why_no_label(version))])


def service_proxy_path(namespace: str, scheme: str, service: str, port: str) -> str:
    """Return the path of the API server's proxy to a Service. Raises `InvariantViolation` as `api_path` does."""
    service = _checked(service, why_no_label(service))
    target = f"{quote(scheme, safe='')}:{service}:{quote(port, safe='')}"
    return "/".join(["/api/v1/namespaces", _checked(namespace, why_no_label(namespace)), "services", target, "proxy"])


def _checked(name: str, why_not: str) -> str:
    if why_not:
        raise InvariantViolation(f"{name!r} must not be in a path: {why_not}")
    return quote(name, safe="")
