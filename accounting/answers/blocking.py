"""The pods that are in the way of a pod on one node.

Why it exists: people on call decide what to move, and need a set of pods that is enough and has none too many. It must
not consider priorities or disruption budgets, as preemption does. Invariants: with these pods gone the pod fits, and
with any one of them back it does not; the same state gives the same set.
"""

from accounting.answers.allocate import Placement
from accounting.answers.explain import explain_node
from accounting.pod import Pod
from accounting.pod_record import PodRecord
from accounting.quota import UNLIMITED, QuotaCheck
from accounting.state.cache import Cache


def pods_in_the_way(cache: Cache, pod: Pod, node: str, quota: QuotaCheck = UNLIMITED) -> list[PodRecord] | None:
    """Return a few pods whose end would make room, chosen greedily, large ones first; None if there are none.

    The pod's own booking does not count. At most log2(n) + n fits for n pods that hold cards there.
    """
    own = {pod.uid} & cache.pods.keys()
    holders = [each for each in cache.pods_on(node) if each.uid not in own and (each.held or each.blocks is not None)]
    holders.sort(key=lambda each: (-sum(use.memory for use in each.held), each.key, each.uid))

    def fits_without(gone: list[PodRecord]) -> bool:
        alone = _without(cache, node, own | {each.uid for each in gone})
        snapshot = alone.snapshot()
        return isinstance(explain_node(snapshot, pod, node, alone.positions(node), quota=quota), Placement)

    if not holders or not fits_without(holders):
        return None
    low, high = 0, len(holders)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits_without(holders[:middle]) else (middle + 1, high)
    chosen = holders[:high]
    for each in list(chosen):
        rest = [other for other in chosen if other is not each]
        if fits_without(rest):
            chosen = rest
    return chosen


def _without(cache: Cache, node: str, uids: set[str]) -> Cache:
    """Return a cache with only this node, without some of its pods."""
    here = [each.uid for each in cache.pods_on(node)]
    first = next((uid for uid in here if uid in uids), None)
    if first is None:
        return cache
    alone = cache.node_without(first)
    for uid in here:
        if uid in uids and uid != first:
            alone.remove_pod(uid)
    return alone
