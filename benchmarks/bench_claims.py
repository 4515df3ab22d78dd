"""Measures what DRA claims cost: filter and prioritize beside them, their watch events, and their first list.

It exists because of two bounds: 1.1 times the time without claims, and 50 us per event. It must not judge. Invariant:
both clusters have the same nodes and pods, and each question has a UID of its own.

    python -m benchmarks.bench_claims [--nodes 10000] [--claims 20000] [-o FILE]
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from extender.cluster import Cluster
from extender.config import Settings
from extender.convert import convert_node
from extender.kube.reflector import Change
from extender.live.watching import ResourceClaimSink, ResourceSliceSink
from extender.verbs import Verbs
from extender.wire import core_v1
from tests.extender import dra
from tests.extender.objects import Json, card, container, node, pod, sidecar
from tests.extender.objects import asks as asked

CARDS = 8
MEMORY = 40960


def make_cluster(nodes: int) -> tuple[Cluster, list[str]]:
    """Nodes with eight cards each."""
    cluster = Cluster(Settings())
    names = [f"node-{number:05}" for number in range(nodes)]
    for name in names:
        raw = json.dumps(node(name, [card(f"GPU-{name}-{index}", index, memory=MEMORY) for index in range(CARDS)]))
        cluster.put_node(convert_node(msgspec.json.decode(raw, type=core_v1.Node), cluster.settings))
    return cluster, names


def slice_of(name: str) -> bytes:
    """What NVIDIA's driver publishes about a node."""
    devices = [dra.gpu(f"gpu-{index}", f"GPU-{name}-{index}", memory="40Gi") for index in range(CARDS)]
    return json.dumps(dra.resource_slice(*devices, name=f"{name}-gpus", node=name)).encode()


def claim_of(number: int, names: list[str], *, allocated: bool = True) -> bytes:
    """A claim of a whole card; two on each node."""
    name, device = names[number % len(names)], f"gpu-{number // len(names) % CARDS}"
    return json.dumps(
        dra.resource_claim(f"c{number}", dra.result(device, pool=name), allocated=allocated, node=name)
    ).encode()


def question(number: int) -> Json:
    """A pod with a sidecar, an init and an app, as in the project's first measure."""
    inits = [sidecar("side", asked("1", 2000)), container("init", asked("1", 20000))]
    return pod(f"p{number}", [container("app", asked("1", 10000 + number % 7))], inits=inits)


def ask(cluster: Cluster, names: list[str], rounds: int, change: Callable[[int], None]) -> list[float]:
    """Filter and prioritize a new pod after each change of the state; returns milliseconds."""
    verbs, found = Verbs(cluster), []
    for number in range(rounds):
        change(number)
        body = msgspec.json.encode({"Pod": question(number), "Nodes": None, "NodeNames": names})
        started = time.perf_counter()
        passed: Any = msgspec.json.decode(verbs.filter(body))
        between = time.perf_counter()
        again = msgspec.json.encode({"Pod": question(number), "Nodes": None, "NodeNames": passed["NodeNames"]})
        middle = time.perf_counter()
        verbs.prioritize(again)
        found.append((between - started + time.perf_counter() - middle) * 1000)
    return found


def run(nodes: int, claims: int, rounds: int) -> dict[str, float]:
    """Measure both in alternating rounds, so that a busy machine slows both alike; returns medians."""
    without, names = make_cluster(nodes)
    with_claims, _ = make_cluster(nodes)
    slices, sink = ResourceSliceSink(with_claims.resource_claims), ResourceClaimSink(with_claims.resource_claims)
    texts = [claim_of(number, names) for number in range(claims)]
    published = [slice_of(name) for name in names]
    started = time.process_time()
    for raw in published:
        slices.change(Change.PUT, msgspec.Raw(raw))
    slices.replaced({f"{name}-gpus" for name in names})
    for raw in texts:
        sink.change(Change.PUT, msgspec.Raw(raw))
    listed = time.process_time() - started
    gc.collect()
    gc.freeze()
    # An event: a claim loses its card, and gets it back.
    freed = [claim_of(number, names, allocated=False) for number in range(min(claims, 2000))]
    started = time.process_time()
    for raw, back in zip(freed, texts, strict=False):
        sink.change(Change.PUT, msgspec.Raw(raw))
        sink.change(Change.PUT, msgspec.Raw(back))
    event = (time.process_time() - started) / (2 * len(freed))

    def change_nothing_of_claims(cluster: Cluster) -> Callable[[int], None]:
        return lambda number: cluster.cache.put_cardless_pod(f"x{number}", names[number % len(names)], 1)

    plain: list[float] = []
    beside: list[float] = []
    for _ in range(rounds):
        plain += ask(without, names, 5, change_nothing_of_claims(without))
        beside += ask(with_claims, names, 5, change_nothing_of_claims(with_claims))
    return {
        "nodes": nodes,
        "claims": claims,
        "claims_held": len(with_claims.resource_claims),
        "list_cpu_seconds": round(listed, 3),
        "event_cpu_microseconds": round(event * 1e6, 1),
        "filter_and_prioritize_ms_without": round(statistics.median(plain), 3),
        "filter_and_prioritize_ms_with": round(statistics.median(beside), 3),
        "ratio": round(statistics.median(beside) / statistics.median(plain), 3),
    }


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="What DRA claims cost.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--claims", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    figures = json.dumps(run(arguments.nodes, arguments.claims, arguments.rounds), indent=2)
    if arguments.output is not None:
        arguments.output.write_text(f"{figures}\n", encoding="utf-8")
    sys.stdout.write(f"{figures}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
