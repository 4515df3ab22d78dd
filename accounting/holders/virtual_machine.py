"""A KubeVirt VirtualMachineInstance as accounting uses it, and its launcher pods.

Why it exists: a VM's card appears twice, as a device of the VM and as a request of its launcher pod. Only this module
decides which pods are launchers, so that the card counts once and no other pod can pass as a launcher. It must not know
owner references, labels, annotations or names: users choose them, so they prove nothing (CVE-2025-64435). Invariant: a
pod is a launcher only if exactly one VMI lists its UID in `status.activePods` and both are in one namespace; otherwise
it is an ordinary pod.

Source: KubeVirt v1.8 and v1.9, `status.activePods`, `status.migrationState`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class VmiKey(NamedTuple):
    """The identity of a VirtualMachineInstance."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Migration:
    """A live migration in the VMI's status: the names of two pods, and whether it is running."""

    source_pod: str
    target_pod: str
    is_running: bool


@dataclass(frozen=True, slots=True)
class VirtualMachineInstance:
    """One VMI. `units`: (raw key, devices) that its spec names by `deviceName`, sorted by key."""

    namespace: str
    name: str
    uid: str
    node: str | None = None
    active_pods: frozenset[str] = frozenset()
    units: tuple[tuple[str, int], ...] = ()
    migration: Migration | None = None
    uncounted: tuple[str, ...] = ()
    """Names of its GPUs that no raw key counts, sorted."""
    is_over: bool = False
    """Whether its phase is Succeeded or Failed, so that it holds nothing."""

    @property
    def key(self) -> VmiKey:
        """Its identity."""
        return VmiKey(self.namespace, self.name)


@dataclass(slots=True)
class Launchers:
    """The VMI of each launcher pod. Nothing else reads `status.activePods`."""

    _listed: dict[VmiKey, frozenset[str]] = field(default_factory=dict)
    _listers: dict[str, set[VmiKey]] = field(default_factory=dict)  # pod UID -> the VMIs that list it

    def put(self, vmi: VirtualMachineInstance) -> frozenset[str]:
        """Record a VMI as it is now. Returns the UIDs of the pods whose answer may have changed."""
        return self._replace(vmi.key, vmi.active_pods)

    def remove(self, key: VmiKey) -> frozenset[str]:
        """Record that a VMI is gone. Returns the UIDs of the pods whose answer may have changed."""
        return self._replace(key, frozenset())

    def vmi_of(self, namespace: str, uid: str) -> VmiKey | None:
        """Return the VMI of a launcher pod; None for every other pod."""
        listers = self._listers.get(uid)
        if listers is None or len(listers) != 1:
            return None
        (lister,) = listers
        return lister if lister.namespace == namespace else None

    def listers_of(self, uid: str) -> frozenset[VmiKey]:
        """Return the VMIs that list a pod. If there are several it is a launcher of none, and of the last one left."""
        return frozenset(self._listers.get(uid, ()))

    def _replace(self, key: VmiKey, listed: frozenset[str]) -> frozenset[str]:
        before = self._listed.pop(key, frozenset())
        if listed:
            self._listed[key] = listed
        for uid in before - listed:
            listers = self._listers[uid]
            listers.discard(key)
            if not listers:
                del self._listers[uid]
        for uid in listed - before:
            self._listers.setdefault(uid, set()).add(key)
        return before ^ listed


def count_units(device_names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return (raw key, devices) of a VMI's `gpus` and `hostDevices`, one unit per entry with a `deviceName`."""
    units: dict[str, int] = {}
    for name in device_names:
        units[name] = units.get(name, 0) + 1
    return tuple(sorted(units.items()))
