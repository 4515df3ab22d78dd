"""Claims: the nodes and cards that pods which passed filter will probably take.

Why it exists: kube-scheduler filters the next pod before the last one is bound, and all members of a gang before the
first bind, so the cards that they will take still look free. It must not refuse anything. Invariants: a claim is a
hint: other pods rank its node behind others, and choose other cards there if they can; a pod has at most one claim; an
equal claim changes nothing.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accounting.answers.allocate import Placement, allocate, allocate_in
from accounting.answers.filter import feasible_on
from accounting.demand import Demand
from accounting.holdings import DeviceUse, requested_total
from accounting.pod import Pod
from accounting.quota import Budget
from accounting.state import BoolArray, Snapshot, View
from accounting.state.cache import Cache

#: A claim that has not ended after this time is forgotten: the scheduler chose another node, or gave up.
MAX_AGE_SECONDS = 2.0
#: The number of pods and nodes whose last result is remembered.
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pod would hold on the node where it will probably go."""

    node: str
    uses: tuple[DeviceUse, ...]
    count: int
    """The number of the first vendor's cards, at the peak."""
    further_counts: tuple[tuple[str, int], ...] = ()
    """(vendor key, count) of all other vendors' cards."""


class Claims:
    """The claims of all pods, oldest first. Time is the caller's, in seconds of any steady clock."""

    def __init__(self, max_age_seconds: float = MAX_AGE_SECONDS) -> None:
        self.max_age_seconds = max_age_seconds
        self._claims: OrderedDict[str, tuple[float, Claim]] = OrderedDict()  # pod UID -> when made, claim
        self.version = 0
        self.placed: OrderedDict[PlacementKey, Placement | None] = OrderedDict()
        """The cards chosen last, remembered by the exact question; they are not claims."""

    def __len__(self) -> int:
        return len(self._claims)

    def node_of(self, uid: str) -> str | None:
        """Return the node that a pod's claim names; None if it has no claim."""
        known = self._claims.get(uid)
        return None if known is None else known[1].node

    def get(self, uid: str) -> Claim | None:
        """Return a pod's claim."""
        known = self._claims.get(uid)
        return None if known is None else known[1]

    def put(self, uid: str, claim: Claim, now: float) -> None:
        """Make or replace a pod's claim."""
        known = self._claims.pop(uid, None)
        self._claims[uid] = (now, claim)
        self.version += known is None or known[1] != claim

    def drop(self, uid: str) -> bool:
        """End the claim of a pod that was bound, filtered again, refused or deleted. Returns whether it had one."""
        dropped = self._claims.pop(uid, None) is not None
        self.version += dropped
        return dropped

    def expire(self, now: float) -> list[str]:
        """End claims that are too old; returns the UIDs of their pods, oldest first."""
        ended: list[str] = []
        while self._claims:
            uid, (made, _) = next(iter(self._claims.items()))
            if now - made <= self.max_age_seconds:
                break
            self.drop(uid)
            ended.append(uid)
        return ended

    def by_node(self, cache: Cache, without_uid: str) -> dict[str, list[Claim]]:
        """Return the other pods' claims by node; claims of pods that are already booked are left out."""
        nodes: dict[str, list[Claim]] = {}
        for uid, (_, claim) in self._claims.items():
            if uid != without_uid and cache.state(uid) is None:
                nodes.setdefault(claim.node, []).append(claim)
        return nodes


def crowded_rows(cache: Cache, snapshot: Snapshot, pod: Pod, claims: Claims) -> BoolArray | None:
    """Return (row,): the nodes where the pod would not fit beside what others claim; None if there are no claims."""
    claimed = {node: found for node, found in claims.by_node(cache, pod.uid).items() if node in snapshot.rows}
    if not claimed:
        return None
    rows = np.array([snapshot.rows[node] for node in claimed])
    view = snapshot.take(rows)
    for column, (node, found) in enumerate(claimed.items()):
        for claim in found:
            hold_claim(view, column, cache.positions(node), claim, snapshot.vendors)
    crowded = np.zeros(snapshot.columns, np.bool_)
    crowded[rows] = ~feasible_on(view.refreshed(), pod, snapshot)
    return crowded


