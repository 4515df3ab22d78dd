"""Measures the extender where 10,000 VMs and 20,000 DRA claims hold devices: questions, first lists, stalls.

It exists because of three bounds: filter and prioritize at most 1.1 times what they take without them, all lists within
20 s, no stall over 50 ms. It must not judge. Invariants: both clusters have the same nodes and pods, questions take
turns, and each has a UID of its own; the API server is a process of its own.

    python -m benchmarks.bench_beside_holders [--nodes 10000] [--claims 20000] [--vmis 10000] [-o FILE]
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from benchmarks import live_cluster, processes
from benchmarks.holder_cluster import HolderCluster, name_of
from benchmarks.http_load import Address, Connection
from benchmarks.live_process import LiveProcess
from benchmarks.measure import quiet_collector
from extender.cluster import Cluster
from extender.config import Settings
from extender.kube.reflector import Change, Sink
from extender.live.watching import Facts, NodeSink, PodInformer, PodSink, VmiSink, dra_sinks
from extender.verbs import Verbs
from tests.extender.objects import Json, container, pod, sidecar
from tests.extender.objects import asks as asked
from tests.extender.vmis import K, raw_pod

_SYNC_SECONDS = 300.0
_BATCH = 100
#: The gauges of stalls remember two minutes at most.
_FORGET_SECONDS = 121.0
_SERVED = "resource.k8s.io/v1", "kubevirt.io/v1"
_VMI_PATH = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
_CLAIM_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
_LISTS = "nodes", "claims", "holds", "verify", "options", "usage", "summary"


# -- in one process ---------------------------------------------------------------------------------------------------


class Side:
    """A cluster with its nodes and pods, and perhaps what else holds cards."""

    def __init__(self, size: HolderCluster, *, holders: bool) -> None:
        self.cluster = Cluster(Settings(raw_keys=(K,), hold_sets=True), deletions_are_told=True)
        self.verbs = Verbs(self.cluster)
        self.listed_seconds = 0.0
        pods, sinks = PodSink(self.cluster, PodInformer(self.cluster)), dra_sinks(self.cluster)
        self._take(NodeSink(self.cluster, Facts()), size.node_objects())
        self._take(pods, chain(size.pod_objects(), size.launcher_objects() if holders else ()))
        if holders:
            self._take(sinks["ResourceSlice"], size.slice_objects())
            self._take(sinks["ResourceClaim"], size.claim_objects())
            self._take(VmiSink(self.cluster), size.machine_objects())
            for _ in self.cluster.hold_sets.full_pass():
                pass

    def _take(self, sink: Sink, objects: Iterable[Json]) -> None:
        """Take a list; only that is timed, not the making of its objects."""
        raws = [msgspec.Raw(json.dumps(each).encode()) for each in objects]
        # The extender's own process collects in a way of its own (`live/garbage.py`).
        with quiet_collector():
            started = time.process_time()
            identities = {sink.change(Change.PUT, raw).identity or "" for raw in raws}
            sink.replaced(identities)
            self.listed_seconds += time.process_time() - started


def question(number: int, *, whole: bool) -> Json:
    """A pod with a sidecar, an init and an app, as in the project's first measure; or one that wants a device."""
    if whole:
        return raw_pod(f"w{number}", 1, vmi="none")
    inits = [sidecar("side", asked("1", 2000)), container("init", asked("1", 20000))]
    return pod(f"q{number}", [container("app", asked("1", 10000 + number % 7))], inits=inits)


def ask(side: Side, names: list[str], number: int, *, whole: bool) -> float:
    """Filter and prioritize a new pod after a change of the state; returns milliseconds of CPU."""
    side.cluster.cache.put_cardless_pod(f"x{number}", names[number % len(names)], 1)
    made = question(number, whole=whole)
    body = msgspec.json.encode({"Pod": made, "Nodes": None, "NodeNames": names})
    started = time.process_time()
    answer = side.verbs.filter(body)
    passed = time.process_time() - started
    fitting: Any = msgspec.json.decode(answer)["NodeNames"]
    again = msgspec.json.encode({"Pod": made, "Nodes": None, "NodeNames": fitting})
    started = time.process_time()
    side.verbs.prioritize(again)
    return (passed + time.process_time() - started) * 1000


def in_process(size: HolderCluster, rounds: int) -> dict[str, Any]:
    """Ask both clusters by turns; returns medians."""
    plain, beside, names = Side(size, holders=False), Side(size, holders=True), size.names()
    gc.collect()
    gc.freeze()
    found: dict[str, Any] = {
        "claims_held": len(beside.cluster.resource_claims),
        "sets_held": len(beside.cluster.hold_sets),
        "list_cpu_seconds": round(beside.listed_seconds, 2),
        "list_cpu_seconds_without": round(plain.listed_seconds, 2),
    }
    for whole, what in ((False, "share"), (True, "whole device")):
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            for side, with_holders in ((plain, False), (beside, True)):
                times[with_holders].append(ask(side, names, number, whole=whole))
        without, with_them = (statistics.median(times[each][2:]) for each in (False, True))
        found[f"{what}: filter and prioritize, CPU ms"] = {
            "without": round(without, 2),
            "with": round(with_them, 2),
            "ratio": round(with_them / without, 3),
        }
    return found


