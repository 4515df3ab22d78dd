"""DeviceClass as far as it is read (Kubernetes resource.k8s.io v1, v1beta2 and v1beta1).

It must not interpret values. Invariant: as in `core_v1`; what the versions spell differently is read in every spelling.
"""

from extender.wire.core_v1 import Object, ObjectMeta


class DeviceClassSpec(Object):
    """spec."""

    extendedResourceName: str | None = None


class DeviceClass(Object):
    """A DeviceClass."""

    metadata: ObjectMeta | None = None
    spec: DeviceClassSpec | None = None
