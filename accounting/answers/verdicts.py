"""Filter's verdicts on nodes, remembered for the latest demands.

Why it exists: pods of one template come one after another, and between two of them one or two nodes change; judging
10,000 nodes again for each would be most of filter's cost. It must not know how a node is judged. Invariant: the result
equals judging every row again. So nothing is kept of a demand for which some node needed the exact search: nodes share
its steps, so one node's outcome may depend on the others.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from accounting.demand import Demand
from accounting.state import BoolArray, Int64Array, Rows, Snapshot, View

#: The number of demands for which verdicts are kept.
_REMEMBERED = 64
#: Above this share of changed rows, judging every row costs less than selecting some.
_WORTH_TAKING = 0.25

CodeArray = npt.NDArray[np.uint8]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One entry per asked row: whether it fits; if not, a code's number and whether no eviction could help."""

    feasible: BoolArray
    codes: CodeArray
    unresolvable: BoolArray
    searched: int = 0
    """The number of nodes that needed the exact search; undecided ones have the code SearchLimit."""

    def of(self, rows: Rows) -> "Verdict":
        """Return the entries of these rows, in new arrays."""
        return Verdict(self.feasible[rows], self.codes[rows], self.unresolvable[rows], self.searched)

    def put(self, where: Rows, other: "Verdict") -> None:
        """Replace the entries at these places by those of another verdict, one each."""
        self.feasible[where], self.codes[where] = other.feasible, other.codes
        self.unresolvable[where] = other.unresolvable


Judge = Callable[[View, Rows], Verdict]
"""Judges every column of a view, whose rows in the snapshot are given."""


class _Kept(NamedTuple):
    node_generation: int
    stamps: Int64Array
    verdict: Verdict


class Verdicts:
    """Remembers the last verdicts on every row of one cache's snapshots, by demand."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Demand, _Kept] = OrderedDict()
        self._asked_once: OrderedDict[Demand, None] = OrderedDict()

    def knows(self, snapshot: Snapshot, demand: Demand) -> bool:
        """Whether a pod with this demand was asked about since nodes last changed."""
        kept = self._kept.get(demand)
        return kept is not None and kept.node_generation == snapshot.node_generation

    def on_every_row(self, snapshot: Snapshot, demand: Demand, judge: Judge) -> Verdict:
        """Return the verdict on every row. From a demand's third question on, only changed rows are judged.

        The caller must not write to the arrays. Only for pods that no quota limits.
        """
        kept = self._kept.pop(demand, None)
        if kept is None and demand not in self._asked_once:
            # A demand that does not come again takes no memory, and replaces none that does.
            _remember(self._asked_once, demand, None)
            return judge(snapshot, np.arange(snapshot.columns))
        verdict = self._again(snapshot, kept, judge)
        if not verdict.searched and len(snapshot.layouts) == 1:
            _remember(self._kept, demand, _Kept(snapshot.node_generation, snapshot.stamps, verdict))
        return verdict

    def _again(self, snapshot: Snapshot, kept: _Kept | None, judge: Judge) -> Verdict:
        every = np.arange(snapshot.columns)
        if kept is None or kept.node_generation != snapshot.node_generation:
            return judge(snapshot, every)
        changed = np.flatnonzero(snapshot.stamps != kept.stamps)
        if len(changed) > _WORTH_TAKING * snapshot.columns:
            return judge(snapshot, every)
        verdict = kept.verdict.of(every)
        if not len(changed):
            return verdict
        anew = judge(snapshot.take(changed), changed)
        verdict.put(changed, anew)
        return Verdict(verdict.feasible, verdict.codes, verdict.unresolvable, anew.searched)


def _remember(memory: OrderedDict[Demand, _Value], demand: Demand, value: _Value) -> None:
    """Keep a value as the newest; the oldest beyond the limit is forgotten."""
    memory[demand] = value
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
