"""The slow reference of what DRA claims hold, in plain Python, from the claims and from what is known of devices.

Why it exists: tests and benchmarks compare the ledger that is kept event by event with it. It must not know that
ledger, nor the table of devices. Invariant: everything is computed anew, device by device.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from accounting.holders import Claim, DeviceId
from accounting.reference.state import Amounts, ClaimedPart

_NVIDIA, _HAMI = "gpu.nvidia.com", "hami-core-gpu.project-hami.io"
_MIB = 1 << 20


class KnownDevice(NamedTuple):
    """What a slice has said of a device."""

    uuid: str
    """Of its card."""
    is_mig: bool = False
    memory_bytes: int = 0
    multiprocessors: int = 0


class Held(NamedTuple):
    """What claims hold on one node's cards, by UUID, and (claim, device) of what is no known card."""

    parts: dict[str, list[ClaimedPart]]
    unmapped: list[tuple[str, DeviceId]]


def held_on(
    node: str, claims: Iterable[Claim], known: Mapping[DeviceId, KnownDevice], sizes: Mapping[str, Amounts]
) -> Held:
    """Return what claims hold on a node after which its pool is named. `sizes`: what its cards register, by UUID."""
    held = Held({}, [])
    for claim in claims:
        own: dict[str, list[ClaimedPart]] = {}
        for result in claim.results:
            device = result.device
            if result.admin_access or device.driver not in (_NVIDIA, _HAMI) or (device.pool != node):
                continue
            found = _find(device, known)
            if found is None:
                held.unmapped.append((claim.key, device))
                continue
            size = sizes.get(found.uuid, Amounts())
            if found.is_mig:
                whole = max((each.multiprocessors for each in _whole_parts(device.pool, found.uuid, known)), default=0)
                cores = 100 * found.multiprocessors // whole if whole else 0
                part = ClaimedPart(Amounts(1, -(-found.memory_bytes // _MIB), cores), closed=True)
            elif result.share_id:
                memory = size.memory if result.memory_bytes is None else -(-result.memory_bytes // _MIB)
                part = ClaimedPart(Amounts(1, memory, 100 if result.cores is None else result.cores), closed=False)
            else:
                part = ClaimedPart(Amounts(size.slots, size.memory, 100), closed=True, whole=True)
            own.setdefault(found.uuid, []).append(part)
        for uuid, parts in own.items():
            held.parts.setdefault(uuid, []).extend(parts)
    return Held(held.parts, sorted(held.unmapped))


def _find(device: DeviceId, known: Mapping[DeviceId, KnownDevice]) -> KnownDevice | None:
    """Return what a device is: as a slice has said, else by the card whose name its own name contains."""
    if device in known:
        return known[device]
    name = device.device.removeprefix("hami-").partition("-mig-")[0]
    for driver in (device.driver, _NVIDIA):
        sibling = known.get(DeviceId(driver, device.pool, name))
        if sibling is not None:
            return KnownDevice(sibling.uuid, "-mig-" in device.device)
    return None


def _whole_parts(pool: str, uuid: str, known: Mapping[DeviceId, KnownDevice]) -> Iterable[KnownDevice]:
    for device, each in known.items():
        if device.pool == pool and each.uuid == uuid and each.is_mig and "-mig-7g" in device.device:
            yield each