# -- on an API server -------------------------------------------------------------------------------------------------


def send(api: Address, patches: Iterable[tuple[str, Json]]) -> None:
    """Let the API server have these changes, many at once."""
    batch: list[Json] = []
    with Connection(api) as connection:

        def flush() -> None:
            answer = connection.call("POST", "/_test/patch", json.dumps(batch).encode())
            assert answer.status == 200, answer
            batch.clear()

        for path, body in patches:
            batch.append({"path": path, "body": body})
            if len(batch) == _BATCH:
                flush()
        if batch:
            flush()


def changes(size: HolderCluster, count: int) -> Iterable[tuple[str, Json]]:
    """Claims that are released and given again, and VMs that unlist their launcher and list it again."""
    for turn in (0, 1):
        for number in range(min(count, size.claims)):
            status = size.claim(number, allocated=bool(turn))["status"]
            yield f"{_CLAIM_PATH}/c{number}/status", {"status": {"allocation": status.get("allocation")}}
        for number in range(min(count, size.vmis)):
            listed = name_of(number % size.nodes) if turn else None
            yield f"{_VMI_PATH}/v{number}/status", {"status": {"activePods": {f"uid-l{number}": listed}}}


def live(size: HolderCluster, events: int) -> dict[str, Any]:
    """Start the extender on an API server that has all of it, then change some, and ask for the lists."""
    with TemporaryDirectory(prefix="bench-holders-") as name:
        dump, kubeconfig = Path(name) / "cluster.jsonl", Path(name) / "kubeconfig"
        size.write(dump)
        served = [f"--serve={each}" for each in _SERVED]
        command = ["tests.apiserver", "--port", "0", "--load", str(dump), "--kubeconfig", str(kubeconfig), *served]
        flags = ("--raw-key", K, "--hold-sets")
        with processes.running(command) as api, live_cluster.extender(kubeconfig, flags) as started:
            return _measured(LiveProcess(started.pid, started.address), started.address, api.address, size, events)


def _measured(
    extender: LiveProcess, address: Address, api: Address, size: HolderCluster, events: int
) -> dict[str, Any]:
    begun, before = time.monotonic(), extender.cpu()
    extender.wait_until_ready(_SYNC_SECONDS)
    seconds, after = time.monotonic() - begun, extender.cpu()
    stalls = {"start and first lists": extender.stall()}
    extender.wait_until_quiet(_SYNC_SECONDS)
    with Connection(address) as connection:
        assert len(connection.call("GET", "/api/v1/claims").json()) == size.claims
        assert len(connection.call("GET", "/api/v1/holds").json()) == size.vmis
    time.sleep(_FORGET_SECONDS)
    extender.forget_stalls()
    before_events = extender.cpu()
    send(api, changes(size, events))
    extender.wait_until_quiet(_SYNC_SECONDS)
    used_us = (extender.cpu().used_ns - before_events.used_ns) / 1000
    stalls["events"] = extender.stall()
    with Connection(address) as connection:
        for path in _LISTS:
            assert connection.call("GET", f"/api/v1/{path}").status == 200, path
    stalls["events and lists that people ask for"] = extender.stall()
    return {
        "first_lists_seconds": round(seconds, 1),
        "first_lists_cpu_seconds": round((after.used_ns - before.used_ns) / 1e9, 1),
        "longest_full_collection_ms": round(extender.metric("full_collection_seconds") * 1000, 1),
        "peak_mib": extender.peak_kib() // 1024,
        "event_cpu_us_with_network": round(used_us / (2 * (min(events, size.claims) + min(events, size.vmis))), 1),
        "longest_stall_ms": {
            what: {"wall": each.wall_us / 1000, "cpu": each.cpu_us / 1000} for what, each in stalls.items()
        },
    }


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="The extender where VMs and DRA claims hold devices.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--claims", type=int, default=20_000)
    parser.add_argument("--vmis", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--events", type=int, default=5_000, help="claims and VMs that change, each twice")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    size = HolderCluster(arguments.nodes, arguments.claims, arguments.vmis)
    found = {"cluster": size._asdict(), **in_process(size, arguments.rounds), "live": live(size, arguments.events)}
    figures = json.dumps(found, indent=2)
    if arguments.output is not None:
        arguments.output.write_text(f"{figures}\n", encoding="utf-8")
    sys.stdout.write(f"{figures}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
