"""What DRA claims hold on the cards of nodes, as the arrays have it.

Why it exists: a claim holds cells as a pod does, but has no states, no node count and no quota, and lasts on its own
terms. It must not know single claims beyond their names. Invariants: all claims on one card are one holder; a card that
its node does not register is none of accounting's and has no cell; a row that is laid out anew gets back what is held.
"""

from collections.abc import Callable, Iterator, Mapping

from accounting.holders import CardClaims, Unmapped
from accounting.state.rows import NodeRows
from accounting.status import Problem, ProblemCode


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

    def put(self, node: str, uuid: str, claims: CardClaims | None) -> bool:
        """Record what claims hold on a card now; returns whether that is new."""
        cards = self._cards.get(node, {})
        known = cards.get(uuid)
        if known == claims:
            return False
        self._changing(node)
        self._add(node, uuid, known, -1)
        self._add(node, uuid, claims, 1)
        # A new mapping, so that dumps keep the old one.
        changed = {key: each for key, each in cards.items() if key != uuid}
        if claims is not None:
            changed[uuid] = claims
        if changed:
            self._cards[node] = changed
        else:
            del self._cards[node]
        self._touch(node)
        return True

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
        for uuid, claims in self._cards.get(node, {}).items():
            self._add(node, uuid, claims, 1)
        self._block(node, int(node in self._unmapped))

    def copy_to(self, other: "Claimed", node: str) -> None:
        """Record what is held on a node in another table too."""
        for uuid, claims in self._cards.get(node, {}).items():
            other.put(node, uuid, claims)
        other.block(node, self._unmapped.get(node, ()))

    def _add(self, node: str, uuid: str, claims: CardClaims | None, sign: int) -> None:
        if claims is None or node not in self._rows:
            return
        row, positions = self._rows.place(node)
        position = positions.get(uuid)
        if position is not None:
            self._rows.table.add(position, row, claims.use, sign)

    def _block(self, node: str, change: int) -> None:
        if change and node in self._rows:
            self._rows.table.requested.node_blocks[self._rows[node]] += change

    def _touch(self, node: str) -> None:
        row = self._rows.get(node)
        if row is not None:
            self._rows.table.touch(row)
        self._changed()
