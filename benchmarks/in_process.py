"""Times the accounting alone, without HTTP and JSON, and the slow reference on the same question.

It exists to show what the arrays are worth, and which step of an answer costs what. It must not judge. Invariant: the
state changes before every timed call, and the fast answer is compared with the reference's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

import orjson

from accounting.answers.filter import filter_nodes
from accounting.cards.score import score_nodes
from accounting.pod import Pod
from accounting.pod_record import PodRecord, record_pod
from accounting.reference import fit as reference
from accounting.state.cache import Cache
from accounting.status import CODES
from benchmarks.figures import Step, Summary
from benchmarks.measure import quiet_collector
from benchmarks.questions import INIT_SIDECAR_APP, Questions
from extender.cluster.cluster import Cluster
from extender.cluster.loading import load_objects
from extender.config import Settings
from extender.convert.pod import convert_pod
from extender.wire.extender_v1 import decode_args

_WARM_UP: Final = 2


class Loaded:
    """A cluster in this process, one question about it, and a change that comes and goes."""

    def __init__(self, path: Path) -> None:
        settings = Settings()
        self.objects = load_objects([str(path)], settings)
        cluster = Cluster(settings)
        cluster.load(self.objects)
        self.cache: Cache = cluster.cache
        names = [node.name for node in self.objects.nodes]
        question = Questions(names, INIT_SIDECAR_APP, seed=1).next()
        self.names = question.names
        self.pod: Pod = convert_pod(decode_args(question.body()).pod, settings)
        self.pods = len(self.cache.pods)
        self._changes = cycle(_changes(self.cache, names))

    def change(self) -> None:
        record, there = next(self._changes)
        if there:
            self.cache.add_pod(record)
        else:
            self.cache.remove_pod(record.uid)

    def time(self, function: str, run: Callable[[], object], calls: int) -> Step:
        """Time a function right after a change of the state, so that nothing derived from the snapshot is reused."""
        times = [self._time_once(run) for _ in range(_WARM_UP + calls)]
        return Step(function, len(self.names), self.pods, Summary.of(times[_WARM_UP:]))

    def _time_once(self, run: Callable[[], object]) -> int:
        self.change()
        self.cache.snapshot()
        started = time.perf_counter_ns()
        run()
        return time.perf_counter_ns() - started


def steps(path: Path, calls: int) -> list[Step]:
    """Time each step of an answer on one cluster."""
    loaded = Loaded(path)
    cache, pod = loaded.cache, loaded.pod
    rows = cache.snapshot().rows_of(loaded.names)
    with quiet_collector():
        return [
            loaded.time("Snapshot.rows_of", lambda: cache.snapshot().rows_of(loaded.names), calls),
            loaded.time("filter_nodes", lambda: filter_nodes(cache.snapshot(), pod, rows), calls),
            loaded.time("score_nodes", lambda: score_nodes(cache.snapshot(), rows, pod.policies.node), calls),
            loaded.time("RequestedArrays.copy", cache.snapshot().requested.copy, calls),
        ]


def beside_reference(path: Path, calls: int) -> list[Step]:
    """Time the fast filter and the reference on one small cluster, and compare their answers."""
    loaded = Loaded(path)
    cache, pod, objects = loaded.cache, loaded.pod, loaded.objects
    rows = cache.snapshot().rows_of(loaded.names)
    verdict = filter_nodes(cache.snapshot(), pod, rows)
    slow = reference.filter_nodes(objects.nodes, objects.pods, pod)
    for name, fits, code in zip(loaded.names, verdict.feasible.tolist(), verdict.codes.tolist(), strict=True):
        assert slow[name][0] == (None if fits else CODES[code]), f"node {name}: the reference says {slow[name]}"
    with quiet_collector():
        return [
            loaded.time("filter_nodes", lambda: filter_nodes(cache.snapshot(), pod, rows), 20 * calls),
            loaded.time(
                "reference.filter_nodes", lambda: reference.filter_nodes(objects.nodes, objects.pods, pod), calls
            ),
        ]


def _changes(cache: Cache, names: Sequence[str]) -> list[tuple[PodRecord, bool]]:
    """Pods that come and go; each holds one slot of some card."""
    rng = random.Random(1)
    found = []
    for number, node in enumerate(rng.sample(names, min(50, len(names)))):
        uuid = min(cache.positions(node))
        manifest = {
            "metadata": {
                "name": f"change-{number}",
                "namespace": "vision",
                "annotations": {"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,1,0:;"},
            },
            "spec": {"nodeName": node, "containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        }
        body = orjson.dumps({"Pod": manifest, "Nodes": None, "NodeNames": []})
        record = record_pod(convert_pod(decode_args(body).pod, Settings()))
        found += [(record, True), (record, False)]
    return found
