"""The state at one moment, as fitting and scoring read it.

Why it exists: kube-scheduler decides on a snapshot, and so does this package, so that asking can never change the cache
and everything derived from one state is computed once. It must not know pods beyond their numbers. Invariant: nothing
reachable from a snapshot changes after it was taken.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat

import numpy as np

from accounting.demand import Demand
from accounting.mig_profiles import MigLayout
from accounting.policy import Weights
from accounting.state.tables import (
    FULL_LOAD,
    BoolArray,
    Int32Array,
    Int64Array,
    NodeArrays,
    RequestedArrays,
    Rows,
)
from accounting.vendor import DEFAULT_VENDOR_KEY

#: Scores between the cards of a node, by device position: a symmetric matrix, as tuples.
Topology = tuple[tuple[int, ...], ...]


class View:
    """Arrays of some node rows: what is there, what is held, what is free."""

    def __init__(self, nodes: NodeArrays, requested: RequestedArrays) -> None:
        self.nodes = nodes
        self.requested = requested
        self.devices, self.columns = nodes.slots.shape

    @cached_property
    def free_slots(self) -> Int32Array:
        """Free slots, possibly negative; (device, column)."""
        return self.nodes.slots - self.requested.slots

    @cached_property
    def free_memory(self) -> Int64Array:
        """Free MiB, possibly negative; (device, column)."""
        return self.nodes.memory - self.requested.memory

    @cached_property
    def free_cores(self) -> Int64Array:
        """Free percent of a card, possibly negative; (device, column)."""
        return self.nodes.cores - self.requested.cores

    @cached_property
    def shares(self) -> dict[tuple[int, bool], Int64Array]:
        """A percentage, and whether it stands for whole cards -> its MiB of each card. Valid until a node changes."""
        return {}

    @cached_property
    def any_single_numa(self) -> bool:
        """Whether any of the nodes keeps a container's cards to one NUMA node."""
        return bool(self.nodes.single_numa.any())

    @cached_property
    def blocked(self) -> BoolArray:
        """Cards that an unreadable allocation or a doubled register entry blocks."""
        return self.nodes.duplicated | (self.requested.blocks > 0)

    @cached_property
    def overcommitted(self) -> BoolArray:
        """Cards with a free number below 0, an exclusive holder beside another one, or instances that overlap."""
        beside = (self.requested.exclusive > 0) & (self.requested.holders > 1)
        beside |= self.requested.slices < 0
        return beside | (self.free_slots < 0) | (self.free_memory < 0) | (self.free_cores < 0)

    def count_of(self, vendor: int) -> Int64Array:
        """Return (column,): the sum of the pods' peak counts of a vendor's cards."""
        return self.requested.count if vendor == 0 else self.requested.further_count[vendor - 1]

    def count_allocatable_of(self, vendor: int) -> Int64Array:
        """Return (column,): the kubelet's allocatable count of a vendor's resource, -1 when the node does not say."""
        return self.nodes.count_allocatable if vendor == 0 else self.nodes.further_allocatable[vendor - 1]

    def load(self, weights: Weights) -> Int64Array:
        """Return every card's load with these weights, in units of 1/FULL_LOAD; see `device_table.card_load`."""
        if weights == Weights():
            return self.requested.load
        requested, nodes = self.requested, self.nodes
        return weighted_load(
            weights,
            (requested.slots, requested.memory, requested.cores),
            (nodes.slots, nodes.memory, nodes.cores),
        )

    def take(self, rows: Rows) -> "View":
        """Return the view of these columns only."""
        return View(self.nodes.take(rows), self.requested.take(rows))

    def cells(self, flat: Rows) -> "View":
        """Return single cards, by their flat numbers, as one row of columns. The result has no numbers of nodes."""
        return View(self.nodes.cells(flat), self.requested.cells(flat))

    def refreshed(self) -> "View":
        """Return a view of the same arrays with derived numbers recomputed, after a taken copy was changed."""
        nodes, requested = self.nodes, self.requested
        view = View(nodes, requested)
        held = requested.slots, requested.memory, requested.cores
        np.copyto(requested.load, weighted_load(Weights(), held, (nodes.slots, nodes.memory, nodes.cores)))
        usable = nodes.present & nodes.healthy & ~nodes.cordoned & ~view.blocked & ~view.overcommitted
        np.copyto(requested.usable, usable & (view.free_slots > 0) & (requested.exclusive == 0))
        return view

    def emptied(self) -> "View":
        """Return the view as it would be with every pod gone."""
        nodes = self.nodes
        empty = RequestedArrays.zeros(self.devices, self.columns, 1 + len(nodes.further_allocatable))
        has_slot = nodes.present & (nodes.slots > 0)
        np.copyto(empty.usable, has_slot & nodes.healthy & ~nodes.cordoned & ~nodes.duplicated)
        return View(nodes, empty)


