"""DeviceClass, ResourceClaim and ResourceSlice as far as they are read (resource.k8s.io v1, v1beta2 and v1beta1).

It must not interpret values. Invariant: as in `core_v1`; what the versions spell differently is read in every spelling.
"""

from typing import Annotated, Any

from extender.wire.core_v1 import Bounded, Object, ObjectMeta, Quantities

# -- DeviceClass ------------------------------------------------------------------------------------------------------


class DeviceClassSpec(Object):
    """spec."""

    extendedResourceName: str | None = None


class DeviceClass(Object):
    """A DeviceClass."""

    metadata: ObjectMeta | None = None
    spec: DeviceClassSpec | None = None


# -- ResourceClaim ----------------------------------------------------------------------------------------------------


class Result(Object):
    """An entry of status.allocation.devices.results."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    adminAccess: bool | None = None
    shareID: str | None = None
    consumedCapacity: Quantities | None = None


class Results(Object):
    """status.allocation.devices."""

    results: Annotated[list[Result], Bounded] | None = None


class FieldRequirement(Object):
    """An entry of matchFields."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class NodeSelectorTerm(Object):
    """An entry of nodeSelectorTerms."""

    matchFields: list[FieldRequirement] | None = None


class NodeSelector(Object):
    """status.allocation.nodeSelector."""

    nodeSelectorTerms: list[NodeSelectorTerm] | None = None


class Allocation(Object):
    """status.allocation."""

    devices: Results | None = None
    nodeSelector: NodeSelector | None = None


class ClaimStatus(Object):
    """status. `devices` is what drivers report, and never an allocation."""

    allocation: Allocation | None = None


class ResourceClaim(Object):
    """A ResourceClaim."""

    metadata: ObjectMeta | None = None
    status: ClaimStatus | None = None


# -- ResourceSlice ----------------------------------------------------------------------------------------------------


class Attribute(Object):
    """A value of attributes; an integer, a boolean or a list is not read."""

    string: str | None = None


class Capacity(Object):
    """A value of capacity."""

    value: Any = None


class DeviceBody(Object):
    """What v1beta1 has in `basic`, and the others in the device itself."""

    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None


class Device(Object):
    """An entry of devices."""

    name: str | None = None
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    basic: DeviceBody | None = None


class Pool(Object):
    """spec.pool."""

    name: str | None = None
    generation: int | None = None
    resourceSliceCount: int | None = None


class SliceSpec(Object):
    """spec."""

    driver: str | None = None
    pool: Pool | None = None
    nodeName: str | None = None
    devices: Annotated[list[Device], Bounded] | None = None


class ResourceSlice(Object):
    """A ResourceSlice."""

    metadata: ObjectMeta | None = None
    spec: SliceSpec | None = None
