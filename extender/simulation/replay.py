"""One run: pods arrive one after another, each is placed or refused for good, and none leaves.

Why it exists: it runs the extender's own code, verb by verb, without HTTP: `feasible_on` (filter without reasons), the
policy's values, `score_nodes`, `allocate`, `assume_pod`; and adds what kube-scheduler itself judges, CPU and memory. It
must not have rules about cards. Invariant: whether a node takes a kind of pod is remembered until the node changes;
with `remember` off everything is asked again, and the choices are the same.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accounting.answers import allocate, feasible_on
from accounting.cards import score_nodes
from accounting.demand import Demand
from accounting.packing.scorer import Packing
from accounting.packing.shape import UNITS
from accounting.packing.state import PLENTY_MILLI, read_state
from accounting.packing.workload import Workload
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.policy import CardKey, CardPolicy, NodePolicy, Policies
from accounting.selection import Selection
from accounting.state import BoolArray, Int64Array, Rows, Snapshot
from accounting.state.cache import Cache
from extender.simulation.trace import Job, Machine

#: Further policies, for comparison with the extender's.
RANDOM, BESTFIT = "random", "bestfit"
POLICIES = (RANDOM, BESTFIT, *(policy.value for policy in NodePolicy))
_FULLEST_CARD = CardPolicy((CardKey.HIGH_LOAD,))
#: BestFit of the published experiments weighs free CPU by 128 cores and free GPUs by 8.
_BESTFIT_CPU_MILLI, _BESTFIT_UNITS = 128_000, 8 * UNITS


class _Kind(NamedTuple):
    """What decides which rows take a pod: its demand for cards, and its CPU."""

    demand: Demand
    cpu_milli: int


@dataclass(slots=True)
class _Known:
    """Which rows take a kind of pod, and the stamps for which that is true."""

    pod: Pod
    stamps: Int64Array
    takes: BoolArray


class Replay:
    """One cluster under one policy."""

    def __init__(
        self, machines: Sequence[Machine], policy: str, workload: Workload | None, seed: int, *, remember: bool = True
    ) -> None:
        self.cache = Cache()
        self._policy = policy
        self._remember = remember
        self._random = random.Random(seed)  # noqa: S311 - an experiment, no secret
        self._packing = Packing()
        if workload is not None:
            self._packing.use(workload)
        for machine in machines:
            self.cache.add_node(machine.node)
        snapshot = self.cache.snapshot()
        self._memory = np.zeros(snapshot.columns, np.int64)
        for machine in machines:
            free = PLENTY_MILLI if machine.memory_mib is None else machine.memory_mib
            self._memory[snapshot.rows[machine.node.name]] = free
        self._rows = np.array(sorted(snapshot.rows.values()))
        self._names = {row: name for name, row in snapshot.rows.items()}
        self._uuids = {
            row: {position: uuid for uuid, position in self.cache.positions(name).items()}
            for row, name in self._names.items()
        }
        self._known: dict[_Kind, _Known] = {}

    def place(self, job: Job, uid: str) -> str | None:
        """Place a pod; returns its node, None if no node takes it."""
        snapshot = self.cache.snapshot()
        known = self._known_kind(job.pod, snapshot)
        pod = known.pod
        rows = self._feasible(snapshot, job, known)
        if not len(rows):
            return None
        row = self._choose(snapshot, pod, rows)
        placed = self._on_cards(snapshot, pod, row)
        bound = placed._replace(uid=uid, name=uid, node=self._names[row])
        self.cache.assume_pod(record_pod(bound))
        self._memory[row] -= job.memory_mib
        return self._names[row]

    def _known_kind(self, pod: Pod, snapshot: Snapshot) -> _Known:
        """Return what is remembered for this kind of pod, and the pod with the run's policy."""
        kind = _Kind(Demand.of(pod), pod.cpu_milli)
        known = self._known.get(kind)
        if known is None:
            columns = snapshot.columns
            policies = Policies(node=self._node_policy(), card=self._card_policy())
            known = _Known(pod._replace(policies=policies), np.full(columns, -1, np.int64), np.zeros(columns, np.bool_))
            self._known[kind] = known
        return known

    def _node_policy(self) -> NodePolicy:
        own = {policy.value for policy in NodePolicy}
        return NodePolicy(self._policy) if self._policy in own else NodePolicy.BINPACK

    def _card_policy(self) -> CardPolicy:
        return CardPolicy() if self._policy == NodePolicy.SPREAD.value else _FULLEST_CARD

    def _feasible(self, snapshot: Snapshot, job: Job, known: _Known) -> Rows:
        """Return the rows that take the pod: its cards by the extender, CPU and memory by kube-scheduler's rule."""
        stale = self._rows
        if self._remember:
            stale = stale[known.stamps[stale] != snapshot.stamps[stale]]
        if len(stale):
            takes = feasible_on(snapshot.take(stale), known.pod, snapshot)
            allocatable = snapshot.nodes.cpu_milli[stale]
            enough = allocatable - snapshot.requested.cpu_milli[stale] >= known.pod.cpu_milli
            known.takes[stale] = takes & (enough | (allocatable < 0))
            known.stamps[stale] = snapshot.stamps[stale]
        rows: Rows = self._rows[known.takes[self._rows] & (self._memory[self._rows] >= job.memory_mib)]
        return rows

    def _choose(self, snapshot: Snapshot, pod: Pod, rows: Rows) -> int:
        if self._policy == RANDOM:
            return int(rows[self._random.randrange(len(rows))])
        is_bestfit = self._policy == BESTFIT
        values = -_bestfit(snapshot, rows) if is_bestfit else self._packing.values(snapshot, pod, rows)
        best = score_nodes(snapshot, rows, pod.policies.node, values=values)[0]
        return int(rows[best[0]])

    def _on_cards(self, snapshot: Snapshot, pod: Pod, row: int) -> Pod:
        """Return the pod with its cards on a node, which takes it."""
        if not pod.asks:
            return pod
        uuids = self._uuids[row]
        wanted = pod._replace(selection=self._any_card(snapshot, pod, row)) if self._policy == RANDOM else pod
        placement = allocate(snapshot, wanted, row, uuids)
        assert placement is not None, "filter and allocate disagree"  # noqa: S101 - a broken promise
        return pod.with_allocation(placement.allocation)

    def _any_card(self, snapshot: Snapshot, pod: Pod, row: int) -> Selection:
        """Return a selection of one random card among those that can take a pod of one card."""
        positions = list(self._uuids[row])
        self._random.shuffle(positions)
        for position in positions:
            selection = replace(pod.selection, use_uuids=frozenset({self._uuids[row][position]}))
            if allocate(snapshot, pod._replace(selection=selection), row, self._uuids[row]) is not None:
                return selection
        return pod.selection


def _bestfit(snapshot: Snapshot, rows: Rows) -> Int64Array:
    """Return free CPU and free units, weighed: the least is best. The pod's own request is the same everywhere."""
    state = read_state(snapshot, rows)
    free: Int64Array = np.add.reduce(state.units, axis=0)
    weighed: Int64Array = state.cpu_milli * _BESTFIT_UNITS + free * _BESTFIT_CPU_MILLI
    return weighed
