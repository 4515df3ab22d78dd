"""What all DRA claims hold, card by card, kept up event by event.

Why it exists: claims, slices and nodes change in any order, and each change must cost what it concerns and no more. It
must not know pods or arrays. Invariants: what a claim holds is always `held_by_claim` of the claim, the slices and the
nodes' cards as they are now; a claim counts once, by its UID, whatever the order of events was.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
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

    cards: Mapping[str, AbstractSet[str]] = MappingProxyType({})
    """By node the cards, by UUID, on which something else is held than before."""
    nodes: AbstractSet[str] = frozenset()
    """Nodes on which other devices are unmapped than before."""


NO_CHANGES = Changes()


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
        holders.sort()
        return CardClaims(_summed(uuid, held.values()), tuple(holders))

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
            return NO_CHANGES
        pools, before = _gpu_pools(claim), set[str]()
        if known is None and not pools:
            return NO_CHANGES
        cards, nodes = dict[str, set[str]](), set[str]()
        if known is not None:
            self._uncount(known, cards, nodes)
            before = _gpu_pools(known)
        if pools:
            self._claims[claim.uid] = claim
            for pool in pools - before:
                self._of_pool.setdefault(pool, set()).add(claim.uid)
            self._count(claim, cards, nodes)
        else:
            del self._claims[claim.uid]
        self._leave(claim.uid, before - pools)
        return Changes(cards, nodes)

    def remove(self, uid: str) -> Changes:
        """Record that a claim is gone."""
        known = self._claims.pop(uid, None)
        if known is None:
            return NO_CHANGES
        cards, nodes = dict[str, set[str]](), set[str]()
        self._uncount(known, cards, nodes)
        self._leave(uid, _gpu_pools(known))
        return Changes(cards, nodes)

    def put_slice(self, new: Slice) -> Changes:
        """Record a slice as it is now."""
        return self._pools_changed(self.devices.put(new))

    def remove_slice(self, name: str) -> Changes:
        """Record that a slice is gone."""
        return self._pools_changed(self.devices.remove(name))

    def count_again(self, node: str) -> Changes:
        """Record that a node's cards have changed."""
        uids = {uid for held in self._on.get(node, {}).values() for uid in held}
        cards, nodes = dict[str, set[str]](), set[str]()
        self._count_again(uids | self._unmapped.get(node, {}).keys(), cards, nodes)
        return Changes(cards, nodes)

    # -- counting -------------------------------------------------------------------------------------------------

    def _pools_changed(self, pools: Iterable[str]) -> Changes:
        cards, nodes = dict[str, set[str]](), set[str]()
        for pool in pools:
            uids = self._of_pool.get(pool)
            if uids is None:
                self.devices.forget_gone(pool)
            else:
                self._count_again(uids, cards, nodes)
        return Changes(cards, nodes)

    def _count_again(self, uids: Iterable[str], cards: dict[str, set[str]], nodes: set[str]) -> None:
        for uid in sorted(uids):
            claim = self._claims[uid]
            if held_by_claim(claim, self.devices, self._totals) != self._holdings[uid]:
                self._uncount(claim, cards, nodes)
                self._count(claim, cards, nodes)

    def _count(self, claim: Claim, cards: dict[str, set[str]], nodes: set[str]) -> None:
        holding = self._holdings[claim.uid] = held_by_claim(claim, self.devices, self._totals)
        for card in holding.cards:
            node, uuid = card.node, card.use.uuid
            self._on.setdefault(node, {}).setdefault(uuid, {})[claim.uid] = card
            cards.setdefault(node, set()).add(uuid)
        for node, device in holding.unmapped:
            own = self._unmapped.setdefault(node, {})
            own[claim.uid] = (*own.get(claim.uid, ()), device)
            nodes.add(node)

    def _uncount(self, claim: Claim, cards: dict[str, set[str]], nodes: set[str]) -> None:
        holding = self._holdings.pop(claim.uid)
        for node, use, _ in holding.cards:
            on_node = self._on[node]
            held = on_node[use.uuid]
            del held[claim.uid]
            if not held:
                del on_node[use.uuid]
                if not on_node:
                    del self._on[node]
            cards.setdefault(node, set()).add(use.uuid)
        for node in {node for node, _ in holding.unmapped} if holding.unmapped else ():
            del self._unmapped[node][claim.uid]
            if not self._unmapped[node]:
                del self._unmapped[node]
            nodes.add(node)

    def _leave(self, uid: str, pools: set[str]) -> None:
        """Record that a claim refers to these pools no more. Where none does, devices that are gone are forgotten."""
        for pool in pools:
            uids = self._of_pool[pool]
            uids.discard(uid)
            if not uids:
                del self._of_pool[pool]
                self.devices.forget_gone(pool)


def _summed(uuid: str, held: Collection[ClaimedCard]) -> DeviceUse:
    """Return what several claims hold on one card. Claims may share it, or have parts of it in MIG mode, not both."""
    slots = memory = cores = closing = 0
    whole = crowded = False
    for _, use, closed in held:
        if closed is use.exclusive and len(held) == 1:
            return use
        slots, memory, cores, closing = slots + use.slots, memory + use.memory, cores + use.cores, closing + closed
        whole, crowded = whole or use.exclusive, crowded or use.crowded
    mixed = 0 < closing < len(held)
    crowded = crowded or mixed or (whole and len(held) > 1)
    return DeviceUse(uuid, slots, memory, cores, exclusive=closing > 0, crowded=crowded)


def _gpu_pools(claim: Claim) -> set[str]:
    return {device.pool for device, *_ in claim.results if device.driver in GPU_DRIVERS}
