"""What preemption must know of a pod, from its object.

It must not do I/O. Invariant: pods that are written alike in what counts here get one and the same value, so that
100,000 pods of some templates take the room of the templates.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from accounting.pod_info import NOT_STARTED, PodInfo, Room
from extender.convert.room import Requested, pod_requests
from extender.wire import core_v1, watched

#: Priorities from here on are Kubernetes' own (SystemCriticalPriority).
_SYSTEM_PRIORITY = 2_000_000_000
_SYSTEM_CLASSES = ("system-node-critical", "system-cluster-critical")
_MIRROR, _SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
_OWN_KINDS = ("DaemonSet", "Node")
_RESIZED = ("PodResizePending", "PodResizeInProgress")
_REMEMBERED = 16_384


class _Written(NamedTuple):
    """Everything that decides, in a form that is quickly compared."""

    priority: int
    protected: bool
    never: bool
    labels: tuple[tuple[str, str], ...]
    requested: tuple[Requested, ...]
    overhead: tuple[tuple[str, object], ...]
    plain: bool
    certain: bool


def info_of(
    meta: core_v1.ObjectMeta,
    spec: watched.AnyPodSpec,
    status: core_v1.PodStatus,
    requested: tuple[Requested, ...],
) -> PodInfo:
    """Return what preemption must know. `requested`: what each container requests."""
    written = _Written(
        spec.priority or 0,
        _is_protected(meta, spec),
        spec.preemptionPolicy == "Never",
        tuple(meta.labels.items()) if meta.labels else (),
        requested,
        tuple(spec.overhead.items()) if spec.overhead else (),
        spec.affinity is None or not _has_required_terms(spec.affinity),
        # Requests of the pod as a whole, and those that are being changed, depend on more than the containers' specs.
        spec.resources is None and not _is_resized(status),
    )
    try:
        return _shared(written)
    except TypeError:
        # A quantity that is no text.
        return _shared.__wrapped__(written)


@lru_cache(maxsize=_REMEMBERED)
def _shared(written: _Written) -> PodInfo:
    requests = pod_requests(written.requested, dict(written.overhead)) if written.certain else None
    room = None if requests is None else Room(requests, written.plain)
    return PodInfo(written.priority, written.protected, written.never, tuple(sorted(written.labels)), room)


def started_of(status: core_v1.PodStatus) -> int:
    """Return when a pod started, in seconds since 1970; NOT_STARTED if it has not, or says it in no known form."""
    text = status.startTime
    if not text:
        return NOT_STARTED
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return NOT_STARTED
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def _is_protected(meta: core_v1.ObjectMeta, spec: watched.AnyPodSpec) -> bool:
    if (spec.priority or 0) >= _SYSTEM_PRIORITY or spec.priorityClassName in _SYSTEM_CLASSES:
        return True
    for owner in meta.ownerReferences or ():
        if owner.kind in _OWN_KINDS:
            return True
    annotations = meta.annotations or {}
    return _MIRROR in annotations or annotations.get(_SOURCE, "api") != "api"


def _has_required_terms(affinity: core_v1.Affinity) -> bool:
    return any(
        each is not None and each.requiredDuringSchedulingIgnoredDuringExecution
        for each in (affinity.podAffinity, affinity.podAntiAffinity)
    )


def _is_resized(status: core_v1.PodStatus) -> bool:
    return any(condition.type in _RESIZED for condition in status.conditions or ())
