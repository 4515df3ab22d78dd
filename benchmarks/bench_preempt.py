"""Measures preemption: one question with victims on 5,000 nodes, and a choice among 10,000 nodes.

It exists because kube-scheduler waits for the verb, and because a choice over all nodes must not hold up the loop that
answers it. Invariants: the state changes between two questions; the pods have the priorities of a mixed cluster.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from statistics import quantiles

import orjson

from accounting.node import Device, Node
from accounting.pod import Container, ContainerKind, DeviceRequest, DeviceRow, Pod
from accounting.pod_info import PodInfo, Room
from benchmarks.measure import quiet_collector
from extender.cluster import Cluster, Objects
from extender.config import Settings
from extender.verbs import Verbs

CARDS = 8
MIB = 80_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=20, help="per node")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cluster = filled(options.nodes, options.pods, Random(options.seed))
    verb(cluster, options.nodes, options.pods, options.rounds)


def filled(nodes: int, pods: int, random: Random) -> Cluster:
    cluster = Cluster(Settings(), remembered_pods=10)
    made = [node(f"n{number:05}") for number in range(nodes)]
    cluster.load(Objects(tuple(made), tuple(running(n.name, i, random) for n in made for i in range(pods))))
    return cluster


def node(name: str) -> Node:
    cards = tuple(Device(f"GPU-{name}-{i}", i, 10, MIB, 100, "NVIDIA A100", i // 4) for i in range(CARDS))
    allocatable = (("cpu", 64_000), ("nvidia.com/gpu", 80), ("pods", 110))
    return Node(name, cards, count_allocatable=80, allocatable=allocatable)


def running(on: str, number: int, random: Random) -> Pod:
    memory = random.choice((8_000, 16_000, 24_000))
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


def told(milliseconds: list[float]) -> str:
    cuts = quantiles(milliseconds, n=100)
    return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, most {max(milliseconds):.1f} ms"


if __name__ == "__main__":
    main()
