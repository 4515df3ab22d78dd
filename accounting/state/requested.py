"""What the records of pods add up to: on cards, on nodes and in namespaces.

Why it exists: an event costs microseconds because sums are updated, never recomputed. What a record adds is added once
and subtracted once. It must not know which records there are. Invariant: adding a record and subtracting it again
leaves every sum as it was, whatever happened in between.
"""

from collections.abc import Iterable, Mapping

from accounting.holdings import Total
from accounting.node import Node
from accounting.pod_record import PodRecord
from accounting.quota_scope import PodScope, Selector
from accounting.state.rows import NodeRows
from accounting.state.slices import SliceTable
from accounting.state.usage import NamespaceSums, charge_names


class Requested:
    """Sums over records that are on nodes with a row."""

    def __init__(self, rows: NodeRows, nodes: Mapping[str, Node]) -> None:
        """`nodes`: the node objects by name, as they are laid out."""
        self._rows = rows
        self._table = rows.table
        self._nodes = nodes
        self._namespaces = NamespaceSums()
        self._names = [charge_names(number) for number in range(len(rows.vendors))]
        self._orphans: dict[str, dict[str, int]] = {}  # node name -> UUID of a card it does not register -> holders
        self.slices = SliceTable()

    # -- asking ---------------------------------------------------------------------------------------------------

    def total(self, namespace: str, selector: Selector, vendor: int) -> Total:
        """Return what a namespace's pods that a selector takes are charged for a vendor's cards, by its number."""
        sums = self._namespaces.of(namespace, selector)
        return Total(*(sums.get(name, 0) for name in charge_names(vendor)))

    def charges(self, namespace: str) -> Mapping[tuple[PodScope, str], int]:
        """Return everything that the namespace's pods are charged, of all vendors, by pod scope and name."""
        return self._namespaces.by_scope(namespace)

    def namespaces(self) -> list[str]:
        """Return the namespaces that are charged, sorted."""
        return self._namespaces.namespaces()

    def orphans(self) -> int:
        """Return how many cards pods hold that their nodes do not register."""
        return sum(map(len, self._orphans.values()))

    # -- changing -------------------------------------------------------------------------------------------------

    def count(self, record: PodRecord, sign: int) -> None:
        """Add a record's numbers to its node and namespace, or take them away."""
        self.charge(record, sign)
        node, table = str(record.node), self._table
        row, positions = self._rows.place(node)
        if record.several:
            for vendor, peak, _ in record.several:
                table.add_count(row, self._rows.vendors[vendor], sign * peak.count)
        else:
            table.add_count(row, self._rows.vendors[record.vendor], sign * record.total_peak.count)
        table.add_cpu(row, sign * record.cpu_milli)
        if self._rows.has_mig:
            self._count_slices(positions, row, record, sign)
        for use in record.held:
            position = positions.get(use[0])
            if position is None:
                self._count_orphan(node, use[0], sign)
            else:
                table.add(position, row, use, sign)
        if record.blocks is not None:
            self._block(positions, row, record.blocks, sign)

    def charge(self, record: PodRecord, sign: int) -> None:
        """Add what a namespace is charged for a record now, or take it away."""
        if record.several:
            charged = self._charge(record)
        else:
            charged = zip(self._names[self._rows.vendors[record.vendor]], record.held_total, strict=True)
        (self._namespaces.add if sign > 0 else self._namespaces.take)(record.namespace, record.scope, charged)

    def leave_node(self, node: str, pods: Mapping[str, PodRecord]) -> None:
        """Subtract a node's pods, by UID, from every sum outside its row. The caller empties the row."""
        for record in pods.values():
            self.charge(record, -1)
        self.slices.clear(node, pods)
        self._orphans.pop(node, None)

    def _charge(self, record: PodRecord) -> Iterable[tuple[str, int]]:
        """Return what a pod with cards of several vendors is charged."""
        vendors = self._rows.vendors
        return [
            pair
            for vendor, total in record.held_totals
            for pair in zip(self._names[vendors[vendor]], total, strict=True)
        ]

    def _count_slices(self, positions: Mapping[str, int], row: int, record: PodRecord, sign: int) -> None:
        """Count the instances of a pod on cards in MIG mode.

        The plugin creates all of them when the kubelet admits the pod, so all of them stay until it ends, those of
        inits too.
        """
        node = str(record.node)
        for use in record.peak:
            position = positions.get(use.uuid)
            layout = () if position is None else self._nodes[node].devices[position].layout
            if position is not None and layout:
                bits = self.slices.count(node, layout, use.uuid, record, sign)
                self._table.requested.slices[position, row] = bits
                self._table.refresh(position, row)

    def _count_orphan(self, node: str, uuid: str, sign: int) -> None:
        """Count the holders of a card that has no cell. `report` takes the amounts from the records.

        An annotation can name any number of cards that do not exist. They must not make the arrays grow.
        """
        orphans = self._orphans.setdefault(node, {})
        orphans[uuid] = orphans.get(uuid, 0) + sign
        if not orphans[uuid]:
            del orphans[uuid]
        if not orphans:
            del self._orphans[node]

    def _block(self, positions: Mapping[str, int], row: int, uuids: tuple[str, ...], sign: int) -> None:
        named = [positions[uuid] for uuid in uuids if uuid in positions]
        for position in named:
            self._table.requested.blocks[position, row] += sign
            self._table.refresh(position, row)
        if not named:
            self._table.requested.node_blocks[row] += sign
