"""DRA's objects of files, and what becomes of the cluster when the files are read again.

It must not read files. Invariant: what came from files is replaced by what they say now.
"""

from dataclasses import dataclass, field

from accounting.holders import Claim, Slice
from extender.cluster.device_classes import DeviceClasses
from extender.cluster.resource_claims import ResourceClaims


@dataclass(slots=True)
class DraObjects:
    """The objects of one reading."""

    classes: dict[str, str] = field(default_factory=dict)
    """Name -> the resource name that the class maps, "" if it maps none."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """By UID."""
    slices: dict[str, Slice] = field(default_factory=dict)
    """By name."""
    slices_known: bool = True
    """False: slices could not be listed, so nothing tells which cards the devices are."""

    def add(self, other: "DraObjects") -> None:
        """Take in another part of the same reading."""
        self.classes |= other.classes
        self.claims |= other.claims
        self.slices |= other.slices


def replace_dra(before: DraObjects, now: DraObjects, classes: DeviceClasses, claims: ResourceClaims) -> None:
    """Record one reading instead of the one before it."""
    for name in before.classes.keys() - now.classes.keys():
        classes.remove(name)
    for uid in sorted(before.claims.keys() - now.claims.keys()):
        claims.remove(uid)
    for name in sorted(before.slices.keys() - now.slices.keys()):
        claims.remove_slice(name)
    for name, mapped in now.classes.items():
        classes.put(name, mapped)
    for new in now.slices.values():
        claims.put_slice(new)
    for claim in now.claims.values():
        claims.put(claim)
    if now.slices_known:
        claims.know_slices()
