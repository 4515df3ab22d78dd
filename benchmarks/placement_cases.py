"""Random placement questions: one pod, and nodes so full that the order of choices matters.

It exists for the oracles, which say what is right. It must not know how anything is fitted. Invariant: a case depends
on its seed and size alone, and objects of a real cluster could say everything in it.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from accounting.holdings import DeviceUse, Total
from accounting.node import Device, Node, tie_order
from accounting.pod import Container, ContainerKind, DeviceRequest, Pod
from accounting.pod_record import PodRecord, State
from accounting.policy import Policies, parse_card_policy
from accounting.selection import Selection
from accounting.state.cache import Cache


class Size(NamedTuple):
    """How large cases may be."""

    cards: int
    containers: int
    cards_each: int
    nodes: int
    idle: float = 0.5
    """The share of cards that no pod uses."""


SMALL: Final = Size(cards=4, containers=5, cards_each=2, nodes=20)
LARGE: Final = Size(cards=8, containers=7, cards_each=4, nodes=20)
_POLICIES: Final = ("spread", "binpack", "binpack", "numa", "binpack,numa", "topology-aware", "mutex", "mutex,binpack")
_MEMORY: Final = (16, 24, 24, 40, 80)


class Case(NamedTuple):
    """One pod, and nodes with what other pods hold on their cards."""

    pod: Pod
    nodes: tuple[Node, ...]
    uses: dict[str, tuple[DeviceUse, ...]]

    def cache(self) -> Cache:
        """Return a cache with the nodes and one running pod per node, which holds all of the node's uses."""
        cache = Cache()
        for node in self.nodes:
            cache.add_node(node)
            uses = self.uses[node.name]
            cache.add_pod(
                PodRecord(
                    uid=f"uid-{node.name}",
                    namespace="other",
                    name=f"on-{node.name}",
                    node=node.name,
                    state=State.STEADY,
                    steady=uses,
                    peak=uses,
                    total_peak=Total(),
                    total_steady=Total(),
                    readable=True,
                )
            )
        return cache


def case(seed: int, size: Size) -> Case:
    """Return the case of a seed."""
    rng = random.Random(seed)
    pod = _pod(rng, size)
    nodes, uses = [], {}
    for number in range(size.nodes):
        node = _node(rng, f"n{number}", size)
        nodes.append(node)
        uses[node.name] = tuple(filter(None, (_use(rng, device, size.idle) for device in node.devices)))
    return Case(pod, tuple(nodes), uses)


def _pod(rng: random.Random, size: Size) -> Pod:
    kinds = [rng.choice(tuple(ContainerKind)) for _ in range(rng.randint(2, size.containers))]
    kinds.sort(key=lambda kind: kind is ContainerKind.APP)
    exclusive, percent, coreless = rng.random() < 0.2, rng.random() < 0.3, rng.random() < 0.4
    containers: list[Container] = []
    for place, kind in enumerate(kinds):
        # Equal containers are a case of their own.
        if containers and rng.random() < 0.25 and containers[-1].request is not None:
            request = containers[-1].request
        else:
            request = _request(rng, size, exclusive=exclusive, percent=percent, coreless=coreless)
        containers.append(Container(f"c{place}", kind, request if rng.random() < 0.95 else None))
    uuids = (
        frozenset(f"GPU-{i}" for i in range(size.cards) if rng.random() < 0.8) if rng.random() < 0.1 else frozenset()
    )
    return Pod(
        uid="arriving",
        namespace="team",
        name="arriving",
        containers=tuple(containers),
        inits_over=all(kind is not ContainerKind.INIT for kind in kinds),
        selection=Selection(use_uuids=uuids, numa_bind=rng.random() < 0.15),
        policies=Policies(card=parse_card_policy(rng.choice(_POLICIES))),
    )


def _request(rng: random.Random, size: Size, *, exclusive: bool, percent: bool, coreless: bool) -> DeviceRequest:
    cores = 100 if exclusive and rng.random() < 0.3 else rng.choice((0, 0, 10, 40) if coreless else (0, 10, 25, 40, 60))
    count = rng.randint(1, size.cards_each)
    if percent and rng.random() < 0.5:
        return DeviceRequest(count, 0, rng.choice((10, 33, 50, 50, 100)), cores)
    return DeviceRequest(count, rng.choice((2, 4, 7, 10, 12, 16, 20)), 0, cores)


def _node(rng: random.Random, name: str, size: Size) -> Node:
    memory = rng.choice(_MEMORY)
    mixed = rng.random() < 0.4
    devices = [
        Device(
            f"GPU-{i}",
            i,
            slots=rng.choice((1, 2, 3, 10, 10)),
            memory=rng.choice(_MEMORY) if mixed else memory,
            cores=rng.choice((100, 100, 100, 100, 200, 0)) if mixed else 100,
            numa=rng.randint(0, 1) if mixed else 2 * i // size.cards,
        )
        for i in range(rng.randint(2, size.cards))
    ]
    return Node(name, tuple(sorted(devices, key=tie_order)), single_numa=rng.random() < 0.1)


def _use(rng: random.Random, device: Device, idle: float) -> DeviceUse | None:
    if rng.random() < idle:
        return None
    if rng.random() < 0.05:
        return DeviceUse(device.uuid, 1, rng.randint(0, device.memory), min(100, device.cores), exclusive=True)
    slots = rng.randint(1, device.slots)
    cores = min(device.cores, rng.choice((0, 0, 20, 50, 90, 100)))
    return DeviceUse(device.uuid, slots, rng.randint(0, device.memory), cores)
