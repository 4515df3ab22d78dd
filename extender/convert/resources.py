"""What kube-scheduler counts for a pod, and what a node has, of every resource.

It must not do I/O. Invariant: the amounts are those of PodRequests and of NodeResourcesFit; the result is None where a
quantity cannot be read, or where the API server's answer depends on more than the spec. Source: Kubernetes
component-helpers/resource/helpers.go.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from accounting.errors import QuantityError
from accounting.holdings import peak_and_steady
from accounting.pod import ContainerKind
from accounting.quantity import parse_quantity
from accounting.status import Invalid
from extender.wire import core_v1

#: Resource names and amounts, sorted by name.
Amounts = tuple[tuple[str, int], ...]


class Requested:
    """What one container requests. Compared by identity, which is quick."""

    __slots__ = ("amounts", "kind")

    def __init__(self, kind: ContainerKind, amounts: Amounts | None) -> None:
        self.kind = kind
        self.amounts = amounts
        """None if a quantity cannot be read."""


def requested_by(kind: ContainerKind, resources: core_v1.Resources | None) -> Requested:
    """Return what a container requests; a missing request is the limit."""
    if resources is None:
        return Requested(kind, ())
    return Requested(kind, amounts_of({**(resources.limits or {}), **(resources.requests or {})}))


def pod_requests(containers: Sequence[Requested], overhead: Mapping[str, object] | None) -> Amounts | None:
    """Return what a pod requests: sidecars, inits and apps in order, then overhead."""
    own = [(each.kind, each.amounts) for each in containers]
    beside = amounts_of(overhead or {})
    if beside is None or any(amounts is None for _, amounts in own):
        return None
    peak, _ = peak_and_steady((kind, ((name, (each,)) for name, each in amounts or ())) for kind, amounts in own)
    sums = {name: amounts[0] for name, amounts in peak.items()}
    for name, amount in beside:
        sums[name] = sums.get(name, 0) + amount
    return tuple(sorted(sums.items()))


def raw_of(resources: core_v1.Resources | None, keys: Sequence[str], field: str) -> tuple[Amounts, tuple[Invalid, ...]]:
    """Return what a container requests of raw keys, and what of that cannot be used. `field`: of the resources."""
    found, misread = [], []
    limits, requests = (resources.limits or {}, resources.requests or {}) if resources is not None else ({}, {})
    for key in keys:
        part, raw = "requests", requests.get(key)
        if raw is None:
            part, raw = "limits", limits.get(key)
        if raw is None:
            continue
        units = _whole(raw)
        if units is None:
            misread.append(Invalid(f"{field}.{part}[{key}]", str(raw), "must be a whole number of devices"))
        elif units:
            found.append((key, units))
    return tuple(found), tuple(misread)


def raw_requests(containers: Sequence[Requested], raw: Sequence[Amounts]) -> Amounts:
    """Return what a pod's containers request of raw keys, by the formula of `pod_requests`.

    `raw`: what each of them requests.
    """
    asking = [amounts for amounts in raw if amounts]
    if len(asking) == 1:
        return tuple(sorted(asking[0]))
    own = zip(containers, raw, strict=True)
    peak, _ = peak_and_steady((each.kind, ((key, (units,)) for key, units in amounts)) for each, amounts in own)
    return tuple(sorted((key, units) for key, (units,) in peak.items()))


def _whole(raw: object) -> int | None:
    """Return a quantity that is a whole number from 0 on; None for any other."""
    try:
        quantity = parse_quantity(raw)
    except QuantityError:
        return None
    return quantity.value() if quantity.is_integer and quantity.nano >= 0 else None


def amounts_of(quantities: Mapping[str, object]) -> Amounts | None:
    """Return quantities as integers, thousandths for CPU; None if one cannot be read."""
    try:
        return tuple(sorted((name, _amount(name, raw)) for name, raw in quantities.items()))
    except QuantityError:
        return None


def allocatable_of(quantities: Mapping[str, object]) -> Amounts:
    """Return what a node has of each resource. Nodes with equal amounts share one object."""
    amounts = amounts_of(quantities)
    return () if amounts is None else _shared(amounts)


def _amount(name: str, raw: object) -> int:
    quantity = parse_quantity(raw)
    return quantity.milli_value() if name == "cpu" else quantity.value()


@lru_cache(maxsize=4_096)
def _shared(amounts: Amounts) -> Amounts:
    return amounts
