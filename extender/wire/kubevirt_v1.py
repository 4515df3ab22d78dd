"""VirtualMachineInstance as far as it is read (kubevirt.io/v1).

It must not interpret values. Invariant: as for `core_v1`: every field is optional, an unknown field is skipped, a field
of the wrong JSON type is an error that names it.
"""

from typing import Annotated

from extender.wire import core_v1


class Device(core_v1.Object):
    """An entry of `gpus` or `hostDevices`. One with a claim has no deviceName."""

    deviceName: str | None = None


class Devices(core_v1.Object):
    """spec.domain.devices."""

    gpus: Annotated[list[Device], core_v1.Bounded] | None = None
    hostDevices: Annotated[list[Device], core_v1.Bounded] | None = None


class Domain(core_v1.Object):
    """spec.domain."""

    devices: Devices | None = None


class Spec(core_v1.Object):
    """spec."""

    domain: Domain | None = None


class MigrationState(core_v1.Object):
    """status.migrationState."""

    sourcePod: str | None = None
    targetPod: str | None = None
    completed: bool | None = None
    failed: bool | None = None


class Status(core_v1.Object):
    """status."""

    phase: str | None = None
    nodeName: str | None = None
    activePods: dict[str, str] | None = None
    migrationState: MigrationState | None = None


class VirtualMachineInstance(core_v1.Object):
    """A VirtualMachineInstance."""

    metadata: core_v1.ObjectMeta | None = None
    spec: Spec | None = None
    status: Status | None = None
