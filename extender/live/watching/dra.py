"""The resources of dynamic resource allocation, and where what is watched of them goes.

It must not know what an API server has: each of them is listed and watched if it is served and allowed. Invariant: each
resource has one sink, and no sink needs another's resource to be there.
"""

from collections.abc import Callable

from extender.cluster import Cluster
from extender.kube.client import KubeClient
from extender.kube.discovery import OptionalReflector, OptionalResource
from extender.kube.reflector import ReflectorSettings, Sink
from extender.live.watching.claim_sinks import ResourceClaimSink, ResourceSliceSink
from extender.live.watching.class_sink import DeviceClassSink

_GROUP = "resource.k8s.io"
#: v1 since Kubernetes 1.34, v1beta2 since 1.33, v1beta1 since 1.32; what is read of them is alike.
_VERSIONS = "v1", "v1beta2", "v1beta1"
DEVICE_CLASSES = OptionalResource(_GROUP, _VERSIONS, "deviceclasses")
RESOURCE_SLICES = OptionalResource(_GROUP, _VERSIONS, "resourceslices")
RESOURCE_CLAIMS = OptionalResource(_GROUP, _VERSIONS, "resourceclaims")
DRA_RESOURCES = {
    "DeviceClass": DEVICE_CLASSES,
    "ResourceSlice": RESOURCE_SLICES,
    "ResourceClaim": RESOURCE_CLAIMS,
}


def dra_sinks(cluster: Cluster) -> dict[str, Sink]:
    """Return the sinks of a cluster, by kind."""
    return {
        "DeviceClass": DeviceClassSink(cluster.device_classes),
        # Slices first: a claim is counted again for every slice that comes later.
        "ResourceSlice": ResourceSliceSink(cluster.resource_claims),
        "ResourceClaim": ResourceClaimSink(cluster.resource_claims),
    }


def dra_reflectors(
    client: KubeClient,
    cluster: Cluster,
    settings: ReflectorSettings,
    journaled: Callable[[Sink, str], Sink],
    sinks: dict[str, Sink] | None = None,
) -> list[OptionalReflector]:
    """Return what lists and watches. `journaled`: wraps the sink of a kind. `sinks`: as of `dra_sinks`."""
    return [
        OptionalReflector(client, DRA_RESOURCES[kind], journaled(sink, kind), settings)
        for kind, sink in (sinks or dra_sinks(cluster)).items()
    ]
