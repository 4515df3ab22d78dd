"""Writes a synthetic cluster as `kubectl get nodes,pods,resourcequotas -A -o json` would, from a seed.

It exists so that benchmarks and trials have clusters of any size, without anybody's data. It must not import
`accounting`: a cluster that shared the code under test would hide its faults. Invariant: no card is ever
over-committed, counting every pod at its peak and an exclusive row alone on its card; the same arguments give the same
bytes, and more pods extend the same cluster.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import synthetic_pods as sp

SLOTS: Final = 10
CORES: Final = 100
MAX_NODES: Final = 20_000
MAX_CARDS: Final = 16
PODS_PER_NODE: Final = 250  # above SLOTS * MAX_CARDS, so that cards and not the kubelet end the filling
SPARE_PODS: Final = 100_000  # that a namespace may still create
TRIES: Final = 6
MAX_CONTAINERS: Final = 8
MAX_POD_BYTES: Final = 1 << 20


class ArgumentError(ValueError):
    """An argument is out of range."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"{field}: {value}: {why}")


class Model(NamedTuple):
    """A card model as the device plugin registers it."""

    type: str
    memory_mib: int
    pool: str


MODELS: Final[dict[Model, int]] = {
    Model("NVIDIA A100-SXM4-80GB", 81_920, "a100"): 30,
    Model("NVIDIA H100 80GB HBM3", 81_559, "h100"): 15,
    Model("NVIDIA L40S", 46_068, "l40s"): 20,
    Model("NVIDIA-Tesla V100-SXM2-32GB", 32_768, "v100"): 15,
    Model("NVIDIA A10", 23_028, "a10"): 10,
    Model("NVIDIA-Tesla T4", 15_360, "t4"): 10,
}


class Node(NamedTuple):
    """A node and its cards in index order."""

    name: str
    model: Model
    uuids: tuple[str, ...]


class Room:
    """The free slots, memory and cores of every card, in flat arrays: card `c` of node `n` is at n * cards + c."""

    def __init__(self, nodes: Sequence[Node], cards: int) -> None:
        self.nodes = nodes
        self.cards = cards
        self.open = list(range(len(nodes)))  # nodes not yet known to be full
        self.slots = [SLOTS] * (len(nodes) * cards)
        self.memory_mib = [node.model.memory_mib for node in nodes for _ in range(cards)]
        self.cores = [CORES] * (len(nodes) * cards)

    def fits(self, at: int, need: sp.Need) -> bool:
        """Whether the card has room for the need. A card whose cores are all taken has none for a row with cores 0."""
        return (
            self.slots[at] >= (SLOTS if need.unused else need.use.slots)
            and self.memory_mib[at] >= need.use.memory_mib
            and self.cores[at] >= need.use.cores + need.spare_core
        )

    def find(self, rng: random.Random, node: int, plans: Sequence[sp.Plan]) -> dict[int, sp.Need] | None:
        """Return a card for every role, searching from a random card on; None if a role finds none."""
        first = node * self.cards
        start = rng.randrange(self.cards)
        chosen: dict[int, sp.Need] = {}
        for need in sp.needs(plans, self.nodes[node].model.memory_mib):
            for step in range(self.cards):
                at = first + (start + step) % self.cards
                if at not in chosen and self.fits(at, need):
                    chosen[at] = need
                    break
            else:
                return None
        return chosen

    def place(
        self, rng: random.Random, pod: sp.Pod, smallest: tuple[sp.Plan, ...] = sp.SMALLEST
    ) -> tuple[sp.Pod, sp.Place] | None:
        """Place the pod, or the smallest pod where a few nodes have no room; None if nothing fits anywhere."""
        for _ in range(TRIES if self.open else 0):
            node = rng.choice(self.open)
            if chosen := self.find(rng, node, pod.plans):
                return pod, self._take(node, chosen, pod)
        pod = pod._replace(plans=smallest, state=pod.state if pod.state in sp.TERMINAL else "running")
        while self.open:
            slot = rng.randrange(len(self.open))
            node = self.open[slot]
            if chosen := self.find(rng, node, pod.plans):
                return pod, self._take(node, chosen, pod)
            self.open[slot] = self.open[-1]
            self.open.pop()
        return None

    def _take(self, node: int, chosen: dict[int, sp.Need], pod: sp.Pod) -> sp.Place:
        """Take what the pod holds at its peak; a terminal pod holds nothing."""
        for at, need in chosen.items() if pod.state not in sp.TERMINAL else ():
            self.slots[at] -= need.use.slots
            self.memory_mib[at] -= need.use.memory_mib
            self.cores[at] -= need.use.cores
        name, model, uuids = self.nodes[node]
        return sp.Place(name, model.memory_mib, tuple(uuids[at - node * self.cards] for at in chosen))


