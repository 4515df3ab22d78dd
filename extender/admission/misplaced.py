"""Annotations that look like requests, or like annotations that are read.

Why it exists: memory that is requested by an annotation is not requested at all (HAMi#2862 and KAI#257, users'
reports). It must not decide about the pod. Invariant: at most one finding per key.
"""

from collections.abc import Iterator, Mapping

from accounting.vendor import Vendor
from extender.admission.decision import Finding, Why
from extender.admission.names import misplaced_resource, near_annotation


def misplaced(annotations: Mapping[str, str], vendors: tuple[Vendor, ...], *, asks: bool) -> Iterator[Finding]:
    """Yield a finding per annotation that is not read but was probably meant to be.

    `asks`: whether the pod asks for cards; if not, nothing is lost. A key without a domain may belong to any program.
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
