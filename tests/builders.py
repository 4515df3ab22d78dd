"""Short ways to write the nodes and pods of a test.

It exists so that a test shows only the numbers that it is about. It must not know how anything is accounted. Invariant:
what is built is legal: devices in tie order, container names that differ, inits are over exactly where there are none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from accounting.node import Device, Node, tie_order
from accounting.pod import (
    Allocation,
    Container,
    ContainerKind,
    DeviceRequest,
    DeviceRow,
    Pod,
    UnreadableAllocation,
)
from accounting.pod_record import record_pod
from accounting.policy import Policies, Weights, parse_card_policy, parse_node_policy
from accounting.selection import Selection
from accounting.state.cache import Cache
from accounting.state.snapshot import Snapshot
from accounting.status import Invalid
from accounting.topology import Link

MODEL = "NVIDIA A100-SXM4-40GB"
Row = tuple[str, int, int]


def make_apps(count: int) -> tuple[Container, ...]:
    """Apps that ask for nothing."""
    return tuple(Container(f"app{at}", ContainerKind.APP) for at in range(count))


def make_device(
    uuid: str = "GPU-0",
    *,
    index: int = 0,
    slots: int = 4,
    memory: int = 1000,
    cores: int = 100,
    model: str = MODEL,
    numa: int = 0,
    mode: str = "hami-core",
    healthy: bool = True,
) -> Device:
    """One card."""
    return Device(uuid, index, slots, memory, cores, model, numa, mode, healthy)


def make_devices(count: int, *, slots: int = 4, memory: int = 1000, cores: int = 100) -> tuple[Device, ...]:
    """Equal cards GPU-0, GPU-1, ... on NUMA node 0."""
    return tuple(make_device(f"GPU-{i}", index=i, slots=slots, memory=memory, cores=cores) for i in range(count))


def make_node(
    name: str = "n1",
    devices: Iterable[Device] | int = 1,
    *,
    cordoned: Iterable[str] = (),
    duplicated: Iterable[str] = (),
    count_allocatable: int | None = None,
    single_numa: bool = False,
    links: Iterable[Link] = (),
) -> Node:
    """A node with these cards, or with that many equal ones."""
    cards = make_devices(devices) if isinstance(devices, int) else tuple(sorted(devices, key=tie_order))
    return Node(
        name,
        cards,
        frozenset(cordoned),
        frozenset(duplicated),
        count_allocatable,
        single_numa=single_numa,
        links=tuple(links),
    )


def ask(count: int = 1, memory: int = 0, *, percentage: int = 0, cores: int = 0) -> DeviceRequest:
    """A request; without memory and percentage it means the whole card."""
    whole = not memory and not percentage
    return DeviceRequest(count, memory, 100 if whole else percentage, cores, whole)


def init(memory: int = 0, *, count: int = 1, percentage: int = 0, cores: int = 0) -> Container:
    """An ordinary init container."""
    return Container("", ContainerKind.INIT, ask(count, memory, percentage=percentage, cores=cores))


def sidecar(memory: int = 0, *, count: int = 1, percentage: int = 0, cores: int = 0) -> Container:
    """A native sidecar."""
    return Container("", ContainerKind.SIDECAR, ask(count, memory, percentage=percentage, cores=cores))


def app(memory: int = 0, *, count: int = 1, percentage: int = 0, cores: int = 0) -> Container:
    """An app container."""
    return Container("", ContainerKind.APP, ask(count, memory, percentage=percentage, cores=cores))


def plain(kind: ContainerKind = ContainerKind.APP) -> Container:
    """A container that asks for no card."""
    return Container("", kind)


def make_pod(
    name: str = "pod",
    containers: Sequence[Container] = (),
    *,
    uid: str | None = None,
    namespace: str = "default",
    node: str | None = None,
    allocation: Allocation | UnreadableAllocation | None = None,
    terminal: bool = False,
    inits_over: bool | None = None,
    selection: Selection | None = None,
    policies: Policies | None = None,
    invalid: tuple[Invalid, ...] = (),
) -> Pod:
    """A pod; its containers get names, and its inits are over if it has none."""
    named = tuple(
        replace(container, name=container.name or f"{container.kind}-{position}")
        for position, container in enumerate(containers)
    )
    no_inits = all(container.kind is not ContainerKind.INIT for container in named)
    return Pod(
        uid=f"uid-{name}" if uid is None else uid,
        namespace=namespace,
        name=name,
        containers=named,
        node=node,
        terminal=terminal,
        inits_over=no_inits if inits_over is None else inits_over,
        allocation=allocation,
        invalid=invalid,
        selection=selection or Selection(),
        policies=policies or Policies(),
    )


def make_policies(card: str = "spread", node: str = "binpack", weights: tuple[int, int, int] = (1, 1, 1)) -> Policies:
    """Policies by their annotation texts; weights of slots, cores and memory."""
    return Policies(parse_node_policy(node), parse_card_policy(card), Weights(*weights))


def make_allocation(*containers: Sequence[Row]) -> Allocation:
    """One sequence of (uuid, memory, cores) per container."""
    return tuple(tuple(DeviceRow(*row) for row in rows) for rows in containers)


def make_unreadable(*uuids: str) -> UnreadableAllocation:
    """An allocation in which only these UUIDs can be read."""
    return UnreadableAllocation(uuids, Invalid("allocation", "GPU-0;", "must be uuid,type,memory,cores"))


def make_cache(nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> Cache:
    """A cache that has seen these objects, nodes first."""
    cache = Cache()
    for node in nodes:
        cache.add_node(node)
    for pod in pods:
        cache.add_pod(record_pod(pod))
    return cache


def node_of(*memory: int, numa: int = 0) -> Node:
    """A node with cards GPU-0, GPU-1, ... of these sizes; with `numa` 1, two of them on each NUMA node."""
    return make_node(
        devices=[make_device(f"GPU-{i}", index=i, memory=size, numa=i // 2 * numa) for i, size in enumerate(memory)]
    )


def uuids_on(cache: Cache, node: str) -> dict[int, str]:
    """Return device position -> UUID."""
    return {position: uuid for uuid, position in cache.positions(node).items()}


def snapshot_bytes(snapshot: Snapshot) -> bytes:
    """Return every byte of a snapshot's arrays and row numbers."""
    arrays = [
        getattr(bundle, field.name) for bundle in (snapshot.nodes, snapshot.requested) for field in fields(bundle)
    ]
    return b"".join(array.tobytes() for array in arrays) + repr(sorted(snapshot.rows.items())).encode()
