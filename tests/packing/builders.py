"""Clusters and workloads for the tests of packing."""

from collections.abc import Sequence

from accounting.node import Device, Node
from accounting.packing.mix import expected
from accounting.packing.shape import shape_of
from accounting.packing.workload import Workload, build_workload, plan_of
from accounting.pod import Container, ContainerKind, DeviceRequest, Pod
from accounting.policy import make_policies
from accounting.selection import Selection, parse_types
from accounting.state.cache import Cache


def card_node(name: str, cards: int = 2, *, cpu: int = 16_000, model: str = "T4", memory: int = 10_000) -> Node:
    """A node with equal cards."""
    devices = tuple(Device(f"{name}-{index}", index, 100, memory, 100, model) for index in range(cards))
    return Node(name, devices, cpu_milli=cpu)


def share_pod(
    percent: int, *, cards: int = 1, cpu: int = 1000, name: str = "p", policy: str = "fragmentation", types: str = ""
) -> Pod:
    """A pod that asks for a percentage of each of some cards; 0 asks for CPU alone."""
    request = DeviceRequest(cards, 0, percent, percent) if percent else None
    return Pod(
        uid=f"uid-{name}",
        namespace="d",
        name=name,
        containers=(Container("main", ContainerKind.APP, request),),
        inits_over=True,
        selection=Selection(use_types=parse_types(types)),
        policies=make_policies(policy, None),
        cpu_milli=cpu,
    )


def cluster_of(nodes: Sequence[Node]) -> Cache:
    """A cache that has seen these nodes."""
    cache = Cache()
    for node in nodes:
        cache.add_node(node)
    return cache


def workload_of(cache: Cache, pods: Sequence[Pod]) -> Workload:
    """The expected workload after pods like these."""
    plan = plan_of(cache.snapshot())
    return build_workload(expected([shape_of(pod) for pod in pods], plan.usual_memory), plan)


def named(pod: Pod, name: str) -> Pod:
    """The same pod under another name."""
    return pod._replace(uid=f"uid-{name}", name=name)


#: A small workload: fractions, whole cards, a pod that takes a node, CPU alone.
SOME_PODS = (
    *[share_pod(50, cpu=2000)] * 6,
    *[share_pod(20, cpu=1000)] * 5,
    *[share_pod(100, cpu=4000)] * 4,
    *[share_pod(100, cards=4, cpu=12_000)] * 2,
    *[share_pod(0, cpu=3000)] * 3,
)
