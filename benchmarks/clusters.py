"""Starts the extenders of one synthetic cluster, ready to be asked.

It exists so that a dump is made once and all compared extenders run on it. It must not measure. Invariant: a dump
depends on its size and the seed alone; what it starts ends with the stack that is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import processes, synthetic
from benchmarks.figures import ECHO, EXTENDER, Kind, Size
from benchmarks.http_load import Address, Connection
from benchmarks.measure import Case, Subject
from benchmarks.questions import Changes, cards_with_room
from benchmarks.report import Started

CARDS: Final = 8


class Cluster(NamedTuple):
    """A cluster and everything that is asked about it."""

    size: Size
    pods: int
    nodes: list[str]
    subjects: list[Subject]
    changes: Changes
    started: Started

    def case(self, kind: Kind) -> Case:
        return Case(kind, self.size, self.pods, self.nodes, self.subjects, self.changes)


def dump(size: Size, seed: int, folder: Path) -> Path:
    """Write the cluster of this size, unless it is there already."""
    path = folder / f"{size}.json"
    if not path.exists():
        with path.open("wb") as sink:
            synthetic.write(synthetic.generate(size.nodes, size.pods, seed, CARDS), sink)
    return path


def start(size: Size, path: Path, echo: Address, checkouts: Sequence[tuple[str, Path]], stack: ExitStack) -> Cluster:
    """Start the extender of each checkout on a dump; the first one says what is in the cluster."""
    servers = [(name, stack.enter_context(processes.extender([path], root))) for name, root in checkouts]
    memory_mib = servers[0][1].resident_mib()
    subjects = [Subject(name, _connect(server.address, stack), stateful=True) for name, server in servers]
    subjects.append(Subject(ECHO, _connect(echo, stack), stateful=False))
    nodes = subjects[0].connection.call("GET", "/api/v1/nodes").json()
    pods = sum(1 for pod in subjects[0].connection.call("GET", "/api/v1/pods").json() if pod["state"] != "released")
    cards = sum(len(node["devices"]) for node in nodes)
    started = Started(len(nodes), cards, pods, servers[0][1].start_seconds, memory_mib)
    changes = Changes(cards_with_room(nodes), seed=pods)
    return Cluster(size, pods, [node["node"] for node in nodes], subjects, changes, started)


def checkouts(against: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return this checkout and those to compare it with."""
    taken = [EXTENDER, ECHO, *(path.name for path in against)]
    others = [(path.name if taken.count(path.name) == 1 else str(path), path) for path in against]
    return [(EXTENDER, processes.ROOT), *others]


def _connect(address: Address, stack: ExitStack) -> Connection:
    return stack.enter_context(Connection(address))
