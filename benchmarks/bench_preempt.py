"""Measures preemption: one question with victims on 5,000 nodes, and a choice among 10,000 nodes.

It exists because kube-scheduler waits for the verb, and because a choice over all nodes must not hold up the loop that
answers it. Invariants: the state changes between two questions; the pods have the priorities of a mixed cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from random import Random
from statistics import median, quantiles
from typing import Any, TypeVar

import numpy as np
import orjson

from accounting.answers import filter_nodes
from accounting.answers.preemption import Chosen, NoVictims, choose
from accounting.node import Device, Node
from accounting.pod import Container, ContainerKind, DeviceRequest, DeviceRow, Pod
from accounting.pod_info import PodInfo, Room
from benchmarks.measure import quiet_collector
from extender.cluster import Cluster, Objects
from extender.config import Settings
from extender.live.evicting.table_keeper import TableKeeper
from extender.verbs import Verbs, preemptor_of

T = TypeVar("T")
CARDS = 8
MIB = 80_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=20, help="per node")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--choice", action="store_true", help="choose among all nodes, as --preemption=evict does")
    options = parser.parse_args()
    cluster = filled(options.nodes, options.pods, Random(options.seed), full=options.choice)
    if options.choice:
        for name, sizes in QUESTIONS.items():
            choice(cluster, name, sizes, options.rounds)
    else:
        verb(cluster, options.nodes, options.pods, options.rounds)


def filled(nodes: int, pods: int, random: Random, *, full: bool = False) -> Cluster:
    cluster = Cluster(Settings(), remembered_pods=10)
    made = [node(f"n{number:05}") for number in range(nodes)]
    cluster.load(
        Objects(tuple(made), tuple(running(n.name, i, pods, random, full=full) for n in made for i in range(pods)))
    )
    return cluster


def node(name: str) -> Node:
    cards = tuple(Device(f"GPU-{name}-{i}", i, 10, MIB, 100, "NVIDIA A100", i // 4) for i in range(CARDS))
    allocatable = (("cpu", 64_000), ("nvidia.com/gpu", 80), ("pods", 110))
    return Node(name, cards, count_allocatable=80, allocatable=allocatable)


def running(on: str, number: int, pods: int, random: Random, *, full: bool) -> Pod:
    """A pod on one card; on a full cluster no card has more than 32 GB free, and some have two pods."""
    sizes: tuple[int, ...] = (8_000, 16_000, 24_000)
    if full:
        sizes = (24_000, 32_000) if number % CARDS < pods - CARDS else (48_000, 56_000, 64_000)
    memory = random.choice(sizes)
    request = DeviceRequest(1, memory, 0, 0)
    info = PodInfo(random.choice((0, 0, 0, 10, 100)), room=Room((("cpu", 2_000), ("nvidia.com/gpu", 1))))
    return Pod(
        uid=f"{on}-{number:02}-0000-0000-0000-00000000",
        namespace="default",
        name=f"{on}-{number}",
        containers=(Container("main", ContainerKind.APP, request),),
        node=on,
        inits_over=True,
        allocation=((DeviceRow(f"GPU-{on}-{number % CARDS}", memory, 0),),),
        info=info,
        started=random.randrange(10**9),
    )


def preemptor(number: int, memory: int) -> dict[str, object]:
    quantities = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "cpu": "1"}
    resources = {"limits": quantities, "requests": quantities}
    return {
        "metadata": {"name": f"high-{number}", "namespace": "default", "uid": f"high-{number}"},
        "spec": {"priority": 1_000, "containers": [{"name": "main", "resources": resources}]},
    }


def verb(cluster: Cluster, nodes: int, pods: int, rounds: int) -> None:
    verbs, took, answered = Verbs(cluster), [], 0
    for number in range(rounds):
        meta = {
            f"n{at:05}": {
                "Pods": [{"UID": f"n{at:05}-{i:02}-0000-0000-0000-00000000"} for i in range(pods)],
                "NumPDBViolations": 0,
            }
            for at in range(nodes)
        }
        body = orjson.dumps(
            {"Pod": preemptor(number, 79_000 - number), "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        )
        with quiet_collector():
            began = time.thread_time_ns()
            answer = verbs.preempt(body)
            took.append((time.thread_time_ns() - began) / 1e6)
        answered = len(orjson.loads(answer)["NodeNameToMetaVictims"])
        cluster.delete_pod(f"n{number:05}-00-0000-0000-0000-00000000")
    print(f"preempt, {nodes} nodes x {pods} victims: {told(took)}, {answered} nodes answered")


#: What is asked of one card, container by container; GiB and cores.
QUESTIONS = {
    "one pod is enough": [(50, 0)],
    "two have to go": [(50, 0), (60, 0)],
    "four have to go": [(50, 0), (60, 0), (70, 0), (70, 0)],
    "a whole card": [(0, 100)],
}


def choice(cluster: Cluster, name: str, sizes: Sequence[tuple[int, int]], rounds: int) -> None:
    """Ask for pods of random sizes around these; between two questions another pod takes one's place."""
    keeper, random = TableKeeper(cluster), Random(7)
    took, filtered, slices, found = [], [], [], Counter[str]()
    table_ms, _ = timed(keeper.refresh())
    for number in range(rounds):
        pod = arriving(number, sizes, random)
        on = f"n{random.randrange(len(cluster.cache.nodes)):05}"
        old = f"{on}-{number % 8:02}-0000-0000-0000-00000000"
        left = cluster.pod(old)
        cluster.delete_pod(old)
        if left is not None:
            cluster.put_pod(left._replace(uid=f"{old[:-4]}-{name[:2]}{number}", started=left.started + 1))
        preemptor = preemptor_of(cluster, pod, plain=False)
        with quiet_collector():
            refreshed, snapshot = timed(keeper.refresh())
            began = time.thread_time_ns()
            rows = np.arange(snapshot.columns)
            look = partial(keeper.look, preemptor=preemptor)
            steps = choose(snapshot, preemptor, rows, keeper.table, look, cluster.residents.budgets.allowed)
            outcome, own = stepped(steps)
            took.append(refreshed + (time.thread_time_ns() - began) / 1e6)
            filtered.append(filtering(cluster, pod))
        slices.append(max(own))
        found[str(outcome) if isinstance(outcome, NoVictims) else f"{outcome.victims.cost.number} victims"] += 1
        if isinstance(outcome, Chosen) and outcome.limited:
            found["not all nodes searched"] += 1
    ratio = median(took) / median(filtered)
    print(
        f"choice, {name}: {told(took)}; {ratio:.1f} times the filter of the same pod ({told(filtered)}); "
        f"longest step {max(slices):.1f} ms; table {table_ms:.0f} ms; {dict(found)}"
    )