class Shape(NamedTuple):
    """The least size of pods: in containers, and in bytes of JSON. 0: as they are drawn."""

    containers: int = 0
    pod_bytes: int = 0


AS_DRAWN: Final = Shape()


def generate(
    nodes: int,
    pods: int,
    seed: int,
    cards: int = 8,
    progress: Callable[[int], None] | None = None,
    shape: Shape = AS_DRAWN,
) -> Iterator[dict[str, Any]]:
    """Yield nodes, bound pods and quotas. There are fewer pods than asked for once the cards are full.

    `progress` is called with the number of objects so far. A bad argument raises ArgumentError at the call itself.
    """
    for field, value, low, high in (
        ("nodes", nodes, 1, MAX_NODES),
        ("cards", cards, 1, MAX_CARDS),
        ("pods", pods, 0, None),
        ("seed", seed, 0, None),  # random.Random takes -1 and 1 for the same seed
        ("containers", shape.containers, 0, MAX_CONTAINERS),
        ("pod-bytes", shape.pod_bytes, 0, MAX_POD_BYTES),
    ):
        if value < low or (high is not None and value > high):
            raise ArgumentError(field, value, f"must be at least {low}" if high is None else f"must be {low} to {high}")
    objects = _objects(random.Random(seed), nodes, pods, cards, shape)
    return objects if progress is None else _counted(objects, progress)


def _counted(objects: Iterable[sp.Object], progress: Callable[[int], None]) -> Iterator[sp.Object]:
    for done, item in enumerate(objects, start=1):
        progress(done)
        yield item


def _objects(rng: random.Random, nodes: int, pods: int, cards: int, shape: Shape) -> Iterator[sp.Object]:
    drawn = []
    for number in range(nodes):
        model = rng.choices(tuple(MODELS), tuple(MODELS.values()))[0]
        uuids = tuple(f"GPU-{sp.uuid4(rng)}" for _ in range(cards))
        drawn.append(Node(f"gpu-{model.pool}-{number:05d}", model, uuids))
        yield node_object(rng, drawn[-1], number)
    room = Room(drawn, cards)
    used = {namespace: (0, sp.Use(0, 0, 0)) for namespace in sp.NAMESPACES}
    for number in range(pods):
        drawn_pod = sp.draw_pod(rng)
        drawn_pod = drawn_pod._replace(plans=sp.with_containers(drawn_pod.plans, shape.containers))
        placed = room.place(rng, drawn_pod, sp.with_containers(sp.SMALLEST, shape.containers))
        if placed is None:
            break
        pod, place = placed
        if pod.state not in sp.TERMINAL:
            count, total = used[pod.namespace]
            used[pod.namespace] = (count + 1, sp.add(total, sp.total_peak(pod.plans, place.card_mib)))
        yield sp.pad(sp.pod_object(rng, pod, place, number), shape.pod_bytes)
    memory_mib = cards * sum(node.model.memory_mib for node in drawn)
    for namespace, (count, total) in used.items():
        spare = sp.Use(SLOTS * cards * nodes, memory_mib, CORES * cards * nodes)
        yield quota_object(rng, namespace, count, total, sp.add(total, spare))


def node_object(rng: random.Random, node: Node, number: int) -> sp.Object:
    created = sp.timestamp(sp.NOW_SECONDS - 60 * sp.DAY_SECONDS)
    product = node.model.type.removeprefix("NVIDIA-").removeprefix("NVIDIA ").replace(" ", "-")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "uid": sp.uuid4(rng),
            "resourceVersion": str(1_000 + number),
            "creationTimestamp": created,
            "labels": {
                "gpu": "on",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": f"{node.model.pool}x{len(node.uuids)}",
                "nvidia.com/gpu.count": str(len(node.uuids)),
                "nvidia.com/gpu.product": product,
                "topology.kubernetes.io/zone": f"zone-{'abc'[number % 3]}",
            },
            "annotations": {
                "hami.io/node-handshake": "Requesting_2025-12-31 23:59:30",
                "hami.io/node-nvidia-register": register(rng, node),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": _node_status(node, number, created),
    }


def register(rng: random.Random, node: Node) -> str:
    """Return the cards as the device plugin writes them: without zero values, in no order."""
    cards = []
    for index, uuid in enumerate(node.uuids):
        card: sp.Object = {
            "id": uuid,
            "index": index,
            "count": SLOTS,
            "devmem": node.model.memory_mib,
            "devcore": CORES,
            "type": node.model.type,
            "numa": index * 2 // len(node.uuids),
            "mode": "hami-core",
            "health": True,
        }
        cards.append({key: value for key, value in card.items() if value})
    rng.shuffle(cards)
    return orjson.dumps(cards).decode()


