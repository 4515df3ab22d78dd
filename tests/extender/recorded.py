"""The recorded bodies of a real kube-scheduler, and clusters that match them.

It exists so that a test names a body and gets its bytes, its meaning and nodes of the same names. It must not know the
right answer. Invariant: bytes are as recorded; the same body gives the same cluster.
"""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from extender.cluster.cluster import Cluster
from extender.cluster.loading import collect
from extender.cluster.objects import Objects
from extender.config import Settings
from extender.convert.manifests import parse_manifests
from tests.extender.objects import COUNT, Json, asks, container, listed, node, pod, rows

PAYLOADS = Path(__file__).resolve().parent.parent / "data" / "payloads"
#: Of three nodes in a row, the first takes the pod, the second is full, the third registers no cards.
FITS, FULL, BARE = range(3)


class Recorded:
    """One body: its bytes, and what they say."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.verb = name.partition("_")[0]
        self.raw = (PAYLOADS / name).read_bytes()
        self.body: Json = json.loads(self.raw)

    @property
    def offered(self) -> list[str]:
        """Return the candidate nodes, in the body's order."""
        items = [] if self.body["Nodes"] is None else self.body["Nodes"]["items"]
        return list(self.body["NodeNames"] or [item["metadata"]["name"] for item in items])

    @property
    def wanted(self) -> int:
        """Return how many cards all containers of the pod ask for together."""
        spec = self.body["Pod"]["spec"]
        containers = [*spec.get("initContainers", ()), *spec["containers"]]
        return sum(int(each["resources"].get("limits", {}).get(COUNT, 0)) for each in containers)

    @property
    def kinds(self) -> dict[str, int]:
        """Return what each candidate node is in the matching cluster."""
        return {name: position % 3 for position, name in enumerate(sorted(self.offered))}

    @property
    def fitting(self) -> set[str]:
        """Return the candidate nodes that take the pod in the matching cluster."""
        return {name for name, kind in self.kinds.items() if kind == FITS}

    @property
    def lower_cased(self) -> bytes:
        """Return the body with the protocol's own keys in lower case; Kubernetes objects stay as they are."""
        lowered = {key.lower(): value for key, value in self.body.items()}
        for key in ("nodenametovictims", "nodenametometavictims"):
            if lowered.get(key):
                lowered[key] = {name: _lower_victims(victims) for name, victims in lowered[key].items()}
        return json.dumps(lowered).encode()

    def cluster(self, only: int | None = None) -> Cluster:
        """Return a cluster with the candidate nodes, by default of all three kinds, with enough cards for the pod."""
        cluster = Cluster(Settings())
        cluster.load(_objects(self.name, only))
        return cluster


def recorded(*verbs: str, having: str = "") -> list[Any]:
    """Return the recorded bodies of these verbs, as parameters with ids in words."""
    paths = sorted(path for verb in verbs for path in PAYLOADS.glob(f"{verb}_*") if having in path.name)
    assert paths
    return [pytest.param(_read(path.name), id=path.name.replace("_", " ").replace(".", " ")) for path in paths]


@functools.cache
def _read(name: str) -> Recorded:
    return Recorded(name)


@functools.cache
def _objects(name: str, only: int | None) -> Objects:
    sent, objects = _read(name), []
    cards = max(sent.wanted, 1)
    for each, kind in sent.kinds.items():
        kind = kind if only is None else only  # noqa: PLW2901 - one kind for all
        objects.append(node(each, 0 if kind == BARE else cards))
        if kind == FULL:
            held = rows([(f"GPU-{each}-{index}", 1000, 0) for index in range(cards)])
            objects.append(pod(f"on-{each}", [container("main", asks(cards))], node=each, allocation=held))
    return collect(parse_manifests(listed(*objects).encode(), "--cluster", "test"), Settings())


def _lower_victims(victims: Json) -> Json:
    pods = [{"uid": each["UID"]} if "UID" in each else each for each in victims["Pods"]]
    return {"pods": pods, "numpdbviolations": victims["NumPDBViolations"]}
