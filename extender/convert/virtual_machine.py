"""VirtualMachineInstances -> accounting values.

It must not do I/O. Invariant: labels, annotations and owners of a VMI are not read: who writes them proves nothing.
"""

import sys

from accounting.holders import Migration, VirtualMachineInstance, count_units
from extender.config import Settings
from extender.wire import kubevirt_v1

_OVER = frozenset({"Succeeded", "Failed"})


def convert_vmi(wire: kubevirt_v1.VirtualMachineInstance, settings: Settings) -> VirtualMachineInstance:
    """Return a VMI. Of its devices those count that have a `deviceName` and that are counted by a raw key."""
    meta, status = wire.metadata, wire.status or kubevirt_v1.Status()
    names = (each.deviceName for each in _devices(wire) if each.deviceName in settings.raw_keys)
    return VirtualMachineInstance(
        namespace=sys.intern((meta.namespace if meta is not None else None) or "default"),
        name=(meta.name if meta is not None else None) or "",
        uid=(meta.uid if meta is not None else None) or "",
        node=sys.intern(status.nodeName) if status.nodeName else None,
        active_pods=frozenset(status.activePods or ()),
        units=count_units(name for name in names if name),
        migration=_migration(status.migrationState),
        uncounted=_uncounted(wire, settings),
        is_over=status.phase in _OVER,
    )


def _uncounted(wire: kubevirt_v1.VirtualMachineInstance, settings: Settings) -> tuple[str, ...]:
    """Return the names of `gpus` that no raw key counts. Host devices may be anything, and are not named."""
    devices = wire.spec.domain.devices if wire.spec is not None and wire.spec.domain is not None else None
    gpus = (devices.gpus if devices is not None else None) or ()
    return tuple(sorted({each.deviceName for each in gpus if each.deviceName} - set(settings.raw_keys)))


def _devices(wire: kubevirt_v1.VirtualMachineInstance) -> list[kubevirt_v1.Device]:
    devices = wire.spec.domain.devices if wire.spec is not None and wire.spec.domain is not None else None
    return [] if devices is None else [*(devices.gpus or ()), *(devices.hostDevices or ())]


def _migration(state: kubevirt_v1.MigrationState | None) -> Migration | None:
    if state is None or not (state.sourcePod and state.targetPod):
        return None
    return Migration(state.sourcePod, state.targetPod, is_running=not (state.completed or state.failed))
