"""The slow reference for quotas: limits, charges and budgets again, in plain Python, one object and one pod at a time.

Why it exists: tests and benchmarks compare the fast code with it. It must not know tables, sums or arrays; it takes
quota objects as they are written and pods as they are now. Invariant: everything is computed anew, so no history can
matter. Only tests and benchmarks use it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from accounting.pod import Allocation, ContainerKind, DeviceRequest, DeviceRow, Pod
from accounting.reference.fit import _memory, _one_numa, _preference, _refusal, fit
from accounting.reference.state import Amounts, Card, NodeState, requested_holding, total_holding
from accounting.status import Code

DIMENSIONS = ("slots", "memory", "cores")


class Written(NamedTuple):
    """A quota object: its limits by dimension, and its scopes as (scope, operator, values)."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    scopes: Sequence[tuple[str, str, tuple[str, ...]]] = ()


def takes(quota: Written, pod: Pod) -> bool:
    """Whether a quota counts a pod."""
    return pod.namespace == quota.namespace and all(_holds(*each, pod) for each in quota.scopes)


def _holds(scope: str, operator: str, values: tuple[str, ...], pod: Pod) -> bool:
    facts = pod.scope
    if scope == "PriorityClass":
        name = facts.priority_class
        return {
            "In": name != "" and name in values,
            "NotIn": name == "" or name not in values,
            "Exists": name != "",
            "DoesNotExist": name == "",
        }[operator]
    return {
        "BestEffort": facts.best_effort,
        "NotBestEffort": not facts.best_effort,
        "Terminating": facts.terminating,
        "NotTerminating": not facts.terminating,
        "CrossNamespacePodAffinity": facts.cross_namespace_affinity,
    }[scope]


def charge(pod: Pod) -> Amounts:
    """Return what a namespace is charged for a booked pod now."""
    return total_holding(pod).held


def passed(quotas: Iterable[Written], used: Mapping[str, Amounts], pod: Pod) -> set[tuple[str, str]]:
    """Return (quota's name, dimension) of every limit that the pod would pass. `used`: by quota, the pod left out."""
    least = _least(pod)
    found = set()
    for quota in quotas:
        for dimension, hard in quota.hard.items() if takes(quota, pod) else ():
            more = getattr(least, dimension)
            if more and getattr(used[quota.name], dimension) + more > hard:
                found.add((quota.name, dimension))
    return found


def memory_left(quotas: Iterable[Written], used: Mapping[str, Amounts], pod: Pod) -> int | None:
    """Return what the quotas leave of memory for a pod whose memory depends on its cards; None if it does not."""
    if not any(each.request and each.request.memory_percentage for each in pod.containers):
        return None
    left = [quota.hard["memory"] - used[quota.name].memory for quota in quotas if "memory" in quota.hard]
    return min(left, default=None)


def _least(pod: Pod) -> Amounts:
    """Return the pod's total at its peak, with 1 MiB of each card where the memory depends on the card."""
    asked = [
        replace(each, request=each.request._replace(memory=1, memory_percentage=0))
        if each.request and each.request.memory_percentage
        else each
        for each in pod.containers
    ]
    return requested_holding(pod._replace(containers=tuple(asked))).peak


# -- placements within a budget ----------------------------------------------------------------------------------------


def code_within(state: NodeState, pod: Pod, mib: int) -> Code | None:
    """Return why a node does not take the pod within a budget of memory; None if it does."""
    found = fit(state, pod)
    if isinstance(found, Code):
        return found
    return None if next(placements_within(state, pod, mib), None) is not None else Code.QUOTA_EXCEEDED


def placements_within(state: NodeState, pod: Pod, mib: int) -> Iterator[Allocation]:
    """Yield the rows of sidecars and apps, in the order of preference, with which every init finds cards as well.

    The inits' rows are left empty: each of them has its own copy of the node, so they do not depend on each other.
    """
    for taken in _ways(state, pod, ((),) * len(pod.containers), 0, mib):
        if all(_init_fits(state, pod, taken, at, mib) for at in _positions(pod) if _is_init(pod, at)):
            yield taken


def _ways(state: NodeState, pod: Pod, taken: Allocation, at: int, mib: int) -> Iterator[Allocation]:
    if total_holding(pod._replace(allocation=taken)).peak.memory > mib:
        return
    rest = [i for i in _positions(pod) if i >= at and not _is_init(pod, i)]
    if not rest:
        yield taken
        return
    for rows in _sets(state, pod, taken, rest[0]):
        yield from _ways(state, pod, (*taken[: rest[0]], rows, *taken[rest[0] + 1 :]), rest[0] + 1, mib)


def _init_fits(state: NodeState, pod: Pod, taken: Allocation, at: int, mib: int) -> bool:
    return any(
        total_holding(pod._replace(allocation=(*taken[:at], rows, *taken[at + 1 :]))).peak.memory <= mib
        for rows in _sets(state, pod, taken, at)
    )


def _sets(state: NodeState, pod: Pod, taken: Allocation, at: int) -> Iterator[tuple[DeviceRow, ...]]:
    request = pod.containers[at].request or DeviceRequest(0, 0, 0, 0)
    alive = [row for i in range(at) if not _is_init(pod, i) for row in taken[i]]
    cards = [card for card in state.cards.values() if not card.orphan]
    fitting = [card for card in cards if _refusal(state, card, alive, request, pod) is None]

    one_numa = _one_numa(state, pod)

    def order(card: Card) -> tuple[int, ...]:
        return _preference(card, alive, pod, one_numa=one_numa)

    for chosen in combinations(sorted(fitting, key=order), request.count):
        if not one_numa or len({card.device.numa for card in chosen}) == 1:
            yield tuple(DeviceRow(card.device.uuid, _memory(card, request), request.cores) for card in chosen)


def _positions(pod: Pod) -> list[int]:
    return [at for at, container in enumerate(pod.containers) if container.request is not None]


def _is_init(pod: Pod, at: int) -> bool:
    return pod.containers[at].kind is ContainerKind.INIT
