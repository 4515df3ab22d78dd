"""What a live cluster remembers of a pod apart from its cards: its version, its size, its priority.

It must not know cards. Invariant: facts are a function of the object as it was seen.
"""

from collections.abc import Collection
from typing import NamedTuple

from extender.convert import annotation_bytes
from extender.wire import core_v1, watched

_IN_VAIN = frozenset({"Unschedulable", "SchedulerError"})


class PodFacts(NamedTuple):
    """The facts that bind and waking need of a pod."""

    resource_version: str
    annotation_bytes: int
    """Bytes of the annotations that bind does not overwrite; 0 once it is bound."""
    priority: int = 0
    deleting: bool = False
    bound: bool = False
    unschedulable: bool = False
    """kube-scheduler has tried the pod in vain: it found no node, or an extender did not answer.

    That is the condition PodScheduled False with the reason Unschedulable or SchedulerError.
    """
    rejection: int = 0
    """A number that differs between texts of a PodScheduled condition that is False; 0 if there is none."""


def pod_facts(wire: watched.AnyPod, overwritten: Collection[str]) -> PodFacts:
    """Return a pod's facts. `overwritten`: the annotation keys that bind always writes."""
    meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or core_v1.PodSpec()
    if spec.nodeName:
        # The rest is needed only until it is bound, and would take much room for 100,000 pods.
        return PodFacts(meta.resourceVersion or "", 0, 0, meta.deletionTimestamp is not None, bound=True)
    status = wire.status or core_v1.PodStatus()
    failed = next(
        (one for one in status.conditions or () if one.type == "PodScheduled" and one.status == "False"), None
    )
    others = {key: value for key, value in (meta.annotations or {}).items() if key not in overwritten}
    return PodFacts(
        resource_version=meta.resourceVersion or "",
        annotation_bytes=annotation_bytes(others),
        priority=spec.priority or 0,
        deleting=meta.deletionTimestamp is not None,
        unschedulable=failed is not None and failed.reason in _IN_VAIN,
        rejection=0 if failed is None else hash((failed.reason, failed.message)),
    )


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is certainly older than another of the same resource.

    They compare as integers of any length (KEP-5504); other forms are never called older. A wrong answer costs a
    conflict and a read, never a booking.
    """
    if len(version) == len(than) and version >= than:
        # As nearly always.
        return False
    if not (version.isascii() and version.isdigit() and than.isascii() and than.isdigit()):
        return False
    # Compared as text, because Python converts at most 4,300 digits.
    version, than = version.lstrip("0"), than.lstrip("0")
    return (len(version), version) < (len(than), than)
