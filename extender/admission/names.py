"""Finding names that are probably misspelt.

Why it exists: a misspelt memory limit is silently no limit (HAMi#2862 and KAI#257, users' reports). It must not decide
about the pod. Invariants: a name that is read is never a near miss; neither are other vendors' resources and the names
that NVIDIA's own plugins advertise (nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb).
"""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache

from accounting.vendor import Vendor
from extender.convert import CARD_POLICY, NODE_POLICY, WEIGHTS

_SEPARATORS = re.compile(r"[-_.]")
#: The least share of equal characters, by difflib. 0.8 takes gpumemory for gpumem, but not gpushared for gpu.
_LIKE = 0.8
#: Annotation names are long and similar: use-gpuuuid and use-gputype have 0.73.
_LIKE_ANNOTATION = 0.87
#: The least share for names that begin with a managed name: gpumem-mib, gpucores-percentage.
_LIKE_BEGINNING = 0.85
#: The least share for domains: nvidia has 0.75 to nvidia.com, amd.com 0.59.
_LIKE_DOMAIN = 0.75
_QUOTA_PREFIXES = ("limits.", "requests.")


@lru_cache(maxsize=4096)
def near_resource(name: str, vendors: tuple[Vendor, ...]) -> str | None:
    """Return the managed resource that was probably meant; None if the name is managed or resembles none."""
    managed = _resources(vendors)
    if name in managed:
        return None
    for prefix in _QUOTA_PREFIXES:
        if name.removeprefix(prefix) in managed:
            return name.removeprefix(prefix)
    return _nearest(name, managed, _LIKE, beginnings=True)


@lru_cache(maxsize=4096)
def misplaced_resource(key: str, vendors: tuple[Vendor, ...]) -> str | None:
    """Return the managed resource that an annotation's key equals or resembles; None if there is none.

    A key without a domain is compared with the resource's own part.
    """
    managed = _resources(vendors)
    if key in managed:
        return key
    if key in _annotations(vendors):
        return None
    if "/" in key:
        return near_resource(key, vendors)
    return next((name for name in managed if _alike(_plain(name.partition("/")[2]), _plain(key)) >= _LIKE), None)


@lru_cache(maxsize=4096)
def near_annotation(key: str, vendors: tuple[Vendor, ...]) -> str | None:
    """Return the annotation that was probably meant; None if the key is read or resembles none."""
    known = _annotations(vendors)
    return None if key in known else _nearest(key, known, _LIKE_ANNOTATION)


def _nearest(name: str, known: Iterable[str], like: float, *, beginnings: bool = False) -> str | None:
    """Return the known name that a name resembles most, the first of equals. `beginnings`: also one it begins with."""
    best, best_likeness = None, 0.0
    for each in known:
        likeness = _likeness(name, each, beginnings=beginnings)
        if likeness >= like and likeness > best_likeness:
            best, best_likeness = each, likeness
    return best


def _likeness(name: str, known: str, *, beginnings: bool) -> float:
    """Return how similar the parts after the domain are, 0.0 to 1.0; 0.0 if the domains differ too much."""
    domain, slash, own = name.partition("/")
    known_domain, _, known_own = known.partition("/")
    if not slash or _alike(domain.lower(), known_domain) < _LIKE_DOMAIN:
        return 0.0
    plain, known_plain = _plain(own), _plain(known_own)
    # gpumem-mib and gpumemory-limit begin with gpumem. Everything begins with gpu.
    if beginnings and len(known_plain) > len("gpu") and plain.startswith(known_plain):
        return max(_LIKE_BEGINNING, _alike(plain, known_plain))
    return _alike(plain, known_plain)


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _plain(text: str) -> str:
    return _SEPARATORS.sub("", text.lower())


@lru_cache(maxsize=16)
def _resources(vendors: tuple[Vendor, ...]) -> dict[str, None]:
    """Return every resource that is read, in order."""
    return dict.fromkeys(name for vendor in vendors for name in (*vendor.resources, vendor.priority_resource) if name)


@lru_cache(maxsize=16)
def _annotations(vendors: tuple[Vendor, ...]) -> dict[str, None]:
    """Return every annotation of a pod that is read or written, in order."""
    own = (
        name
        for vendor in vendors
        for name in (
            vendor.use_uuid_annotation,
            vendor.nouse_uuid_annotation,
            vendor.also_use_uuid_annotation,
            vendor.also_nouse_uuid_annotation,
            vendor.use_type_annotation,
            vendor.nouse_type_annotation,
            vendor.numa_bind_annotation,
            vendor.mode_annotation,
            vendor.devices_to_allocate_annotation,
            vendor.devices_allocated_annotation,
        )
        if name
    )
    return dict.fromkeys((NODE_POLICY, CARD_POLICY, WEIGHTS, *own))
