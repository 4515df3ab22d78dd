"""Compares filter and bind with an oracle on random cases.

It exists because the tests and the soak share it. It must not make cases or judge them itself. Invariant: the first
difference is returned with the seed that finds it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from accounting.answers.allocate import allocate
from accounting.answers.filter import filter_nodes
from accounting.holdings import DeviceUse
from accounting.node import Node
from accounting.pod import Pod
from accounting.state.snapshot import Snapshot
from accounting.status import CODES, Code
from benchmarks import placement_oracle
from benchmarks.placement_cases import Case, Size, case

Oracle = Callable[[Node, Sequence[DeviceUse], Pod], bool]


class Counts(NamedTuple):
    """Numbers of nodes: asked, feasible, those that needed the search, and those that it left undecided."""

    nodes: int = 0
    feasible: int = 0
    searched: int = 0
    limited: int = 0
    undecided_but_feasible: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(*map(sum, zip(self, other, strict=True)))


class Difference(NamedTuple):
    """Where the fast code and an oracle disagree."""

    seed: int
    node: str
    what: str


def check(seed: int, size: Size, oracle: Oracle = placement_oracle.exists) -> Counts | Difference:
    """Ask about every node of a case."""
    asked = case(seed, size)
    cache = asked.cache()
    snapshot = cache.snapshot()
    names = [node.name for node in asked.nodes]
    verdict = filter_nodes(snapshot, asked.pod, snapshot.rows_of(names))
    limited = hidden = 0
    for node, fits, code in zip(asked.nodes, verdict.feasible.tolist(), verdict.codes.tolist(), strict=True):
        right = oracle(node, asked.uses[node.name], asked.pod)
        if CODES[code] is Code.SEARCH_LIMIT and not fits:
            limited += 1
            hidden += right
        elif fits != right:
            return Difference(seed, node.name, f"filter says {fits}, the oracle {right}")
        if fits and not _bound_legally(asked, node, cache.positions(node.name), snapshot):
            return Difference(seed, node.name, "bind finds no legal placement")
    return Counts(len(names), int(verdict.feasible.sum()), verdict.searched, limited, hidden)


def _bound_legally(asked: Case, node: Node, positions: Mapping[str, int], snapshot: Snapshot) -> bool:
    """Whether bind, on the same state, finds cards, and these keep every rule."""
    uuids = {position: uuid for uuid, position in positions.items()}
    placement = allocate(snapshot, asked.pod, snapshot.rows[node.name], uuids)
    return placement is not None and placement_oracle.legal(
        node, asked.uses[node.name], asked.pod, placement.allocation
    )
