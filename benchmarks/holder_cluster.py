"""A large cluster in which everything holds cards: nodes, slices and claims, VMs and their launchers.

It exists so that what is measured in one process and on an API server is the same cluster. It must not measure.
Invariant: objects are as their writers write them; the same numbers give the same objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.extender import dra
from tests.extender.objects import Json, bound, card, node
from tests.extender.vmis import K, raw_pod, vmi

CARDS: Final = 8
_MEMORY_MIB: Final = 40_960


def name_of(number: int) -> str:
    """Return a node's name."""
    return f"node-{number:05}"


class HolderCluster(NamedTuple):
    """How many there are of each. Two of three claims are of whole cards; every VM has a launcher that runs."""

    nodes: int
    claims: int
    vmis: int

    def names(self) -> list[str]:
        """Return the nodes' names."""
        return list(map(name_of, range(self.nodes)))

    def node_objects(self) -> Iterator[Json]:
        """Eight cards each, a pod's share on one of them, and eight whole devices."""
        for name in self.names():
            made = node(name, [card(f"GPU-{name}-{index}", index, memory=_MEMORY_MIB) for index in range(CARDS)])
            made.setdefault("status", {}).setdefault("allocatable", {})[K] = str(CARDS)
            yield made

    def pod_objects(self) -> Iterator[Json]:
        """One pod with a share of a card on each node."""
        for number, name in enumerate(self.names()):
            yield bound(f"p{number}", name, f"GPU-{name}-{CARDS - 1}", 1000 + number % 7)

    def slice_objects(self) -> Iterator[Json]:
        """What both drivers publish of each node."""
        for name in self.names():
            cards = [dra.gpu(f"gpu-{index}", f"GPU-{name}-{index}", memory="40Gi") for index in range(CARDS)]
            yield dra.resource_slice(*cards, name=f"{name}-gpus", node=name)
            texts = {"type": "hami-gpu"}
            shared = [
                dra.device(f"hami-gpu-{index}", texts | {"uuid": f"GPU-{name}-{index}"}, {"memory": "40Gi"})
                for index in range(CARDS)
            ]
            yield dra.resource_slice(*shared, name=f"{name}-hami", node=name, driver=dra.HAMI)

    def claim(self, number: int, *, allocated: bool = True) -> Json:
        """A claim of a whole card, or every third a share of one."""
        name, index = name_of(number % self.nodes), number // self.nodes % CARDS
        given = dra.result(f"gpu-{index}", pool=name)
        if number % 3 == 0:
            given = dra.share("10Gi", "20", number=str(number), name=f"hami-gpu-{index}") | {"pool": name}
        return dra.resource_claim(f"c{number}", given, allocated=allocated, node=name)

    def claim_objects(self) -> Iterator[Json]:
        """All claims."""
        return map(self.claim, range(self.claims))

    def machine(self, number: int, *, lists: bool = True) -> Json:
        """A VM with one device that lists its launcher."""
        listed = [f"uid-l{number}"] if lists else []
        return vmi(f"v{number}", listed, units=1, node=name_of(number % self.nodes))

    def machine_objects(self) -> Iterator[Json]:
        """All VMs."""
        return map(self.machine, range(self.vmis))

    def launcher_objects(self) -> Iterator[Json]:
        """Their launchers."""
        for number in range(self.vmis):
            yield raw_pod(f"l{number}", 1, vmi=f"v{number}", node=name_of(number % self.nodes))

    def write(self, path: Path) -> None:
        """Write everything as JSON lines."""
        parts: tuple[Iterable[Json], ...] = (
            self.node_objects(),
            self.pod_objects(),
            self.launcher_objects(),
            self.slice_objects(),
            self.claim_objects(),
            self.machine_objects(),
        )
        with path.open("w", encoding="utf-8") as sink:
            for part in parts:
                sink.writelines(f"{json.dumps(each)}\n" for each in part)
