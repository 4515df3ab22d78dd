"""What a live cluster must remember of pods and nodes beside accounting: versions, sizes, priorities, locks.

It must not know cards. Invariant: an entry exists exactly while its object does, as far as the watch and filter's
questions have told.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.convert import NODE_LOCK, annotation_bytes
from extender.wire import core_v1, watched

#: What the names of all handshake annotations begin with.
_HANDSHAKE = "hami.io/node-handshake"


class PodFacts(NamedTuple):
    """What bind and waking need of a pod."""

    resource_version: str
    annotation_bytes: int
    """Size of the annotations that bind does not overwrite; 0 when it is bound."""
    priority: int = 0
    deleting: bool = False
    bound: bool = False
    unschedulable: bool = False
    """kube-scheduler has tried the pod and found no node (condition PodScheduled is False, reason Unschedulable)."""
    rejection: int = 0
    """Tells one text of a PodScheduled condition that is False from another; 0 where there is none."""


class NodeFacts(NamedTuple):
    """What the node lock needs of a node."""

    resource_version: str
    lock: str | None
    """The lock annotation's text."""
    handshakes: tuple[tuple[str, str], ...] = ()
    """Handshake annotations and their texts."""


@dataclass(slots=True)
class Facts:
    """Facts by pod UID and node name."""

    pods: dict[str, PodFacts] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)


def pod_facts(wire: watched.AnyPod, overwritten: Collection[str]) -> PodFacts:
    """Return a pod's facts. `overwritten`: the annotation keys that bind writes in any case."""
    meta, spec = wire.metadata or core_v1.ObjectMeta(), wire.spec or core_v1.PodSpec()
    if spec.nodeName:
        # The rest is asked for only until it is bound, and 100,000 times it would be much.
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
        unschedulable=failed is not None and failed.reason == "Unschedulable",
        rejection=0 if failed is None else hash((failed.reason, failed.message)),
    )


def node_facts(meta: core_v1.ObjectMeta) -> NodeFacts:
    """Return a node's facts."""
    annotations = meta.annotations or {}
    handshakes = tuple((key, text) for key, text in annotations.items() if key.startswith(_HANDSHAKE))
    return NodeFacts(meta.resourceVersion or "", annotations.get(NODE_LOCK) or None, handshakes)


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is surely older than another of the same resource.

    They are comparable as integers since KEP-5504; others are never called older. A wrong answer costs a conflict and
    a read, never a booking.
    """
    if not (version.isascii() and version.isdigit() and than.isascii() and than.isdigit()):
        return False
    # Compared as text: Python converts at most 4,300 digits.
    version, than = version.lstrip("0"), than.lstrip("0")
    return (len(version), version) < (len(than), than)
