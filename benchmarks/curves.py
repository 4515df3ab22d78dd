"""Measures what filter and prioritize cost, by the number of nodes, cards, containers and placed pods, and by policy.

It exists to show how the cost grows, which one figure for one size cannot. It must not judge. Invariants: both verbs
run as they do behind HTTP, from body to body, in this process; every question is a new pod on a state that has just
changed; clusters come from a seed. Every curve starts from one cluster and varies one thing.

    python -m benchmarks.curves [--quick] [-o docs/curves.json] [--plot docs/curves]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from accounting.holdings import DeviceUse, Total
from accounting.node import Device, Node
from accounting.pod_record import PodRecord, State
from accounting.policy import NodePolicy
from benchmarks import curves_plot
from benchmarks.curves_plot import Curve, Point
from benchmarks.figures import Summary
from benchmarks.measure import quiet_collector
from benchmarks.questions import INIT_SIDECAR_APP, Ask, Asks, pod_object
from benchmarks.synthetic_pods import uuid4
from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.verbs.verbs import Verbs
from extender.wire.extender_v1 import raw_pod_and_names

_CARD_POLICIES: Final = ("binpack", "spread", "numa", "mutex", "topology-aware", "binpack,numa")
_SLOTS: Final = 10
_MEMORY: Final = (24_576, 40_960, 81_920)


class Plan(NamedTuple):
    """The cluster that every curve starts from, and the values along each of them."""

    nodes: int
    cards: int
    pods: int
    calls: int
    along_nodes: tuple[int, ...]
    along_cards: tuple[int, ...]
    along_containers: tuple[int, ...]
    along_pods: tuple[int, ...]


FULL: Final = Plan(
    nodes=10_000,
    cards=8,
    pods=100_000,
    calls=60,
    along_nodes=(100, 300, 1_000, 3_000, 10_000, 20_000),
    along_cards=(1, 2, 4, 8, 16),
    along_containers=(1, 2, 3, 4, 6, 8),
    along_pods=(0, 1_000, 10_000, 50_000, 100_000, 200_000),
)
QUICK: Final = Plan(300, 4, 1_000, 5, (100, 300), (1, 4), (1, 3), (0, 1_000))


class Subject:
    """A cluster in this process, and questions to it."""

    def __init__(self, nodes: int, cards: int, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self.cluster = Cluster(Settings())
        self._verbs = Verbs(self.cluster)
        self._names = [f"node-{number:05}" for number in range(nodes)]
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._cards = cards
        self.pods = 0
        for name in self._names:
            self.cluster.cache.add_node(self._node(name))
        self._change = self._record("change", self._names[0], 0, DeviceUse(f"GPU-{self._names[0]}-0", 1, 16, 0))

    def place(self, pods: int) -> None:
        """Add small running pods, spread over the cards, until there are that many."""
        while self.pods < pods:
            name = self._rng.choice(self._names)
            card = self._rng.randrange(self._cards)
            memory = self._sizes[name][card] // _SLOTS
            use = DeviceUse(f"GPU-{name}-{card}", 1, self._rng.randrange(256, memory // 4), self._rng.choice((0, 1, 5)))
            self.cluster.cache.add_pod(self._record(f"pod-{self.pods}", name, 1, use))
            self.pods += 1

    def ask(self, calls: int, asks: Asks, annotations: dict[str, str]) -> tuple[Summary, Summary]:
        """Return the times of filter and prioritize."""
        times: tuple[list[int], list[int]] = ([], [])
        with quiet_collector():
            for call in range(calls + 2):
                self._alter(call)
                body, names = self._question(call, asks, annotations)
                begun = time.perf_counter_ns()
                answer = self._verbs.filter(body)
                filtered = time.perf_counter_ns()
                passed = orjson.loads(answer)["NodeNames"] or []
                offered = b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (names, orjson.dumps(passed))
                asked = time.perf_counter_ns()
                self._verbs.prioritize(offered)
                ended = time.perf_counter_ns()
                # The first two warm up.
                if call > 1:
                    times[0].append(filtered - begun)
                    times[1].append(ended - asked)
        return Summary.of(times[0]), Summary.of(times[1])

    def _alter(self, call: int) -> None:
        cache = self.cluster.cache
        if call % 2:
            cache.remove_pod(self._change.uid)
        else:
            cache.add_pod(self._change)

    def _question(self, call: int, asks: Asks, annotations: dict[str, str]) -> tuple[bytes, bytes]:
        self._rng.shuffle(self._names)
        pod = pod_object(f"asking-{call}", uuid4(self._rng), asks)
        pod["metadata"]["annotations"] = annotations
        encoded = orjson.dumps(pod)
        body = b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (encoded, orjson.dumps(self._names))
        assert raw_pod_and_names(body) is not None
        return body, encoded

    def _node(self, name: str) -> Node:
        sizes = self._sizes[name] = (self._rng.choice(_MEMORY),) * self._cards
        devices = tuple(
            Device(
                f"GPU-{name}-{card}",
                card,
                slots=_SLOTS,
                memory=size,
                cores=100,
                type="NVIDIA A100",
                numa=2 * card // max(2, self._cards),
                mode="hami-core",
            )
            for card, size in enumerate(sizes)
        )
        return Node(name, devices, count_allocatable=_SLOTS * self._cards)

    def _record(self, name: str, node: str, count: int, use: DeviceUse) -> PodRecord:
        total = Total(count, use.memory, use.cores)
        return PodRecord(
            uid=f"uid-{name}",
            namespace="vision",
            name=name,
            node=node,
            state=State.STEADY,
            peak=(use,),
            steady=(use,),
            total_peak=total,
            total_steady=total,
            readable=True,
        )


def containers(number: int) -> Asks:
    """Return that many containers that ask for a card each: an init, a sidecar, then apps."""
    kinds = (
        ("app",) if number == 1 else ("init", "app") if number == 2 else ("init", "sidecar", *["app"] * (number - 2))
    )
    return tuple(Ask(kind, f"{kind}-{place}", 1, 4_000 + 500 * place, 5) for place, kind in enumerate(kinds))


def curves(plan: Plan) -> Iterator[tuple[str, str, Point]]:
    """Yield the name of a curve, its unit and a point of it, one measurement after another."""
    policy = {"hami.io/node-scheduler-policy": "binpack", "hami.io/gpu-scheduler-policy": "binpack"}

    def point(subject: Subject, label: str, asks: Asks = INIT_SIDECAR_APP, more: dict[str, str] | None = None) -> Point:
        return Point(label, *subject.ask(plan.calls, asks, policy | (more or {})))

    for nodes in plan.along_nodes:
        subject = Subject(nodes, plan.cards)
        subject.place(nodes * plan.pods // plan.nodes)
        yield "nodes", "nodes", point(subject, f"{nodes:,}")
    for cards in plan.along_cards:
        subject = Subject(plan.nodes, cards)
        subject.place(plan.pods * cards // plan.cards)
        yield "cards", "cards per node", point(subject, f"{cards}")
    subject = Subject(plan.nodes, plan.cards)
    for pods in plan.along_pods:
        subject.place(pods)
        yield "pods", "placed pods", point(subject, f"{pods:,}")
    subject = Subject(plan.nodes, plan.cards)
    subject.place(plan.pods)
    for number in plan.along_containers:
        yield "containers", "containers that ask for a card", point(subject, f"{number}", containers(number))
    for node_policy in NodePolicy:
        chosen = {"hami.io/node-scheduler-policy": node_policy.value}
        yield "node policies", "node policy", point(subject, node_policy.value, more=chosen)
    for card_policy in _CARD_POLICIES:
        chosen = {"hami.io/gpu-scheduler-policy": card_policy}
        yield "card policies", "card policy", point(subject, card_policy, more=chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    plan = QUICK if options.quick else FULL
    along = (
        plan.along_nodes,
        plan.along_cards,
        plan.along_pods,
        plan.along_containers,
        tuple(NodePolicy),
        _CARD_POLICIES,
    )
    found: dict[str, Curve] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("measure", total=sum(len(tuple(each)) for each in along))
        for name, unit, point in curves(plan):
            found.setdefault(name, Curve(name, unit, [])).points.append(point)
            progress.update(task, advance=1, description=f"{name}: {point.label}")
    else_ = f"else {plan.nodes:,} nodes with {plan.cards} cards and {plan.pods:,} pods"
    caption = f"{else_}; init + sidecar + app, binpack; {plan.calls} calls"
    _show(list(found.values()), caption)
    if options.output is not None:
        report = {"plan": plan._asdict(), "curves": {name: curve.as_json() for name, curve in found.items()}}
        options.output.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    if options.plot is not None:
        print("wrote", *curves_plot.plot(options.plot, list(found.values()), caption))
    return 0


def _show(found: Sequence[Curve], caption: str) -> None:
    print(f"p50 and p99 in ms; {caption}")
    for curve in found:
        print(f"{curve.unit:<32} {'filter':>16} {'prioritize':>16}")
        for point in curve.points:
            pairs = (
                f"{each.p50_us / 1000:7.2f} {each.p99_us / 1000:7.2f}" for each in (point.filter, point.prioritize)
            )
            print(f"  {point.label:<30} {'  '.join(f'{pair:>16}' for pair in pairs)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small clusters and few calls")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    parser.add_argument("--plot", metavar="BASE", help="write BASE.svg and BASE.png; needs matplotlib")
    return parser


if __name__ == "__main__":
    sys.exit(main())
