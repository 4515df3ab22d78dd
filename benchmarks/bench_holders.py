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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.measure import quiet_collector
from extender.cluster import Cluster
from extender.config import Settings
from extender.kube.reflector import Change, Sink
from extender.live.watching import Facts, NodeSink, PodInformer, PodSink, VmiSink, dra_sinks
from tests.extender import dra
from tests.extender.objects import Json, bound, card, node
from tests.extender.vmis import K, raw_pod, vmi


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


_RUNNING = {"phase": "Running", "qosClass": "Burstable"}


class Kind(NamedTuple):
    """Objects of one kind, each in two states between which it goes back and forth."""

    sink: Sink
    first: Sequence[msgspec.Raw]
    second: Sequence[msgspec.Raw]
    there: str
    """What happens to an object that comes from the first state into the second."""
    back: str
    """What happens to it on the way back; the same text if that is the same."""


def measure(kinds: Mapping[str, Kind], rounds: int) -> dict[str, float]:
    """Return the microseconds per event of each kind. The kinds take turns, so that a busy machine slows all alike."""
    best: dict[str, float] = {}
    with quiet_collector():
        for _ in range(rounds):
            for name, (sink, first, second, there, back) in kinds.items():
                for raw in first:
                    sink.change(Change.PUT, raw)
                for what, lines in ((there, second), (back, first)):
                    label = f"{name}, {what}"
                    best[label] = min(best.get(label, float("inf")), _microseconds(sink, lines))
    return {label: round(microseconds, 1) for label, microseconds in best.items()}


def _microseconds(sink: Sink, lines: Sequence[msgspec.Raw]) -> float:
    """Return what an event costs, in microseconds of CPU."""
    started = time.process_time()
    for raw in lines:
        sink.change(Change.PUT, raw)
    return (time.process_time() - started) / len(lines) * 1e6


def _state(made: Json, other: int) -> Json:
    """A bound pod of which only a condition changes."""
    ready = {"type": "Ready", "status": ("False", "True")[other]}
    return made | {"status": _RUNNING | {"conditions": [ready]}}


class Objects:
    """Objects by number and state, over the nodes in turn."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def _place(self, number: int) -> tuple[str, int]:
        return self._names[number % len(self._names)], number // len(self._names) % 8

    def pod(self, number: int, other: int) -> Json:
        """A pod with a card's share; its readiness changes."""
        name, index = self._place(number)
        return _state(bound(f"p{number}", name, f"GPU-{name}-{index}", 1000), other)

    def moved_pod(self, number: int, other: int) -> Json:
        """A pod with a card's share; its annotation is edited, so that another card is held."""
        name, index = self._place(number)
        return bound(f"m{number}", name, f"GPU-{name}-{(index + other) % 8}", 1000) | {"status": _RUNNING}

    def new_pod(self, number: int, other: int) -> Json:
        """A pod with a card's share; it runs, and has ended."""
        name, index = self._place(number)
        made = bound(f"n{number}", name, f"GPU-{name}-{index}", 1000)
        return made | {"status": _RUNNING | {"phase": ("Running", "Succeeded")[other]}}

    def claim(self, number: int, other: int) -> Json:
        """A claim; a driver reports on its device."""
        name, index = self._place(number)
        device = f"gpu-{(index + 2) % 8}"
        made = dra.resource_claim(f"c{number}", dra.result(device, pool=name), node=name)
        reported = {"driver": dra.NVIDIA, "pool": name, "device": device, "data": {"try": other}}
        return made | {"status": made["status"] | {"devices": [reported]}}

    def given_claim(self, number: int, other: int) -> Json:
        """A claim; it is given a card, and released."""
        name, index = self._place(number)
        given = dra.result(f"gpu-{index}", pool=name)
        return dra.resource_claim(f"g{number}", given, allocated=not other, node=name)

    def moved_claim(self, number: int, other: int) -> Json:
        """A claim; it has another card than before, as if it had been made anew under its UID."""
        name, index = self._place(number)
        return dra.resource_claim(f"v{number}", dra.result(f"gpu-{(4 + 2 * index + other) % 8}", pool=name), node=name)

    def whole_pod(self, number: int, other: int) -> Json:
        """A pod with a whole device; its readiness changes."""
        return _state(raw_pod(f"w{number}", 1, node=self._place(number)[0]), other)

    def new_whole_pod(self, number: int, other: int) -> Json:
        """A pod with a whole device; it runs, and has ended."""
        made = raw_pod(f"e{number}", 1, node=self._place(number)[0])
        return made | {"status": _RUNNING | {"phase": ("Running", "Succeeded")[other]}}

    def larger_whole_pod(self, number: int, other: int) -> Json:
        """A launcher; it has one device more, or less."""
        made = raw_pod(f"r{number}", 1 + other, vmi=f"v{number}", node=self._place(number)[0])
        return made | {"status": _RUNNING}

    def machine(self, number: int, other: int) -> Json:
        """A VMI; it lists its launcher, or does not."""
        return vmi(f"v{number}", [f"uid-r{number}"] if other else [], units=1, node=self._place(number)[0])

    def still_machine(self, number: int, other: int) -> Json:
        """A VMI; a condition changes."""
        made = vmi(f"s{number}", [], units=1, node=self._place(number)[0])
        ready = {"type": "Ready", "status": ("False", "True")[other]}
        return made | {"status": made["status"] | {"conditions": [ready]}}


def run(nodes: int, objects: int, rounds: int) -> dict[str, float]:
    """Measure each kind."""
    names = [f"n{number:05}" for number in range(nodes)]
    cluster, made = make_cluster(names, hold_sets=True), Objects(names)
    pods, vmis, claims = PodSink(cluster, PodInformer(cluster)), VmiSink(cluster), dra_sinks(cluster)["ResourceClaim"]

    def kind(sink: Sink, make: Callable[[int, int], Json], there: str, back: str = "") -> Kind:
        first, second = ([_text(make(number, other)) for number in range(objects)] for other in (0, 1))
        return Kind(sink, first, second, there, back or there)

    return measure(
        {
            "pod": kind(pods, made.pod, "nothing changes"),
            "pod that ends": kind(pods, made.new_pod, "ends", "runs"),
            "pod with an edited annotation": kind(pods, made.moved_pod, "other card"),
            "claim": kind(claims, made.claim, "nothing changes"),
            "claim that is released": kind(claims, made.given_claim, "released", "given"),
            "claim made anew": kind(claims, made.moved_claim, "other card"),
            "whole device": kind(pods, made.whole_pod, "nothing changes"),
            "whole device that ends": kind(pods, made.new_whole_pod, "ends", "runs"),
            "launcher": kind(pods, made.larger_whole_pod, "one more", "one less"),
            "VMI": kind(vmis, made.still_machine, "nothing changes"),
            "VMI with a launcher": kind(vmis, made.machine, "lists it", "lists it no more"),
        },
        rounds,
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="What a watch event of each kind of holder costs, in us of CPU.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    figures = json.dumps(run(arguments.nodes, arguments.objects, arguments.rounds), indent=2)
    if arguments.output is not None:
        arguments.output.write_text(f"{figures}\n", encoding="utf-8")
    sys.stdout.write(f"{figures}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
