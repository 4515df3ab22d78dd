"""Writes the cluster that a live extender is measured on, and which of its pods the events are about.

It exists so that the maker of events need not list a hundred thousand pods to patch some of them. It must not start
anything. Invariant: the pods have the containers and the bytes that the project's numbers are about; the same size and
seed give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from benchmarks import synthetic
from benchmarks.figures import Size

CONTAINERS: Final = 4
POD_BYTES: Final = 9_000
CARDS: Final = 8
#: The number of pods that events are about: few enough for a small file, many enough that no cache favours them.
_TARGETS: Final = 20_000
_ENDED: Final = frozenset({"Succeeded", "Failed"})

Json = dict[str, Any]


class Dump(NamedTuple):
    """The files, and how many objects a live extender should hold."""

    path: Path
    targets: Path
    nodes: list[str]
    pods: int


class Target(NamedTuple):
    """A running pod, by name, with what events need: its conditions, and its inits' statuses if it has any."""

    namespace: str
    name: str
    conditions: list[Json]
    inits: list[Json]


def write(size: Size, seed: int, folder: Path) -> Dump:
    """Write both files."""
    path, targets = folder / f"{size}.json", folder / f"{size}.targets.json"
    found: list[Target] = []
    nodes: list[str] = []
    running = 0

    def noted(objects: Iterable[Json]) -> Iterator[Json]:
        nonlocal running
        for each in objects:
            if each["kind"] == "Node":
                nodes.append(each["metadata"]["name"])
            if each["kind"] == "Pod" and each["status"]["phase"] not in _ENDED:
                running += 1
                if len(found) < _TARGETS:
                    found.append(_target(each))
            yield each

    shape = synthetic.Shape(CONTAINERS, POD_BYTES)
    with path.open("wb") as sink:
        synthetic.write(noted(synthetic.generate(size.nodes, size.pods, seed, CARDS, shape=shape)), sink)
    targets.write_bytes(orjson.dumps([tuple(each) for each in found]))
    return Dump(path, targets, nodes, running)


def read_targets(path: Path) -> list[Target]:
    return [Target(*each) for each in orjson.loads(path.read_bytes())]


def _target(pod: Json) -> Target:
    meta, status = pod["metadata"], pod["status"]
    return Target(meta["namespace"], meta["name"], status["conditions"], status.get("initContainerStatuses", []))