def claim_on(
    cache: Cache, snapshot: Snapshot, pod: Pod, node: str, claims: Claims, budget: Budget | None = None
) -> Claim | None:
    """Return what the pod would hold on a node beside what others claim there.

    If it does not fit beside them, what it would hold without them; None if it does not fit at all. `budget`: as for
    `allocate`.
    """
    row = snapshot.rows.get(node)
    if row is None:
        return None
    uuids = {position: uuid for uuid, position in cache.positions(node).items()}
    beside = place_beside(cache, snapshot, pod, node, claims, budget)
    placement = beside or allocate(snapshot, pod, row, uuids, budget)
    return None if placement is None else claim_of(pod, node, placement, snapshot)


def claim_of(pod: Pod, node: str, placement: Placement, snapshot: Snapshot) -> Claim:
    """Return what a pod with these cards would hold on a node."""
    counts = {part.selection.vendor: requested_total(part.containers)[0].count for part in Demand.of(pod).parts}
    count = counts.pop(next(iter(snapshot.vendors)), 0)
    return Claim(node, placement.peak, count, tuple(sorted(counts.items())))


def place_beside(
    cache: Cache, snapshot: Snapshot, pod: Pod, node: str, claims: Claims, budget: Budget | None = None
) -> Placement | None:
    """Return the pod's cards on a node such that the others' claims there keep their room; None if that is impossible.

    The result is remembered while nothing on the node changes, so bind books the cards that prioritize claimed.
    """
    row = snapshot.rows.get(node)
    if row is None:
        return None
    others = claims.by_node(cache, pod.uid).get(node, [])
    key = PlacementKey(cache, node, int(snapshot.stamps[row]), Demand.of(pod), tuple(others), budget, snapshot.kept)
    if key in claims.placed:
        return claims.placed[key]
    placement = _place_beside(cache, snapshot, pod, node, others, budget)
    claims.placed[key] = placement
    if len(claims.placed) > _REMEMBERED:
        claims.placed.popitem(last=False)
    return placement


class PlacementKey(NamedTuple):
    """Everything that decides a pod's cards on a node; equal keys give equal cards."""

    cache: Cache
    node: str
    stamp: int
    """The row's stamp. No stamp of the cache is used twice, so it stands for the node and all that is on it."""
    demand: Demand
    others: tuple[Claim, ...]
    """What other pods claim on the node."""
    budget: Budget | None
    kept: Hashable
    """The room that is kept there for nominated pods, which the stamp does not cover."""


def _place_beside(
    cache: Cache, snapshot: Snapshot, pod: Pod, node: str, others: Sequence[Claim], budget: Budget | None
) -> Placement | None:
    positions = cache.positions(node)
    view = snapshot.take(np.array([snapshot.rows[node]]))
    if others:
        for claim in others:
            hold_claim(view, 0, positions, claim, snapshot.vendors)
        view = view.refreshed()
    uuids = {position: uuid for uuid, position in positions.items()}
    return allocate_in(view, pod, snapshot, uuids, budget)


def hold_claim(view: View, column: int, positions: Mapping[str, int], claim: Claim, vendors: Mapping[str, int]) -> None:
    """Add what a claim names; see `hold`."""
    for vendor, count in claim.further_counts:
        view.count_of(vendors[vendor])[column] += count
    hold(view, column, positions, claim.uses, claim.count)


def hold(view: View, column: int, positions: Mapping[str, int], uses: tuple[DeviceUse, ...], count: int) -> None:
    """Add what a pod would hold to the requested amounts of a view's column; the caller must refresh the view."""
    requested = view.requested
    requested.count[column] += count
    for uuid, slots, memory, cores, exclusive, crowded in uses:
        position = positions.get(uuid)
        if position is None:
            continue
        cell = position, column
        requested.slots[cell] += slots
        requested.memory[cell] += memory
        requested.cores[cell] += cores
        requested.exclusive[cell] += exclusive
        requested.holders[cell] += 1 + crowded
