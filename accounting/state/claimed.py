"""What DRA claims hold on the cards of nodes, as the arrays have it.

Why it exists: a claim holds cells as a pod does, but has no states, no node count and no quota, and lasts on its own
terms. It must not know single claims beyond their names. Invariants: all claims on one card are one holder; a card that
its node does not register is none of accounting's and has no cell; a row that is laid out anew gets back what is held.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from accounting.holders import CardClaims, Unmapped
from accounting.state.rows import NodeRows
from accounting.status import Problem, ProblemCode

_NOTHING: Mapping[str, CardClaims] = MappingProxyType({})
_NO_ROW: tuple[int, Mapping[str, int]] = (-1, MappingProxyType({}))


class CardChange(NamedTuple):
    """A card of which claims hold something else than before."""

    uuid: str
    frees: bool
    """Claims held something there, and hold less or something else now."""
    turns: bool
    """It is over-committed now and was not, or the other way round."""


class Claimed:
    """By node: what claims hold on its cards, and devices that cannot be told, which block it."""

    def __init__(self, rows: NodeRows, changing: Callable[[str], None], changed: Callable[[], None]) -> None:
        """`changing`: is called with a node before what is held there changes. `changed`: after every change."""
        self._rows = rows
        self._changing = changing
        self._changed = changed
        self._cards: dict[str, dict[str, CardClaims]] = {}  # node -> card UUID
        self._unmapped: dict[str, tuple[Unmapped, ...]] = {}  # node

    # -- asking ---------------------------------------------------------------------------------------------------

    def on(self, node: str) -> Mapping[str, CardClaims]:
        """Return what claims hold on a node, by card UUID, cards that it does not register included."""
        return self._cards.get(node, {})

    def unmapped(self, node: str) -> tuple[Unmapped, ...]:
        """Return the devices that block a node."""
        return self._unmapped.get(node, ())

    def problems(self) -> Iterator[Problem]:
        """Yield the devices that cannot be told."""
        for node, found in self._unmapped.items():
            for claim, device in found:
                message = f"its device {'/'.join(device)} is no card that is known, so node {node} takes no pods"
                yield Problem(ProblemCode.UNMAPPED_DEVICE, f"resourceclaim {claim}", message)

    # -- changing -------------------------------------------------------------------------------------------------

    def put(self, node: str, now: Mapping[str, CardClaims | None]) -> list[CardChange]:
        """Record what claims hold on some cards of a node now, by UUID; returns those of which that is new."""
        # A new mapping, so that dumps keep the old one.
        cards = dict(self._cards.get(node, ()))
        row, positions = self._rows.place(node) if node in self._rows else _NO_ROW
        found: list[CardChange] = []
        for uuid, claims in now.items():
            before = cards.get(uuid)
            if before == claims:
                continue
            if not found:
                self._changing(node)
            found.append(self._exchange(row, positions.get(uuid), uuid, before, claims))
            if claims is None:
                del cards[uuid]
            else:
                cards[uuid] = claims
        if found:
            self._keep(node, cards)
        return found

    def block(self, node: str, unmapped: tuple[Unmapped, ...]) -> bool:
        """Record which devices of a node cannot be told now; returns whether that is new."""
        known = self._unmapped.get(node, ())
        if known == unmapped:
            return False
        self._changing(node)
        self._block(node, bool(unmapped) - bool(known))
        if unmapped:
            self._unmapped[node] = unmapped
        else:
            del self._unmapped[node]
        self._touch(node)
        return True

    def count_row(self, node: str) -> None:
        """Count everything again on a node's row, which has just been laid out."""
        row, positions = self._rows.place(node)
        for uuid, claims in self._cards.get(node, {}).items():
            self._exchange(row, positions.get(uuid), uuid, None, claims)
        self._block(node, int(node in self._unmapped))

    def copy_to(self, other: "Claimed", node: str) -> None:
        """Record what is held on a node in another table too."""
        other.put(node, self._cards.get(node, _NOTHING))
        other.block(node, self._unmapped.get(node, ()))

    def _keep(self, node: str, cards: dict[str, CardClaims]) -> None:
        if cards:
            self._cards[node] = cards
        else:
            del self._cards[node]
        self._touch(node)

    def _exchange(
        self, row: int, position: int | None, uuid: str, before: CardClaims | None, now: CardClaims | None
    ) -> CardChange:
        """Let a card's cell, if it has one, have what is held now in the place of what was held before."""
        used, uses = None if before is None else before.use, None if now is None else now.use
        turns = position is not None and self._rows.table.exchange(position, row, used, uses)
        return CardChange(uuid, used is not None and used != uses, turns)

    def _block(self, node: str, change: int) -> None:
        if change and node in self._rows:
            self._rows.table.requested.node_blocks[self._rows[node]] += change

    def _touch(self, node: str) -> None:
        row = self._rows.get(node)
        if row is not None:
            self._rows.table.touch(row)
        self._changed()
