"""The fields of Pod, Node and ResourceQuota that are read (Kubernetes core/v1).

Why it exists: Go sends null for empty lists and maps and omits empty fields, so every field is optional here. It must
not interpret values. Invariant: an unknown field is skipped; a field of the wrong JSON type is an error that names its
path.
"""

from typing import Annotated, Any

import msgspec

Strings = dict[str, str]
#: Resource names and quantities. Quantities are JSON strings or numbers and are read later.
Quantities = dict[str, Any]
#: The most containers of one kind. Each takes 40 us to read, so tens of thousands in one pod, which an API server
#: accepts, would block the event loop for a second.
Bounded = msgspec.Meta(max_length=1024)


class Object(msgspec.Struct, gc=False):
    """Base of all types here. Decoded objects have no cycles, so the garbage collector need not visit them."""


class OwnerReference(Object):
    """An entry of ownerReferences."""

    kind: str | None = None
    uid: str | None = None
    controller: bool | None = None


class ObjectMeta(Object):
    """metadata."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    annotations: Strings | None = None
    labels: Strings | None = None
    deletionTimestamp: str | None = None
    ownerReferences: list[OwnerReference] | None = None


class Resources(Object):
    """A container's resources."""

    limits: Quantities | None = None
    requests: Quantities | None = None


class RestartPolicyRule(Object):
    """An entry of restartPolicyRules (KEP-5307)."""

    action: str | None = None


class Container(Object):
    """A container of either list."""

    name: str | None = None
    restartPolicy: str | None = None
    restartPolicyRules: list[RestartPolicyRule] | None = None
    resources: Resources | None = None


class AffinityTerm(Object):
    """A pod (anti-)affinity term; only the fields that decide whether it concerns other namespaces."""

    namespaces: list[str] | None = None
    namespaceSelector: dict[str, Any] | None = None


class WeightedAffinityTerm(Object):
    """A preferred term."""

    podAffinityTerm: AffinityTerm | None = None


class PodAffinity(Object):
    """podAffinity or podAntiAffinity."""

    requiredDuringSchedulingIgnoredDuringExecution: list[AffinityTerm] | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedAffinityTerm] | None = None


class Affinity(Object):
    """affinity."""

    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


class PodSpec(Object):
    """spec."""

    nodeName: str | None = None
    initContainers: Annotated[list[Container], Bounded] | None = None
    containers: Annotated[list[Container], Bounded] | None = None
    overhead: Quantities | None = None
    priority: int | None = None
    priorityClassName: str | None = None
    preemptionPolicy: str | None = None
    activeDeadlineSeconds: int | None = None
    affinity: Affinity | None = None
    resources: Resources | None = None


class Terminated(Object):
    """state.terminated."""

    exitCode: int | None = None
    startedAt: str | None = None
    finishedAt: str | None = None


class ContainerState(Object):
    """state; only the fields that decide whether an init is over."""

    terminated: Terminated | None = None


class ContainerStatus(Object):
    """An entry of initContainerStatuses."""

    name: str | None = None
    state: ContainerState | None = None


class Condition(Object):
    """An entry of conditions."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class RequestMapping(Object):
    """An entry of requestMappings."""

    containerName: str | None = None
    resourceName: str | None = None


class ExtendedResourceClaimStatus(Object):
    """extendedResourceClaimStatus (KEP-5004)."""

    resourceClaimName: str | None = None
    requestMappings: list[RequestMapping] | None = None


class PodStatus(Object):
    """status."""

    phase: str | None = None
    qosClass: str | None = None
    startTime: str | None = None
    nominatedNodeName: str | None = None
    conditions: list[Condition] | None = None
    initContainerStatuses: list[ContainerStatus] | None = None
    extendedResourceClaimStatus: ExtendedResourceClaimStatus | None = None


class Pod(Object):
    """A Pod."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeStatus(Object):
    """status of a Node."""

    allocatable: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None


class Node(Object):
    """A Node."""

    metadata: ObjectMeta | None = None
    status: NodeStatus | None = None


class ScopedResourceSelectorRequirement(Object):
    """An entry of matchExpressions."""

    scopeName: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class ScopeSelector(Object):
    """scopeSelector."""

    matchExpressions: list[ScopedResourceSelectorRequirement] | None = None


class QuotaSpec(Object):
    """spec of a ResourceQuota."""

    hard: dict[str, Any] | None = None
    scopes: list[str] | None = None
    scopeSelector: ScopeSelector | None = None


class ResourceQuota(Object):
    """A ResourceQuota."""

    metadata: ObjectMeta | None = None
    spec: QuotaSpec | None = None


_node_decoder = msgspec.json.Decoder(Node)


def decode_node(raw: msgspec.Raw | bytes) -> Node:
    """Decode a Node. Raises `msgspec.DecodeError`, a ValueError, naming the field."""
    return _node_decoder.decode(raw)
