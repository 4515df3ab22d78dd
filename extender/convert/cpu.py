"""The CPU that a pod requests and a node offers, as kube-scheduler counts them.

Why it exists: cards on a node without free CPU are worth nothing, so policies that look ahead must know the CPU. It
must not know cards. Invariant: the answer is kube-scheduler's; an unreadable quantity counts 0. Source: Kubernetes
component-helpers/resource/helpers.go (PodRequests: sidecars, inits and apps in order; requests of the pod as a whole
replace those of its containers; overhead is added) and defaulting (a missing request is the limit).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from accounting.errors import QuantityError
from accounting.quantity import parse_quantity
from extender.wire import core_v1, watched

_CPU = "cpu"
_INT32_MAX = 2**31 - 1


def pod_cpu_milli(spec: core_v1.PodSpec) -> int:
    """Return a pod's CPU in thousandths. Unlike cards, it is held in full from the Binding to the pod's end."""
    containers = (*(spec.initContainers or ()), *(spec.containers or ()))
    return cpu_milli_of(spec, [container_cpu_milli(each.resources) for each in containers])


def cpu_milli_of(spec: watched.AnyPodSpec, own: Sequence[int]) -> int:
    """Return `pod_cpu_milli` from what each container requests, init containers first, in spec order."""
    overhead = _milli(spec.overhead.get(_CPU)) if spec.overhead else 0
    whole = None if spec.resources is None else _requested(spec.resources)
    if whole is not None:
        return whole + overhead
    return containers_cpu_milli(own, [each.restartPolicy == "Always" for each in spec.initContainers or ()]) + overhead


def containers_cpu_milli(own: Sequence[int], are_sidecars: Sequence[bool]) -> int:
    """Return what containers request together. `own`: each, init containers first; `are_sidecars`: which of those."""
    before = peak = 0
    for is_sidecar, milli in zip(are_sidecars, own, strict=False):
        if is_sidecar:
            before += milli
        elif before + milli > peak:
            peak = before + milli
    steady = before + sum(own[len(are_sidecars) :])
    return max(peak, steady)


def container_cpu_milli(resources: core_v1.Resources | None) -> int:
    """Return what one container requests, in thousandths of a CPU."""
    return _requested(resources) or 0 if resources is not None else 0


def allocatable_cpu_milli(allocatable: Mapping[str, object]) -> int | None:
    """Return a node's allocatable CPU in thousandths; None if it is missing or not a quantity."""
    return _milli(allocatable[_CPU]) if _CPU in allocatable else None


def _requested(resources: core_v1.Resources) -> int | None:
    for quantities in (resources.requests, resources.limits):
        if quantities is not None and _CPU in quantities:
            return _milli(quantities[_CPU])
    return None


def _milli(raw: object) -> int:
    return _milli_of_text(raw) if isinstance(raw, str) else _milli_of_text.__wrapped__(raw)


@lru_cache(maxsize=4_096)
def _milli_of_text(raw: object) -> int:
    """Return a quantity in thousandths. Objects often have equal texts, so most are read once."""
    try:
        return max(0, min(parse_quantity(raw).milli_value(), _INT32_MAX))
    except QuantityError:
        return 0
