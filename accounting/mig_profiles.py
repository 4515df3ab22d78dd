"""Cards in MIG mode: their profiles, where instances may lie on them, and which instance a request gets.

Why it exists: the hardware divides such a card into instances of fixed sizes at fixed places, so what is free is a set
of slices, not a number. It must not know nodes, pods or the wire. Invariants: an instance that is offered lies on
free slices only and has at least the memory and cores that were asked; a set of slices is an integer whose bit i stands
for slice i. Source: HAMi v2.10's migProfiles and its order of choice.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

#: No GPU has more; NVIDIA's have seven compute and eight memory slices.
MAX_SLICES = 8
EVERY_SLICE = (1 << MAX_SLICES) - 1
#: Stands for slices that two holders have at once.
OVERLAPPING = -1
MIG_MODE = "mig"
_INT32_MAX = 2**31 - 1
#: HAMi places these from the highest start down, so that they leave the low places to the others.
_FROM_ABOVE = ("1g.", "3g.")


class MigProfile(NamedTuple):
    """A size of instance: memory in MiB, cores in percent of the card, and the (start, size) where it may lie."""

    name: str
    memory: int
    cores: int
    slices: int
    placements: tuple[tuple[int, int], ...]


#: The profiles of a card; empty: it is not in MIG mode.
MigLayout = tuple[MigProfile, ...]


class MigInstance(NamedTuple):
    """A part of a card that a row has."""

    profile: str
    start: int
    size: int

    @property
    def bits(self) -> int:
        """Its slices."""
        return slices_of(self.start, self.size)


#: An instance of which nobody knows where it lies.
UNKNOWN = MigInstance("", 0, 0)


class Option(NamedTuple):
    """An instance that a row may get, and what it takes of the card."""

    instance: MigInstance
    memory: int
    cores: int


def slices_of(start: int, size: int) -> int:
    """Return the slices from `start` on."""
    return ((1 << size) - 1) << start


@lru_cache(maxsize=65_536)
def options(layout: MigLayout, free: int, memory: int, cores: int) -> tuple[Option, ...]:
    """Return the instances with at least this memory and these cores on free slices, the preferred one first.

    The smallest profile that is large enough comes first. 1g and 3g lie as high as possible, the others as low as
    possible.
    """
    found = []
    for profile in sorted(layout, key=lambda each: (each.memory, each.slices, each.name)):
        if profile.memory < memory or profile.cores < cores:
            continue
        for start, size in sorted(profile.placements, reverse=profile.name.startswith(_FROM_ABOVE)):
            instance = MigInstance(profile.name, start, size)
            if not instance.bits & ~free:
                found.append(Option(instance, profile.memory, profile.cores))
    return tuple(found)


def held_slices(layout: MigLayout, instances: Iterable[MigInstance]) -> int | None:
    """Return the slices of instances; None if the card has no such profile at such a place."""
    bits = 0
    places = {(each.name, *place) for each in layout for place in each.placements}
    for instance in instances:
        if instance not in places:
            return None
        bits |= instance.bits
    return bits


@lru_cache(maxsize=1_024)
def most_cores(layout: MigLayout, free: int = EVERY_SLICE) -> int:
    """Return the most cores that instances side by side add up to: profiles' cores are rounded up, so above 100."""
    every = options(layout, free, 0, 0)
    return max((each.cores + most_cores(layout, free & ~each.instance.bits) for each in every), default=0)


def read_layout(value: object) -> MigLayout | str:
    """Read a register's migProfiles; returns why on failure."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 4 * MAX_SLICES:
        return "must be a list of profiles"
    profiles = []
    for entry in value:
        profile = _profile(entry)
        if isinstance(profile, str):
            return profile
        profiles.append(profile)
    return tuple(profiles)


def read_instances(value: object) -> dict[tuple[int, int], tuple[str, MigInstance]] | str:
    """Read a pod's MIG annotation, decoded: (container, device) -> card and instance. Returns why on failure."""
    if not isinstance(value, list):
        return "must be a list"
    found: dict[tuple[int, int], tuple[str, MigInstance]] = {}
    for entry in value:
        read = _instance(entry)
        if isinstance(read, str):
            return read
        place, uuid, instance = read
        if place in found:
            return f"names container {place[0]}, device {place[1]} twice"
        found[place] = uuid, instance
    return found


def _profile(entry: object) -> MigProfile | str:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        return "every profile needs a name"
    memory, cores, slices = numbers = [entry.get(key) or 0 for key in ("memoryMB", "core", "sliceCount")]
    if not all(type(number) is int and 0 <= number <= _INT32_MAX for number in numbers):
        return f"profile {entry['name']}: memoryMB, core and sliceCount must be integers from 0"
    placements = entry.get("placements") or []
    places = [_placement(each) for each in placements] if isinstance(placements, list) else [None]
    legal = tuple(place for place in places if place is not None)
    if len(legal) != len(places):
        return f"profile {entry['name']}: placements must lie within {MAX_SLICES} slices"
    return MigProfile(entry["name"], memory, cores, slices, legal)


def _placement(value: object) -> tuple[int, int] | None:
    if not isinstance(value, Mapping):
        return None
    start, size = value.get("start") or 0, value.get("size") or 0
    if type(start) is not int or type(size) is not int or start < 0 or size < 1 or start + size > MAX_SLICES:
        return None
    return start, size


def _instance(entry: object) -> tuple[tuple[int, int], str, MigInstance] | str:
    if not isinstance(entry, Mapping):
        return "must hold objects"
    container, device = entry.get("containerIndex") or 0, entry.get("deviceIndex") or 0
    if not all(type(index) is int and index >= 0 for index in (container, device)):
        return "containerIndex and deviceIndex must be integers from 0"
    uuid, profile, place = entry.get("gpuUUID"), entry.get("profile"), _placement(entry.get("placement"))
    if not isinstance(uuid, str) or not uuid or not isinstance(profile, str) or not profile:
        return "gpuUUID and profile must not be empty"
    if place is None:
        return f"placement of container {container} must lie within {MAX_SLICES} slices"
    runtime = sum(entry.get(key) is not None for key in ("migUUID", "gpuInstanceID", "computeInstanceID"))
    if runtime not in (0, 3):
        return f"container {container} has some of migUUID, gpuInstanceID and computeInstanceID, not all"
    return (container, device), uuid, MigInstance(profile, *place)
