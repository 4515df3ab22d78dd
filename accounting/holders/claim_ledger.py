"""What all DRA claims hold, card by card, kept up event by event.

Why it exists: claims, slices and nodes change in any order, and each change must cost what it concerns and no more. It
must not know pods or arrays. Invariants: what a claim holds is always `held_by_claim` of the claim, the slices and the
nodes' cards as they are now; a claim counts once, by its UID, whatever the order of events was.
"""

from collections.abc import Iterable
from typing import NamedTuple

from accounting.holders.claims import Claim, ClaimedCard, ClaimHolding, Totals, held_by_claim
from accounting.holders.dra_devices import GPU_DRIVERS, DeviceId, DeviceTable, Slice
from accounting.holdings import DeviceUse


class CardClaims(NamedTuple):
    """What all claims together hold on one card. They count as one holder, which is exclusive if any closes it."""

    use: DeviceUse
    holders: tuple[tuple[str, DeviceUse], ...]
    """Each claim's namespace/name and what it holds, sorted."""


class Unmapped(NamedTuple):
    """A device of a GPU driver that a claim has, and that is no known card."""

    claim: str
    """namespace/name."""
    device: DeviceId


class Changes(NamedTuple):
    """What a change of claims, slices or cards has changed."""

    cards: frozenset[tuple[str, str]] = frozenset()
    """(node, card UUID) on which something else is held than before."""
    nodes: frozenset[str] = frozenset()
    """Nodes on which other devices are unmapped than before."""


