"""What a pod would add to its namespace's quotas, beside what the API server's own quota charges, and why they differ.

Why it exists: two different numbers for one quota are trusted only with the reason beside them. It must not decide
anything. Invariant: where the two numbers differ there is a reason; where they are equal there is none.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from accounting.holdings import Total, least_total
from accounting.pod import Pod
from accounting.pod_record import PodRecord
from accounting.quota.limits import Limit, instance_resources
from accounting.quota.objects import managed_resources
from accounting.quota_scope import selects
from accounting.vendor import Vendor
from accounting.vendor_part import part_of


class Charge(NamedTuple):
    """What a pod would add to one limit here, what the API server would charge, and why that is not the same."""

    limit: Limit
    adds: int
    at_least: bool
    """Part of it is known only on a card."""
    api_adds: int
    differs: tuple[str, ...]


def pod_charges(limits: Iterable[Limit], pod: Pod, vendor: Vendor, *, mig: bool = False) -> list[Charge]:
    """Return what a pod would add to each limit that counts it. `mig`: there may be cards in MIG mode."""
    least, certain = least_total(pod.containers)
    divided = instance_resources(vendor, pod.selection) if mig and pod.asks else ()
    api = dict(pod.api_charge)
    found = []
    for limit in limits:
        if not selects(limit.selector, pod.scope):
            continue
        adds = least[managed_resources(vendor).index(limit.resource)]
        in_mig = limit.resource in divided
        at_least = in_mig or (not certain and limit.resource == vendor.memory_resource)
        api_adds = api.get(limit.resource, 0)
        why = pod_differences(pod, limit.resource, vendor, in_mig=in_mig) if at_least or adds != api_adds else []
        found.append(Charge(limit, adds, at_least, api_adds, tuple(why)))
    return found


def pod_differences(pod: Pod, resource: str, vendor: Vendor, *, in_mig: bool) -> list[str]:
    """Return why the API server charges another number than `total.peak` for a pod that has a limited resource.

    `in_mig`: it has instances of cards in MIG mode, or may get some.
    """
    requests = [container.request for container in pod.containers if container.request is not None]
    reasons = []
    if resource != vendor.count_resource and any(request.count > 1 for request in requests):
        reasons.append("the API server does not multiply by the count of cards")
    if in_mig and resource != vendor.count_resource:
        reasons.append("an instance of a card in mig mode may have more than is asked, which is never known to it")
    if resource == vendor.memory_resource:
        if any(request.memory_percentage for request in requests):
            reasons.append("the memory of percentages and whole cards is known on the cards only, and never to it")
        if max(vendor.memory_factor, 1) > 1:
            reasons.append(f"it counts units of {vendor.memory_factor} MiB")
    return reasons or ["a default, or the pod's overhead, counts on one side only"]


def namespace_differences(limit: Limit, pods: Iterable[tuple[Pod, PodRecord]], vendor: Vendor) -> list[str]:
    """Return why a namespace's charge there and here differ, and for how many pods each reason holds."""
    return differences_text(count_differences(limit, pods, vendor))


def differences_text(reasons: Mapping[str, int]) -> list[str]:
    """Return reasons with their numbers of pods, sorted."""
    return [f"{why} ({count} {'pod' if count == 1 else 'pods'})" for why, count in sorted(reasons.items())]


def count_differences(limit: Limit, pods: Iterable[tuple[Pod, PodRecord]], vendor: Vendor) -> dict[str, int]:
    """Return why what these pods are charged there and here differs, and for how many of them each reason holds."""
    reasons: dict[str, int] = {}
    at = managed_resources(vendor).index(limit.resource)
    for pod, record in pods:
        if pod.namespace != limit.namespace or pod.terminal or not selects(limit.selector, pod.scope):
            continue
        charged = dict(pod.api_charge).get(limit.resource, 0)
        peak = next((each.peak[at] for each in record.vendor_totals if each.vendor == vendor.key), 0)
        shrunk = peak - dict(record.held_totals).get(vendor.key, Total())[at]
        if pod.node is None:
            why = ["not bound yet, so only the API server charges them"] if charged else []
        else:
            why = ["their inits are over, which the API server charges to the end"] * bool(shrunk)
            if peak != charged:
                own = part_of(pod, vendor.key)
                why += pod_differences(own, limit.resource, vendor, in_mig=bool(record.instances))
        for each in why:
            reasons[each] = reasons.get(each, 0) + 1
    return reasons
