"""What preemption needs of a pod, from its object.

It must not do I/O. Invariant: pods with the same relevant fields share one value, so that 100,000 pods of a few
templates take only the room of the templates.
"""

from datetime import UTC, datetime
from functools import lru_cache

from accounting.pod_info import NOT_STARTED, PodInfo, Room
from extender.convert.resources import Requested, pod_requests
from extender.wire import core_v1, watched

#: Priorities from this on are Kubernetes' own (SystemCriticalPriority).
_SYSTEM_PRIORITY = 2_000_000_000
_SYSTEM_CLASSES = ("system-node-critical", "system-cluster-critical")
_MIRROR, _SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
_OWN_KINDS = ("DaemonSet", "Node")
_RESIZED = ("PodResizePending", "PodResizeInProgress")
_REMEMBERED = 16_384
#: Longer texts are no times, and are not remembered.
_LONGEST_TIME = 40
#: Labels and containers of a pod that is remembered; an object may have thousands, and what is remembered must fit.
_MOST_LABELS, _MOST_CONTAINERS = 64, 32


def info_of(
    meta: core_v1.ObjectMeta,
    spec: watched.AnyPodSpec,
    status: core_v1.PodStatus,
    requested: tuple[Requested, ...],
) -> PodInfo:
    """Return what preemption needs. `requested`: what each container requests."""
    labels = tuple(meta.labels.items()) if meta.labels else ()
    overhead = tuple(spec.overhead.items()) if spec.overhead else ()
    protected, never = _is_protected(meta, spec), spec.preemptionPolicy == "Never"
    plain = spec.affinity is None or not _has_required_terms(spec.affinity)
    # Pod-level requests, and requests that are being resized, depend on more than the containers' specs.
    certain = spec.resources is None and not _is_resized(status)
    # By position, because keywords take twice the time, and every event of a pod comes through here.
    written = spec.priority or 0, protected, never, labels, requested, overhead, plain, certain
    if len(labels) > _MOST_LABELS or len(requested) > _MOST_CONTAINERS:
        return _shared.__wrapped__(*written)
    try:
        return _shared(*written)
    except TypeError:
        # A quantity that is not text.
        return _shared.__wrapped__(*written)


@lru_cache(maxsize=_REMEMBERED)
def _shared(  # noqa: PLR0913, PLR0917 - everything that decides
    priority: int,
    protected: bool,  # noqa: FBT001
    never: bool,  # noqa: FBT001
    labels: tuple[tuple[str, str], ...],
    requested: tuple[Requested, ...],
    overhead: tuple[tuple[str, object], ...],
    plain: bool,  # noqa: FBT001
    certain: bool,  # noqa: FBT001
) -> PodInfo:
    requests = pod_requests(requested, dict(overhead)) if certain else None
    room = None if requests is None else Room(requests, plain)
    return PodInfo(priority, protected, never, tuple(sorted(labels)), room)


def started_of(status: core_v1.PodStatus) -> int:
    """Return when a pod started, in seconds since 1970; NOT_STARTED if it has not or the time is unreadable."""
    text = status.startTime
    if not text:
        return NOT_STARTED
    return (_seconds if len(text) <= _LONGEST_TIME else _seconds.__wrapped__)(text)


@lru_cache(maxsize=_REMEMBERED)
def _seconds(text: str) -> int:
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
    for condition in status.conditions or ():  # noqa: SIM110 - `any` takes twice the time
        if condition.type in _RESIZED:
            return True
    return False
