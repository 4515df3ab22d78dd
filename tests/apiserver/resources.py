"""The resources that the server has, and their strategies: what a create, update or delete of each does.

It exists because Kubernetes' resources differ in small ways that clients meet: a Lease needs a resourceVersion on
update, a Pod's status cannot be created, a deleted Node answers with a Status. It must not store anything.
Invariant: every difference between two resources is a field here, never a comparison of names elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Json = dict[str, Any]
Paths = Mapping[str, tuple[str, ...]]

_META_FIELDS: Paths = {"metadata.name": ("metadata", "name")}
_NAMESPACED_FIELDS: Paths = {**_META_FIELDS, "metadata.namespace": ("metadata", "namespace")}


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource. Compared by identity."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    """Whether there is a status subresource; the main one then leaves the status as it is."""
    drops_status_on_create: bool = False
    unconditional_update: bool = True
    """Whether a PUT may leave the resourceVersion out."""
    create_on_update: bool = False
    """Whether a PUT of a missing object creates it."""
    graceful: bool = False
    """Whether a delete may leave the object for a grace period."""
    returns_deleted: bool = False
    """Whether a delete answers with the object, not with a Status."""
    has_generation: bool = False
    fields: Paths = field(default_factory=dict)
    """The field selectors beside those of the metadata, with the path of each."""

    @cached_property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """Its name in messages: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def qualified_kind(self) -> str:
        """Its kind in messages: `Pod`, `Lease.coordination.k8s.io`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @cached_property
    def head(self) -> bytes:
        """Return what a stored body lacks at its front when an object stands alone; in a list, objects have no kind."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def selectable(self) -> Paths:
        """Every field that a field selector may name."""
        return {**(_NAMESPACED_FIELDS if self.namespaced else _META_FIELDS), **self.fields}


PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    has_status=True,
    drops_status_on_create=True,
    graceful=True,
    returns_deleted=True,
    has_generation=True,
    fields={
        "spec.nodeName": ("spec", "nodeName"),
        "spec.restartPolicy": ("spec", "restartPolicy"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "spec.serviceAccountName": ("spec", "serviceAccountName"),
        "status.nominatedNodeName": ("status", "nominatedNodeName"),
        "status.phase": ("status", "phase"),
    },
)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, has_status=True)
QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", has_status=True, drops_status_on_create=True, returns_deleted=True
)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, has_status=True, returns_deleted=True)
CORE_EVENTS = Resource(
    "",
    "v1",
    "events",
    "Event",
    create_on_update=True,
    fields={
        "involvedObject.name": ("involvedObject", "name"),
        "involvedObject.uid": ("involvedObject", "uid"),
        "reason": ("reason",),
        "type": ("type",),
    },
)
EVENTS = Resource(
    "events.k8s.io",
    "v1",
    "events",
    "Event",
    create_on_update=True,
    fields={
        "reason": ("reason",),
        "regarding.name": ("regarding", "name"),
        "regarding.uid": ("regarding", "uid"),
        "reportingController": ("reportingController",),
        "type": ("type",),
    },
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional_update=False, create_on_update=True)

SECRETS = Resource("", "v1", "secrets", "Secret")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", has_status=True)
_WEBHOOKS = ("admissionregistration.k8s.io", "v1")
MUTATING, VALIDATING = (
    Resource(
        *_WEBHOOKS,
        f"{kind}webhookconfigurations",
        f"{kind.title()}WebhookConfiguration",
        namespaced=False,
        has_generation=True,
    )
    for kind in ("mutating", "validating")
)

#: Reviews: they are answered and not stored; see `reviews`.
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
REVIEWS = (TOKEN_REVIEWS, ACCESS_REVIEWS)

#: DRA in all of its versions; each version has a table of its own here.
DRA_GROUP, DRA_VERSIONS = "resource.k8s.io", ("v1", "v1beta2", "v1beta1")
DEVICE_CLASSES = tuple(
    Resource(DRA_GROUP, version, "deviceclasses", "DeviceClass", namespaced=False, has_generation=True)
    for version in DRA_VERSIONS
)
RESOURCE_SLICES = tuple(
    Resource(DRA_GROUP, version, "resourceslices", "ResourceSlice", namespaced=False, has_generation=True)
    for version in DRA_VERSIONS
)
RESOURCE_CLAIMS = tuple(
    Resource(DRA_GROUP, version, "resourceclaims", "ResourceClaim", has_status=True, returns_deleted=True)
    for version in DRA_VERSIONS
)
DEVICE_TAINT_RULES = tuple(
    Resource(DRA_GROUP, version, "devicetaintrules", "DeviceTaintRule", namespaced=False, has_generation=True)
    for version in ("v1", "v1beta2")
)
#: A resource of a CustomResourceDefinition.
VMIS = Resource(
    "kubevirt.io",
    "v1",
    "virtualmachineinstances",
    "VirtualMachineInstance",
    has_status=True,
    unconditional_update=False,
    returns_deleted=True,
    has_generation=True,
)
#: The resource of manifests/holds/crd.yaml.
HOLDS = Resource(
    "gpu-extender.io",
    "v1alpha1",
    "holds",
    "Hold",
    has_status=True,
    unconditional_update=False,
    returns_deleted=True,
    has_generation=True,
)
#: Not every cluster has these: they are served once `ApiServer.serve` is called.
OPTIONAL = (*DEVICE_CLASSES, *RESOURCE_SLICES, *RESOURCE_CLAIMS, *DEVICE_TAINT_RULES, VMIS, HOLDS)

RESOURCES = (
    PODS,
    NODES,
    QUOTAS,
    NAMESPACES,
    CORE_EVENTS,
    EVENTS,
    LEASES,
    SECRETS,
    BUDGETS,
    MUTATING,
    VALIDATING,
    *OPTIONAL,
)
BY_PLURAL = {(resource.group, resource.version, resource.plural): resource for resource in (*RESOURCES, *REVIEWS)}
BY_KIND = {(resource.api_version, resource.kind): resource for resource in RESOURCES}


def field_of(obj: Json, path: tuple[str, ...]) -> str:
    """Return the text at a path; "" where something is missing, as Go reads it."""
    value: Any = obj
    for key in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(key)
    return value if isinstance(value, str) else ""
