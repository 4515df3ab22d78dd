"""Annotations that look like requests, or like annotations that are read.

Why it exists: memory that is asked for by an annotation is not asked for at all (user reports HAMi#2862, KAI#257). It
must not decide what becomes of the pod. Invariant: one finding per key at most.
"""

from collections.abc import Iterator, Mapping

from accounting.vendor import Vendor
from extender.admission.decision import Finding, Why
from extender.admission.names import misplaced_resource, near_annotation


def misplaced(annotations: Mapping[str, str], vendors: tuple[Vendor, ...], *, asks: bool) -> Iterator[Finding]:
    """Yield a finding per annotation that is not read and probably meant to be.

    `asks`: the pod asks for cards; if it does not, nothing is lost. A key without a domain may be anybody's.
    """
    for key, value in annotations.items():
        field = f"metadata.annotations[{key}]: {value}"
        resource = misplaced_resource(key, vendors)
        if resource is not None:
            why = f"is not read; ask by the resource {resource}, under resources.limits of a container"
            yield Finding(Why.NEAR_MISS, f"{field}: {why}", only_told=not asks or "/" not in key)
            continue
        meant = near_annotation(key, vendors) if asks else None
        if meant is not None:
            yield Finding(Why.NEAR_MISS, f"{field}: is not read; {meant} is probably meant")
