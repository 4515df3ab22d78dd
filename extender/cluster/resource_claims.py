"""DRA's claims and slices, and the cache that follows from what they hold.

Why it exists: cards that DRA has given away are not free for pods with annotations. It must not know the wire. The
rules are those of `accounting.holders`. Invariants: the cache has what the ledger says, in the same step; devices that
are no known cards block their node only where slices can be seen, since without them nothing could be told.
"""

from accounting.holders import Changes, Claim, ClaimHolding, ClaimLedger, DeviceId, Slice
from accounting.state.cache import Cache
from extender.cluster.events import Events


class ResourceClaims:
    """Claims by UID and slices by name."""

    def __init__(self, cache: Cache, events: Events, *, ignores_unmapped: bool = False) -> None:
        """`ignores_unmapped`: devices of GPU drivers that are no known cards block nothing."""
        self._cache = cache
        self._events = events
        self._ledger = ClaimLedger(cache.card_size)
        self._ignores_unmapped = ignores_unmapped
        self._slices_known = False
        self._given: dict[tuple[str, str], str] = {}  # UID of a pod, name of the claim made for it -> UID of the claim
        self._given_by: dict[str, tuple[str, str]] = {}  # the same by UID of the claim

    # -- asking ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many claims have devices of GPU drivers."""
        return len(self._ledger)

    def uids(self) -> set[str]:
        """Return the UIDs of the claims that have devices of GPU drivers."""
        return self._ledger.uids()

    def slice_names(self) -> set[str]:
        """Return the names of the slices of GPU drivers."""
        return self._ledger.devices.names()

    def held(self) -> list[tuple[Claim, ClaimHolding]]:
        """Return the claims with what they hold, in no order."""
        return self._ledger.claims()

    def claim(self, uid: str) -> Claim | None:
        """Return a claim with devices of GPU drivers."""
        return self._ledger.claim(uid)

    def slice(self, name: str) -> Slice | None:
        """Return a slice of a GPU driver."""
        return self._ledger.devices.slice(name)

    def is_given(self, name: str, owner: str) -> bool:
        """Whether a claim of that name was made for a pod, by UID, and has been given devices."""
        return (owner, name) in self._given

    def has_devices(self, node: str) -> bool:
        """Whether slices of GPU drivers name devices that may be on a node."""
        return self._ledger.devices.is_on(node)

    def devices_of(self, node: str, uuid: str) -> list[DeviceId]:
        """Return the devices of slices on a node that are a card or a part of it, sorted."""
        return self._ledger.devices.devices_on(node, uuid)

    def pools_on(self, node: str) -> set[str]:
        """Return the pools whose slices name a node."""
        return self._ledger.devices.pools_on(node)

    # -- changing -------------------------------------------------------------------------------------------------

    def put(self, claim: Claim) -> None:
        """Record a claim as it is now."""
        self._note_owner(claim)
        self._take(self._ledger.put(claim))

    def remove(self, uid: str) -> None:
        """Record that a claim is gone."""
        self._end_given(uid)
        self._take(self._ledger.remove(uid))

    def put_slice(self, new: Slice) -> None:
        """Record a slice as it is now."""
        before = self._ledger.devices.nodes_of(new.pool)
        self._take(self._ledger.put_slice(new))
        self._tell_devices(before | self._ledger.devices.nodes_of(new.pool))

    def remove_slice(self, name: str) -> None:
        """Record that a slice is gone."""
        before = self._ledger.devices.nodes_of(self._ledger.devices.pool_of(name))
        self._take(self._ledger.remove_slice(name))
        self._tell_devices(before)

    def know_slices(self) -> None:
        """Note that all slices were told of: what is no known card now is none."""
        if not self._slices_known:
            self._slices_known = True
            self._take(Changes(nodes=self._ledger.nodes_with_unmapped()))

    def count_again(self, node: str) -> None:
        """Record that a node's cards have changed."""
        self._take(self._ledger.count_again(node))

    def _tell_devices(self, nodes: set[str]) -> None:
        for node in sorted(nodes):
            self._events.devices_changed.publish(node)

    def _note_owner(self, claim: Claim) -> None:
        if not claim.owner:
            return
        if not claim.results:
            self._end_given(claim.uid)
        elif claim.uid not in self._given_by:
            place = self._given_by[claim.uid] = claim.owner, claim.name
            self._given[place] = claim.uid
            self._events.claim_given.publish(claim.owner)

    def _end_given(self, uid: str) -> None:
        place = self._given_by.pop(uid, None)
        if place is not None and self._given.get(place) == uid:
            del self._given[place]

    def _take(self, changes: Changes) -> None:
        """Let the cache have what has changed, and tell who listens."""
        claimed, freed = self._cache.claimed, set[str]()
        for node, uuids in sorted(changes.cards.items()) if changes.cards else ():
            for each in claimed.put(node, {uuid: self._ledger.on_card(node, uuid) for uuid in sorted(uuids)}):
                if each.frees:
                    freed.add(node)
                if each.turns:
                    self._events.card_changed.publish(node, each.uuid)
        for node in sorted(changes.nodes) if changes.nodes else ():
            blocks = self._slices_known and not self._ignores_unmapped
            if claimed.block(node, self._ledger.unmapped(node) if blocks else ()):
                freed.add(node)
        for node in sorted(freed):
            self._events.freed.publish(node)