class Snapshot(View):
    """A view of every row, with the names of the nodes."""

    def __init__(
        self,
        generation: int,
        node_generation: int,
        rows: Mapping[str, int],
        ids: Mapping[str, int],
        arrays: tuple[NodeArrays, RequestedArrays],
        previous: "Snapshot | None" = None,
    ) -> None:
        super().__init__(*arrays)
        self.generation = generation
        self.node_generation = node_generation
        self.rows = rows
        self.ids = ids
        self.topologies: Sequence[Topology] = ((),)
        """Links between cards, by the numbers in `NodeArrays.topology`."""
        self.stamps: Int64Array = np.zeros(self.columns, np.int64)
        """(row,) Another number after every change of a row, and one that no other row has or had."""
        self.vendors: Mapping[str, int] = {DEFAULT_VENDOR_KEY: 0}
        """The numbers in `NodeArrays.vendor`, by key."""
        self.layouts: Sequence[MigLayout] = ((),)
        """MIG layouts, by the numbers in `NodeArrays.layout`; the first one stands for no MIG mode."""
        self.kept: Hashable = ()
        """What is held beside what the stamps stand for; see `alone`."""
        if previous is not None and previous.node_generation == node_generation:
            for name in ("lookup", "hopeless", "name_rank", "capacity", "shares", "type_ids", "mode_ids"):
                if name in previous.__dict__:
                    self.__dict__[name] = previous.__dict__[name]

    @cached_property
    def lookup(self) -> Mapping[str, int]:
        """`rows` again, in objects that were allocated one after another.

        The original objects are scattered in memory, and 10,000 look-ups in random order miss the CPU cache 10,000
        times.
        """
        names = [name.encode().decode() for name in self.rows]
        return dict(zip(names, np.array(list(self.rows.values()), np.intp).tolist(), strict=True))

    @cached_property
    def hopeless(self) -> dict[Demand, BoolArray]:
        """What is asked of one vendor -> (row,): nodes too small for it even with every pod gone.

        Valid until a node changes.
        """
        return {}

    @cached_property
    def name_rank(self) -> Int64Array:
        """(row,) Position of the row's node in the sorted list of names; the last tie-break between nodes."""
        rank = np.zeros(self.columns, np.int64)
        for position, name in enumerate(sorted(self.rows)):
            rank[self.rows[name]] = position
        return rank

    @cached_property
    def capacity(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """(row,) each: sums of slots, memory and cores over a node's cards."""
        nodes = self.nodes
        return _sums(nodes.slots), _sums(nodes.memory), _sums(nodes.cores)

    @cached_property
    def used(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """(row,) each: sums of what pods hold over a node's cards."""
        requested = self.requested
        return _sums(requested.slots), _sums(requested.memory), _sums(requested.cores)

    @cached_property
    def type_ids(self) -> tuple[tuple[str, int], ...]:
        """Every model that some card has, with its interned number."""
        return self._texts(self.nodes.type_id)

    @cached_property
    def mode_ids(self) -> tuple[tuple[str, int], ...]:
        """Every mode that some card has, with its interned number."""
        return self._texts(self.nodes.mode_id)

    def _texts(self, numbers: Int32Array) -> tuple[tuple[str, int], ...]:
        # Numbers are given in the order in which texts come, so a text's number is its place.
        texts, used = list(self.ids), np.flatnonzero(np.bincount(numbers[self.nodes.present]))
        return tuple((texts[number], number) for number in used.tolist())

    def alone(self, node: str, view: View, kept: Hashable) -> "Snapshot":
        """Return the snapshot of one node, as a view of one column shows it.

        `kept`: what the column holds beside what the snapshot does; with it equal stamps mean equal rows again.
        """
        single = Snapshot(
            self.generation, self.node_generation, {node: 0}, self.ids, (view.nodes, view.requested), None
        )
        single.topologies, single.vendors, single.layouts = self.topologies, self.vendors, self.layouts
        single.stamps, single.kept = self.stamps[[self.rows[node]]], kept
        return single

    def rows_of(self, names: Iterable[str]) -> Rows:
        """Return each name's row, -1 for a node that is not known."""
        return np.fromiter(map(self.lookup.get, names, repeat(-1)), np.intp)


def weighted_load(
    weights: Weights,
    used: tuple[Int32Array | Int64Array, Int64Array, Int32Array | Int64Array],
    capacity: tuple[Int32Array | Int64Array, Int64Array, Int32Array | Int64Array],
) -> Int64Array:
    """Return the weighted sums of floor(used x FULL_LOAD / capacity); 0 where a capacity is 0."""
    load = np.zeros(capacity[0].shape, np.int64)
    whole = np.ones(capacity[0].shape, np.bool_)
    for weight, part, size in zip((weights.slot, weights.memory, weights.core), used, capacity, strict=True):
        whole &= size > 0
        load += weight * (part.astype(np.int64) * FULL_LOAD // np.maximum(size, 1))
    return np.where(whole, load, 0)


def _sums(array: Int32Array | Int64Array) -> Int64Array:
    sums: Int64Array = np.add.reduce(array, axis=0, dtype=np.int64)
    return sums
