"""What a watch event of each kind of holder costs: decode, convert, record, ledger.

It exists for the bound of 50 us for an event, and compares with a pod's event in the same run, because a busy machine
is slow for all of them. It must not judge. Invariant: each event differs from the one before it of its object; the
times are CPU times of this process, the best of some rounds.

    python -m benchmarks.bench_holders [--nodes 1000] [--objects 2000] [-o FILE]
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.measure import quiet_collector
from extender.cluster import Cluster
from extender.config import Settings
from extender.kube.reflector import Change, Sink
from extender.live.watching import Facts, NodeSink, PodInformer, PodSink, VmiSink, dra_sinks
from tests.extender import dra
from tests.extender.objects import Json, bound, card, node
from tests.extender.vmis import K, raw_pod, vmi

_ROUNDS = 5


def _text(obj: Json) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(obj).encode())


def make_cluster(names: Sequence[str], *, hold_sets: bool) -> Cluster:
    """Nodes with eight cards and eight whole devices each, and slices of the cards."""
    cluster = Cluster(Settings(raw_keys=(K,), hold_sets=hold_sets), deletions_are_told=True)
    sinks = dra_sinks(cluster)
    nodes = NodeSink(cluster, Facts())
    for name in names:
        made = node(name, [card(f"GPU-{name}-{index}", index, memory=40960) for index in range(8)])
        made.setdefault("status", {}).setdefault("allocatable", {})[K] = "8"
        nodes.change(Change.PUT, _text(made))
        devices = [dra.gpu(f"gpu-{index}", f"GPU-{name}-{index}", memory="40Gi") for index in range(8)]
        sinks["ResourceSlice"].change(Change.PUT, _text(dra.resource_slice(*devices, name=name, node=name)))
    sinks["ResourceSlice"].replaced(set(names))
    return cluster


def measure(sink: Sink, first: Sequence[msgspec.Raw], second: Sequence[msgspec.Raw]) -> float:
    """Microseconds per event, when objects go back and forth between two states."""
    best = float("inf")
    for raw in first:
        sink.change(Change.PUT, raw)
    with quiet_collector():
        for _ in range(_ROUNDS):
            started = time.process_time()
            for lines in (second, first):
                for raw in lines:
                    sink.change(Change.PUT, raw)
            best = min(best, (time.process_time() - started) / (len(first) + len(second)))
    return round(best * 1e6, 1)


def run(nodes: int, objects: int) -> dict[str, float]:
    """Measure each kind."""
    names = [f"n{number:05}" for number in range(nodes)]
    cluster = make_cluster(names, hold_sets=True)
    pods, vmis, claims = PodSink(cluster, PodInformer(cluster)), VmiSink(cluster), dra_sinks(cluster)["ResourceClaim"]
    numbers, found = range(objects), dict[str, float]()

    def both(make: Callable[[int, int], Json]) -> tuple[list[msgspec.Raw], list[msgspec.Raw]]:
        return [_text(make(number, 0)) for number in numbers], [_text(make(number, 1)) for number in numbers]

    def place(number: int) -> tuple[str, str]:
        name = names[number % nodes]
        return name, f"GPU-{name}-{number // nodes % 8}"

    def shared_pod(number: int, other: int) -> Json:
        made = bound(f"p{number}", *place(number), 1000)
        made["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": ("False", "True")[other]}]}
        return made

    def claim(number: int, other: int) -> Json:
        name, uuid = place(number)
        device = f"gpu-{(int(uuid.rpartition('-')[2]) + other) % 8}"
        return dra.resource_claim(f"c{number}", dra.result(device, pool=name), node=name)

    def machine(number: int, other: int) -> Json:
        listed = [f"uid-r{number}"] if other else []
        return vmi(f"v{number}", listed, units=1, node=names[number % nodes])

    def whole_pod(number: int, other: int) -> Json:
        made = raw_pod(f"r{number}", 1 + other, vmi=f"v{number}", node=names[number % nodes])
        made["status"] = {"phase": "Running"}
        return made

    found["pod"] = measure(pods, *both(shared_pod))
    found["claim"] = measure(claims, *both(claim))
    found["whole pod"] = measure(pods, *both(whole_pod))
    found["vmi that lists and unlists"] = measure(vmis, *both(machine))
    started, steps = time.process_time(), 0
    for _ in cluster.hold_sets.full_pass():
        steps += 1
    found["full pass, us per set"] = round((time.process_time() - started) / max(1, steps) * 4 * 1e6, 1)
    return found


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="What a watch event of each kind of holder costs, in us of CPU.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    figures = json.dumps(run(arguments.nodes, arguments.objects), indent=2)
    if arguments.output is not None:
        arguments.output.write_text(f"{figures}\n", encoding="utf-8")
    sys.stdout.write(f"{figures}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