def _node_status(node: Node, number: int, created: str) -> sp.Object:
    cards = len(node.uuids)
    # Enough CPU and memory for a container in every slot: cards alone decide what fits.
    capacity = {
        "cpu": str(16 * cards),
        "memory": f"{128 * cards}Gi",
        "nvidia.com/gpu": str(SLOTS * cards),
        "pods": str(PODS_PER_NODE),
    }
    heartbeat = sp.timestamp(sp.NOW_SECONDS - 20)
    conditions = [("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"), ("Ready", "True")]
    return {
        "capacity": capacity,
        "allocatable": capacity | {"cpu": f"{16_000 * cards - 500}m", "memory": f"{128 * cards - 4}Gi"},
        "conditions": [
            {"type": name, "status": status, "lastHeartbeatTime": heartbeat, "lastTransitionTime": created}
            for name, status in conditions
        ],
        "addresses": [
            {"type": "InternalIP", "address": f"172.16.{number >> 8 & 255}.{number & 255}"},
            {"type": "Hostname", "address": node.name},
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.8.0-60-generic",
            "kubeletVersion": "v1.36.2",
            "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.2 LTS",
        },
    }


def quota_object(rng: random.Random, namespace: str, pods: int, used: sp.Use, hard: sp.Use) -> sp.Object:
    """Return a namespace's quota. The API server itself counts only its `pods` and `requests.`."""
    limits = {
        "limits.nvidia.com/gpucores": sp.quantity(hard.cores),
        "limits.nvidia.com/gpumem": sp.quantity(hard.memory_mib),
        "pods": sp.quantity(pods + SPARE_PODS),
        "requests.nvidia.com/gpu": sp.quantity(hard.slots),
    }
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu", "namespace": namespace, "uid": sp.uuid4(rng), "resourceVersion": "900"},
        "spec": {"hard": limits},
        "status": {
            "hard": limits,
            "used": {"pods": sp.quantity(pods), "requests.nvidia.com/gpu": sp.quantity(used.slots)},
        },
    }


def write(objects: Iterable[sp.Object], sink: BinaryIO) -> int:
    """Write the List, one object on each line; returns how many pods it has."""
    pods = 0
    sink.write(b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[')
    for number, item in enumerate(objects):
        sink.write(b",\n" if number else b"\n")
        sink.write(orjson.dumps(item))
        pods += item["kind"] == "Pod"
    sink.write(b"\n]}\n")
    return pods


@contextmanager
def progress_on_stderr(total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; elsewhere one line per 10 %."""
    if not sys.stderr.isatty():
        yield lambda done: _progress_line(done, total)
        return
    columns = (TextColumn("objects"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("objects", total=total)
        step = max(1, total // 500)
        yield lambda done: bar.update(task, completed=done) if done % step == 0 or done == total else None


def _progress_line(done: int, total: int) -> None:
    tenth = done * 10 // total
    if tenth > (done - 1) * 10 // total:
        sys.stderr.write(f"{10 * tenth} % ({done} of {total} objects)\n")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Write a usage error in the form of every other error."""
        self.exit(2, f"error: command line: {' '.join(sys.argv[1:])}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m benchmarks.synthetic", description=__doc__, allow_abbrev=False)
    parser.add_argument("--nodes", default="1000", help=f"1 to {MAX_NODES} (default: %(default)s)")
    parser.add_argument("--pods", default="10000", help="GPU pods, all bound (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="an integer from 0 (default: %(default)s)")
    parser.add_argument("--cards", default="8", help=f"cards per node, 1 to {MAX_CARDS} (default: %(default)s)")
    parser.add_argument("--containers", default="0", help="at least so many a pod (default: as they are drawn)")
    parser.add_argument("--pod-bytes", default="0", help="at least so large is a pod's JSON (default: as it is drawn)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="- is standard output (default: -)")
    return parser


def _integer(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(field, text, "must be an integer") from None


def main(argv: Sequence[str] | None = None) -> int:
    options = vars(_parser().parse_args(argv))
    output = options.pop("output")
    try:
        numbers = {field: _integer(field.replace("_", "-"), text) for field, text in options.items()}
        placed = _run(output, **numbers)
    except ArgumentError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: output: {output}: {error.strerror}\n")
        return 2
    if placed < numbers["pods"]:
        sys.stderr.write(f"placed {placed} of {numbers['pods']} pods: no card has room for more\n")
    return 0


def _run(output: str, *, nodes: int, pods: int, seed: int, cards: int, containers: int, pod_bytes: int) -> int:
    shape = Shape(containers, pod_bytes)
    generate(nodes, pods, seed, cards, shape=shape)  # a bad argument must leave the file alone
    with (
        open(sys.stdout.fileno() if output == "-" else output, "wb", closefd=output != "-") as sink,
        progress_on_stderr(nodes + pods + len(sp.NAMESPACES)) as progress,
    ):
        return write(generate(nodes, pods, seed, cards, progress, shape), sink)


if __name__ == "__main__":
    raise SystemExit(main())