class ClaimLedger:
    """Claims by UID, and the devices of slices."""

    def __init__(self, totals: Totals) -> None:
        """`totals`: what the cards of nodes register; `count_again` says that a node's have changed."""
        self.devices = DeviceTable()
        self._totals = totals
        self._claims: dict[str, Claim] = {}
        self._holdings: dict[str, ClaimHolding] = {}
        self._of_pool: dict[str, set[str]] = {}  # pool name -> UIDs of the claims with a device in it
        self._on: dict[str, dict[str, dict[str, ClaimedCard]]] = {}  # node -> card UUID -> claim UID
        self._unmapped: dict[str, dict[str, tuple[DeviceId, ...]]] = {}  # node -> claim UID

    # -- asking ---------------------------------------------------------------------------------------------------

    def uids(self) -> set[str]:
        """Return the UIDs of the claims that have devices of GPU drivers."""
        return set(self._claims)

    def claims(self) -> list[tuple[Claim, ClaimHolding]]:
        """Return the claims with what they hold, in no order."""
        return [(claim, self._holdings[uid]) for uid, claim in self._claims.items()]

    def claim(self, uid: str) -> Claim | None:
        """Return a claim with devices of GPU drivers."""
        return self._claims.get(uid)

    def __len__(self) -> int:
        """How many claims have devices of GPU drivers."""
        return len(self._claims)

    def on_card(self, node: str, uuid: str) -> CardClaims | None:
        """Return what claims hold on a card; None if nothing."""
        held = self._on.get(node, {}).get(uuid)
        if not held:
            return None
        holders = [(self._claims[uid].key, each.use) for uid, each in held.items()]
        return CardClaims(_summed(uuid, list(held.values())), tuple(sorted(holders)))

    def unmapped(self, node: str) -> tuple[Unmapped, ...]:
        """Return the devices of a node that are no known cards, sorted."""
        found = self._unmapped.get(node, {})
        return tuple(sorted(Unmapped(self._claims[uid].key, device) for uid, own in found.items() for device in own))

    def nodes_with_unmapped(self) -> frozenset[str]:
        """Return the nodes that have any."""
        return frozenset(self._unmapped)

    # -- changing -------------------------------------------------------------------------------------------------

    def put(self, claim: Claim) -> Changes:
        """Record a claim as it is now."""
        known = self._claims.get(claim.uid)
        if known == claim:
            return Changes()
        pools = {each.device.pool for each in claim.results if each.device.driver in GPU_DRIVERS}
        before = Changes() if known is None else self._drop(known)
        if not pools:
            self._forget_gone(known)
            return before
        self._claims[claim.uid] = claim
        for pool in pools:
            self._of_pool.setdefault(pool, set()).add(claim.uid)
        after = self._count(claim)
        self._forget_gone(known)
        return _both(before, after)

    def remove(self, uid: str) -> Changes:
        """Record that a claim is gone."""
        known = self._claims.get(uid)
        if known is None:
            return Changes()
        changes = self._drop(known)
        self._forget_gone(known)
        return changes

    def put_slice(self, new: Slice) -> Changes:
        """Record a slice as it is now."""
        return self._pools_changed(self.devices.put(new))

    def remove_slice(self, name: str) -> Changes:
        """Record that a slice is gone."""
        return self._pools_changed(self.devices.remove(name))

    def count_again(self, node: str) -> Changes:
        """Record that a node's cards have changed."""
        uids = {uid for held in self._on.get(node, {}).values() for uid in held}
        return self._count_again(uids | self._unmapped.get(node, {}).keys())

    # -- counting -------------------------------------------------------------------------------------------------

    def _pools_changed(self, pools: Iterable[str]) -> Changes:
        changes = Changes()
        for pool in pools:
            uids = self._of_pool.get(pool)
            if uids is None:
                self.devices.forget_gone(pool)
            else:
                changes = _both(changes, self._count_again(uids))
        return changes

    def _count_again(self, uids: Iterable[str]) -> Changes:
        changes = Changes()
        for uid in sorted(uids):
            claim = self._claims[uid]
            if held_by_claim(claim, self.devices, self._totals) != self._holdings[uid]:
                changes = _both(changes, _both(self._uncount(claim), self._count(claim)))
        return changes

    def _count(self, claim: Claim) -> Changes:
        holding = self._holdings[claim.uid] = held_by_claim(claim, self.devices, self._totals)
        for node, use, closed in holding.cards:
            self._on.setdefault(node, {}).setdefault(use.uuid, {})[claim.uid] = ClaimedCard(node, use, closed)
        for node, device in holding.unmapped:
            own = self._unmapped.setdefault(node, {})
            own[claim.uid] = (*own.get(claim.uid, ()), device)
        return _changes(holding)

    def _uncount(self, claim: Claim) -> Changes:
        holding = self._holdings.pop(claim.uid)
        for node, use, _ in holding.cards:
            cards = self._on[node]
            del cards[use.uuid][claim.uid]
            if not cards[use.uuid]:
                del cards[use.uuid]
            if not cards:
                del self._on[node]
        for node in {node for node, _ in holding.unmapped}:
            del self._unmapped[node][claim.uid]
            if not self._unmapped[node]:
                del self._unmapped[node]
        return _changes(holding)

    def _drop(self, claim: Claim) -> Changes:
        changes = self._uncount(claim)
        del self._claims[claim.uid]
        for pool in {each.device.pool for each in claim.results} & self._of_pool.keys():
            self._of_pool[pool].discard(claim.uid)
            if not self._of_pool[pool]:
                del self._of_pool[pool]
        return changes

    def _forget_gone(self, claim: Claim | None) -> None:
        """Forget devices that are gone, of the pools that a claim referred to and now no claim does."""
        for pool in {each.device.pool for each in claim.results} if claim is not None else ():
            if pool not in self._of_pool:
                self.devices.forget_gone(pool)


def _summed(uuid: str, held: list[ClaimedCard]) -> DeviceUse:
    """Return what several claims hold on one card. Claims may share it, or have parts of it in MIG mode, not both."""
    if len(held) == 1 and held[0].closed is held[0].use.exclusive:
        return held[0].use
    closed = any(each.closed for each in held)
    whole = any(each.use.exclusive for each in held)
    mixed = closed and not all(each.closed for each in held)
    return DeviceUse(
        uuid,
        sum(each.use.slots for each in held),
        sum(each.use.memory for each in held),
        sum(each.use.cores for each in held),
        exclusive=closed,
        crowded=mixed or (whole and len(held) > 1) or any(each.use.crowded for each in held),
    )


def _changes(holding: ClaimHolding) -> Changes:
    return Changes(
        frozenset((node, use.uuid) for node, use, _ in holding.cards),
        frozenset(node for node, _ in holding.unmapped),
    )


def _both(one: Changes, other: Changes) -> Changes:
    return Changes(one.cards | other.cards, one.nodes | other.nodes)
