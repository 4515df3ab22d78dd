"""The device table: the arrays, and the operations on single cells of them.

Why it exists: an event changes one or two cells, and must not cost an operation on a whole array. It must not know
pods or names. Invariants: `load` and `usable` of a cell are functions of its other numbers, refreshed whenever one of
them changes; no row has the same stamp twice.
"""

from typing import NamedTuple

import numpy as np

from accounting.state.tables import MAX_LOAD, Int64Array, NodeArrays, RequestedArrays, card_load

Use = tuple[str, int, int, int, bool, bool]
"""A `holdings.DeviceUse`."""


class _Views(NamedTuple):
    """Views of the arrays' memory. Reading or writing one number through them takes half the time."""

    slots: "memoryview[int]"
    memory: "memoryview[int]"
    cores: "memoryview[int]"
    exclusive: "memoryview[int]"
    holders: "memoryview[int]"
    blocks: "memoryview[int]"
    slices: "memoryview[int]"
    load: "memoryview[int]"
    usable: "memoryview[int]"
    node_slots: "memoryview[int]"
    node_memory: "memoryview[int]"
    node_cores: "memoryview[int]"
    open: "memoryview[int]"
    counts: "memoryview[int]"
    cpu_milli: "memoryview[int]"
    stamps: "memoryview[int]"

    @classmethod
    def of(cls, nodes: NodeArrays, requested: RequestedArrays, stamps: Int64Array) -> "_Views":
        held = ("slots", "memory", "cores", "exclusive", "holders", "blocks", "slices", "load", "usable")
        said = ("slots", "memory", "cores", "open")
        arrays = [getattr(requested, name) for name in held] + [getattr(nodes, name) for name in said]
        arrays += [requested.count, requested.cpu_milli, stamps]
        return cls(*(array.data for array in arrays))


