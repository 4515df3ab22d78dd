"""Values of nodes for the packing policies, each computed once per state of the node.

Why it exists: the value of a shape on a node changes only when the node does, so of 1,200 nodes about 27 need work per
pod. It must not know where workloads come from. Invariants: a value is remembered with the stamp of its row, and no row
ever has a stamp twice; what is returned is the same with and without memory.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.packing import fgd, fragmentation
from accounting.packing.reserve import place_prices
from accounting.packing.shape import Shape, need_of, shape_of
from accounting.packing.state import NodeState, read_state
from accounting.packing.workload import Group, Workload, classes_of
from accounting.pod import Pod
from accounting.policy import NodePolicy
from accounting.state import Int64Array, Rows, Snapshot

#: What the values of all shapes may take; the shape asked about longest ago is forgotten first.
_REMEMBERED_BYTES = 32 * 2**20
#: Rows worked out at once; more would only need more room.
_AT_ONCE = 2048


@dataclass(slots=True)
class _Memory:
    """What is remembered of every row: the stamp for which it holds, a value, and one number per large shape."""

    stamps: Int64Array
    values: Int64Array
    places: npt.NDArray[np.int16]

    @classmethod
    def empty(cls, columns: int, large: int) -> "_Memory":
        return cls(
            np.full(columns, -1, np.int64),
            np.zeros(columns, np.int64),
            np.zeros((large, columns), np.int16),
        )

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stamps.nbytes + self.values.nbytes + self.places.nbytes


class Scorer:
    """Values by one workload. All snapshots come from one cache, in order."""

    def __init__(self, workload: Workload, policy: NodePolicy) -> None:
        self.workload = workload
        self._is_fgd = policy is NodePolicy.FGD
        self._before = _Memory.empty(0, 0)
        self._free: Int64Array = np.zeros(0, np.int64)
        self._state = NodeState.empty(0, 0)
        self._shapes: OrderedDict[Shape, _Memory] = OrderedDict()
        self._groups: Int64Array = np.zeros(0, np.int64)
        self._groups_for: tuple[int, int] | None = None

    def values(self, snapshot: Snapshot, pod: Pod, rows: Rows) -> Int64Array:
        """Return (position in `rows`,): the higher the better. Rows without cards of a known kind have some value."""
        if not self.workload.groups:
            return np.zeros(len(rows), np.int64)
        self._follow(snapshot)
        shape = shape_of(pod)
        memory = self._memory_of(shape, snapshot.columns)
        stale = rows[memory.stamps[rows] != snapshot.stamps[rows]]
        for start in range(0, len(stale), _AT_ONCE):
            self._work_out(snapshot, shape, memory, stale[start : start + _AT_ONCE])
        if self._is_fgd or not len(self._before.places):
            return memory.values[rows]
        prices = place_prices(self.workload, self._before.places.sum(axis=1, dtype=np.int64), int(self._free.sum()))
        values: Int64Array = memory.values[rows] - prices @ memory.places[:, rows]
        return values

    def _follow(self, snapshot: Snapshot) -> None:
        """Update what is remembered of the nodes themselves."""
        if self._groups_for != (snapshot.node_generation, snapshot.columns):
            self._assign_groups(snapshot)
        if self._state.units.shape != (snapshot.devices, snapshot.columns):
            self._before = _Memory.empty(snapshot.columns, len(self.workload.large_units))
            self._free = np.zeros(snapshot.columns, np.int64)
            self._state = NodeState.empty(snapshot.devices, snapshot.columns)
            self._shapes.clear()
        stale = np.flatnonzero(self._before.stamps != snapshot.stamps)
        for start in range(0, len(stale), _AT_ONCE):
            rows = stale[start : start + _AT_ONCE]
            self._state.put(rows, read_state(snapshot, rows))
            self._measure(snapshot, rows)

    def _assign_groups(self, snapshot: Snapshot) -> None:
        """Find every row's group; nodes of a class that the workload was not built for are taken as the first one."""
        known = {group.card: number for number, group in enumerate(self.workload.groups)}
        self._groups = np.zeros(snapshot.columns, np.int64)
        rows = np.flatnonzero(snapshot.nodes.registered & (snapshot.nodes.card_count > 0))
        classes, numbers = classes_of(snapshot, rows)
        self._groups[rows] = np.array([known.get(card, 0) for card in classes], np.int64)[numbers]
        self._groups_for = snapshot.node_generation, snapshot.columns

    def _memory_of(self, shape: Shape, columns: int) -> _Memory:
        memory = self._shapes.get(shape)
        if memory is None:
            memory = self._shapes[shape] = _Memory.empty(columns, len(self.workload.large_units))
            if len(self._shapes) > max(8, _REMEMBERED_BYTES // max(memory.size, 1)):
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(shape)
        return memory

    def _measure(self, snapshot: Snapshot, rows: Rows) -> None:
        before = self._before
        for group, own, state in self._by_group(rows):
            if self._is_fgd:
                before.values[own] = fgd.fragmentation(state, group.typical)
            else:
                measures = fragmentation.measure(state, group, self.workload)
                before.values[own], before.places[:, own] = measures.cost, measures.places
                self._free[own] = measures.free
        before.stamps[rows] = snapshot.stamps[rows]

    def _work_out(self, snapshot: Snapshot, shape: Shape, memory: _Memory, rows: Rows) -> None:
        before = self._before
        for group, own, state in self._by_group(rows):
            need = need_of(shape, group.card)
            if need is None:
                # The node may have had other cards before.
                memory.values[own], memory.places[:, own] = 0, 0
                continue
            if self._is_fgd:
                memory.values[own] = fgd.fgd_scores(state, before.values[own], need, shape.cpu_milli, group.typical)
                continue
            measures = fragmentation.Measures(
                before.values[own], before.places[:, own].astype(np.int64), self._free[own]
            )
            memory.values[own], memory.places[:, own] = fragmentation.value(
                state, measures, need, shape.cpu_milli, group, self.workload
            )
        memory.stamps[rows] = snapshot.stamps[rows]

    def _by_group(self, rows: Rows) -> list[tuple[Group, Rows, NodeState]]:
        """Return the rows by group, with their states."""
        numbers, groups = self._groups[rows], self.workload.groups
        present = set(numbers.tolist())
        if len(present) == 1:
            return [(groups[present.pop()], rows, self._state.take(rows))]
        parts = ((groups[number], rows[numbers == number]) for number in sorted(present))
        return [(group, own, self._state.take(own)) for group, own in parts]


class Packing:
    """The workload in use, and a scorer for each policy in use."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with every workload."""
        self.workload: Workload | None = None
        self.asked = False
        """Whether some pod's policy has looked ahead yet."""
        self._scorers: dict[NodePolicy, Scorer] = {}

    def use(self, workload: Workload) -> None:
        """Replace the workload, in one step."""
        self.workload = workload
        self._scorers.clear()
        self.version += 1

    def values(self, snapshot: Snapshot, pod: Pod, rows: Rows) -> Int64Array | None:
        """Return the values of these rows for a pod by its policy; None if its policy does not look ahead.

        Until there is a workload, the node with the fewest free units is best.
        """
        policy = pod.policies.node
        if not policy.looks_ahead:
            return None
        self.asked = True
        # An unknown node has no value of its own, and no score.
        rows = np.maximum(rows, 0)
        if self.workload is None:
            free: Int64Array = np.add.reduce(read_state(snapshot, rows).units, axis=0)
            return -free
        if policy not in self._scorers:
            self._scorers[policy] = Scorer(self.workload, policy)
        return self._scorers[policy].values(snapshot, pod, rows)