def filtering(cluster: Cluster, pod: Pod) -> float:
    """How long the verdict on all nodes takes for a pod that has just been created."""
    snapshot = cluster.cache.snapshot()
    snapshot.hopeless.clear()
    began = time.thread_time_ns()
    filter_nodes(snapshot, pod, np.arange(snapshot.columns))
    return (time.thread_time_ns() - began) / 1e6


def arriving(number: int, sizes: Sequence[tuple[int, int]], random: Random) -> Pod:
    requests = [
        DeviceRequest(1, gib * 1000 + random.randrange(500) if gib else 0, 0 if gib else 100, cores)
        for gib, cores in sizes
    ]
    containers = [Container(f"c{at}", ContainerKind.APP, each) for at, each in enumerate(requests)]
    return Pod(f"high-{number}", "default", f"high-{number}", tuple(containers), info=PodInfo(1_000), inits_over=True)


def stepped(steps: Iterator[None]) -> tuple[Chosen | NoVictims, list[float]]:
    """Run a choice; returns its end, and how long each step took."""
    took: list[float] = []
    while True:
        began = time.thread_time_ns()
        try:
            next(steps)
        except StopIteration as end:
            took.append((time.thread_time_ns() - began) / 1e6)
            return end.value, took
        took.append((time.thread_time_ns() - began) / 1e6)


def timed(work: Coroutine[Any, Any, T]) -> tuple[float, T]:
    began = time.thread_time_ns()
    done = asyncio.run(work)
    return (time.thread_time_ns() - began) / 1e6, done


def told(milliseconds: list[float]) -> str:
    cuts = quantiles(milliseconds, n=100)
    return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, most {max(milliseconds):.1f} ms"


if __name__ == "__main__":
    main()
