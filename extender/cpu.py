"""The CPU that a pod requests and a node offers, as kube-scheduler counts them.

Why it exists: cards on a node without free CPU are worth nothing, so policies that look ahead must know it. It must not
know cards. Invariant: the answer is kube-scheduler's, and what cannot be read counts 0. Source: Kubernetes
component-helpers/resource/helpers.go (PodRequests: sidecars, inits and apps in order; requests of the pod as a whole go
before those of its containers; overhead is added) and defaulting (a missing request is the limit).
"""

from collections.abc import Mapping
from functools import lru_cache

from accounting.errors import QuantityError
from accounting.quantity import parse_quantity
from extender.wire import core_v1

_CPU = "cpu"
_INT32_MAX = 2**31 - 1


def pod_cpu_milli(spec: core_v1.PodSpec) -> int:
    """Return thousandths of a CPU. Unlike cards they are held from the Binding to the end, whatever has run."""
    overhead = _milli(spec.overhead.get(_CPU)) if spec.overhead else 0
    whole = None if spec.resources is None else _requested(spec.resources)
    if whole is not None:
        return whole + overhead
    before = peak = 0
    for each in spec.initContainers or ():
        own = _requested(each.resources) or 0
        if each.restartPolicy == "Always":
            before += own
        elif before + own > peak:
            peak = before + own
    steady = before + sum(_requested(each.resources) or 0 for each in spec.containers or ())
    return max(peak, steady) + overhead


def allocatable_cpu_milli(allocatable: Mapping[str, object]) -> int | None:
    """Return a node's allocatable CPU; None if the node does not say or it is no quantity."""
    return _milli(allocatable[_CPU]) if _CPU in allocatable else None


def _requested(resources: core_v1.Resources | None) -> int | None:
    if resources is None:
        return None
    for quantities in (resources.requests, resources.limits):
        if quantities is not None and _CPU in quantities:
            return _milli(quantities[_CPU])
    return None


def _milli(raw: object) -> int:
    return _milli_of_text(raw) if isinstance(raw, str) else _milli_of_text.__wrapped__(raw)


@lru_cache(maxsize=4_096)
def _milli_of_text(raw: object) -> int:
    """Return thousandths; objects that clusters hold often are written alike, so most texts are read once."""
    try:
        return max(0, min(parse_quantity(raw).milli_value(), _INT32_MAX))
    except QuantityError:
        return 0