class DeviceTable:
    """The arrays, and the operations on one cell that keep `load` and `usable` up to date."""

    def __init__(self, vendors: int = 1) -> None:
        self.devices, self.rows = 8, 64
        self.nodes = NodeArrays.zeros(self.devices, self.rows, vendors)
        self.requested = RequestedArrays.zeros(self.devices, self.rows, vendors)
        self.stamps = np.zeros(self.rows, np.int64)
        """(row,) Numbers of which no two are alike: what was worked out for a row holds while its number stays."""
        self._stamp = 0
        self._views = _Views.of(self.nodes, self.requested, self.stamps)
        self._shared = False

    def share_nodes(self) -> NodeArrays:
        """Return the node arrays for a snapshot; they are copied before they change again."""
        self._shared = True
        return self.nodes

    def own_nodes(self) -> NodeArrays:
        """Return the node arrays for writing."""
        if self._shared:
            self.nodes = self.nodes.copy()
            self._views = _Views.of(self.nodes, self.requested, self.stamps)
            self._shared = False
        return self.nodes

    def reserve(self, devices: int, rows: int) -> None:
        """Make room for at least that many device positions and rows."""
        if devices <= self.devices and rows <= self.rows:
            return
        self.devices = max(self.devices, devices)
        # By a quarter: every snapshot copies the arrays, so spare rows cost time and memory.
        self.rows = self.rows if rows <= self.rows else max(rows, self.rows + self.rows // 4)
        self.nodes = self.nodes.grown(self.devices, self.rows)
        self.requested = self.requested.grown(self.devices, self.rows)
        self.stamps = np.pad(self.stamps, (0, self.rows - len(self.stamps)))
        self._views = _Views.of(self.nodes, self.requested, self.stamps)
        self._shared = False

    def clear_row(self, row: int) -> None:
        """Empty a row: its cards, and everything held on them."""
        self.own_nodes().clear(row)
        self.requested.clear(row)
        self.touch(row)

    def touch(self, row: int) -> None:
        """Give a row that changes another stamp."""
        self._stamp += 1
        self._views.stamps[row] = self._stamp

    def is_overcommitted(self, device: int, row: int) -> bool:
        """Whether a card is over-committed: something of it is below 0, or it is shared beside an exclusive row."""
        views, cell = self._views, (device, row)
        amounts = views.slots[cell], views.memory[cell], views.cores[cell]
        return self._is_over(cell, *amounts, views.exclusive[cell], views.holders[cell])

    def add_count(self, row: int, vendor: int, count: int) -> None:
        """Add to the count of a vendor's cards (by its number) that a node's pods have, as the kubelet counts."""
        if vendor == 0:
            self._views.counts[row] += count
        else:
            self.requested.further_count[vendor - 1, row] += count

    def add_cpu(self, row: int, cpu_milli: int) -> None:
        """Add to the CPU that a node's pods request. Every change of a node's pods comes through here."""
        views = self._views
        views.cpu_milli[row] += cpu_milli
        self._stamp += 1
        views.stamps[row] = self._stamp

    def add(self, device: int, row: int, use: Use, sign: int) -> None:
        """Add what a pod holds on a card, or take it away."""
        _, slots, memory, cores, exclusive, crowded = use
        views, cell = self._views, (device, row)
        views.slots[cell] = slots = views.slots[cell] + sign * slots
        views.memory[cell] = memory = views.memory[cell] + sign * memory
        views.cores[cell] = cores = views.cores[cell] + sign * cores
        views.holders[cell] += sign * (1 + crowded)
        if exclusive:
            views.exclusive[cell] += sign
        self._derive(cell, slots, memory, cores)

    def exchange(self, device: int, row: int, before: Use | None, now: Use | None) -> bool:
        """Let a card have one use in another's place; returns whether that makes it over-committed, or ends that."""
        views, cell = self._views, (device, row)
        slots, memory, cores = views.slots[cell], views.memory[cell], views.cores[cell]
        holders, exclusive = views.holders[cell], views.exclusive[cell]
        was_over = self._is_over(cell, slots, memory, cores, exclusive, holders)
        if before is not None:
            slots, memory, cores = slots - before[1], memory - before[2], cores - before[3]
            holders, exclusive = holders - 1 - before[5], exclusive - before[4]
        if now is not None:
            slots, memory, cores = slots + now[1], memory + now[2], cores + now[3]
            holders, exclusive = holders + 1 + now[5], exclusive + now[4]
        views.slots[cell], views.memory[cell], views.cores[cell] = slots, memory, cores
        views.holders[cell], views.exclusive[cell] = holders, exclusive
        self._derive(cell, slots, memory, cores)
        return self._is_over(cell, slots, memory, cores, exclusive, holders) is not was_over

    def _is_over(
        self, cell: tuple[int, int], slots: int, memory: int, cores: int, exclusive: int, holders: int
    ) -> bool:
        """Whether a card on which this is requested is over-committed."""
        views = self._views
        return (
            slots > views.node_slots[cell]
            or memory > views.node_memory[cell]
            or cores > views.node_cores[cell]
            or (exclusive > 0 and holders > 1)
            or views.slices[cell] < 0
        )

    def refresh(self, device: int, row: int) -> None:
        """Recompute the derived numbers of one cell."""
        views, cell = self._views, (device, row)
        self._derive(cell, views.slots[cell], views.memory[cell], views.cores[cell])

    def _derive(self, cell: tuple[int, int], slots: int, memory: int, cores: int) -> None:
        """Write the derived numbers of a cell that has these requested amounts."""
        views = self._views
        capacity = views.node_slots[cell], views.node_memory[cell], views.node_cores[cell]
        views.load[cell] = min(card_load((slots, memory, cores), capacity), MAX_LOAD)
        views.usable[cell] = bool(
            slots < capacity[0]
            and memory <= capacity[1]
            and cores <= capacity[2]
            and not views.exclusive[cell]
            and not views.blocks[cell]
            and views.slices[cell] >= 0
            and views.open[cell]
        )
