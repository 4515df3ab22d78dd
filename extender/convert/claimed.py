"""What of a pod's requests DRA has served as extended resources (KEP-5004).

Why it exists: kube-scheduler lets DRA serve `nvidia.com/gpu: 1` on nodes without such a resource, and the devices are
then in a claim, which is counted by itself. It must not look for the claim. Invariant: only a container and a resource
that the pod's status names are left out; labels prove nothing.
"""

from typing import TypeVar

import msgspec

from extender.wire import core_v1, watched

AnyPod = TypeVar("AnyPod", core_v1.Pod, watched.Pod)
Pair = tuple[str, str]
"""Container and resource name."""


def claimed_requests(wire: watched.AnyPod) -> tuple[str, frozenset[Pair]]:
    """Return the name of the claim that a pod's status names, and what it is said to serve; ("", nothing) if none."""
    said = wire.status.extendedResourceClaimStatus if wire.status is not None else None
    if said is None or not said.resourceClaimName:
        return "", frozenset()
    mappings = said.requestMappings or ()
    return said.resourceClaimName, frozenset((each.containerName or "", each.resourceName or "") for each in mappings)


def without_claimed(wire: AnyPod, served: frozenset[Pair]) -> AnyPod:
    """Return a pod without these requests; the object that is given stays as it is. Raises `msgspec.DecodeError`."""
    if wire.spec is None:
        return wire
    spec = msgspec.structs.replace(
        wire.spec,
        initContainers=[_without(each, served) for each in wire.spec.initContainers or ()],
        containers=[_without(each, served) for each in wire.spec.containers or ()],
    )
    return msgspec.structs.replace(wire, spec=spec)


def _without(container: watched.AnyContainer, served: frozenset[Pair]) -> watched.AnyContainer:
    name, resources = container.name or "", watched.resources_of(container)
    if resources is None or all(container_name != name for container_name, _ in served):
        return container
    limits, requests = (
        {key: value for key, value in (part or {}).items() if (name, key) not in served}
        for part in (resources.limits, resources.requests)
    )
    left = core_v1.Resources(limits, requests)
    if isinstance(container, watched.Container):
        return msgspec.structs.replace(container, resources=msgspec.Raw(msgspec.json.encode(left)))
    return msgspec.structs.replace(container, resources=left)
