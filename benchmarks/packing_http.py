"""Replays the openb trace through the extender's HTTP verbs, as kube-scheduler would, beside the in-process replay.

    python -m benchmarks.packing_http --trace-dir DIR [--seed 42 --seed 43]

This program plays kube-scheduler: it offers the nodes with CPU and memory, asks filter and prioritize, takes a node
with the highest score, at random among several, and binds. Every choice must equal that of the in-process replay, which
shows that the range 0..10 and random ties lose nothing. The exit status is 1 at the first difference.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np
from rich.progress import track

from accounting.packing.state import PLENTY_MILLI
from accounting.policy import make_policies
from extender.cluster.cluster import Cluster
from extender.config import ServerSettings, Settings
from extender.convert.node import convert_node
from extender.server.app import make_app
from extender.server.ports import start
from extender.simulation.curves import Scenario, make_scenario
from extender.simulation.replay import Replay
from extender.simulation.stream import arrivals
from extender.simulation.trace import Job, Machine, read_jobs, read_machines
from extender.wire import core_v1

Json = dict[str, Any]


@dataclass(slots=True)
class Compared:
    """How many pods were placed alike, how many nodes refused all, and the first difference."""

    pods: int = 0
    placed: int = 0
    tied: int = 0
    """Pods for which several nodes had the highest score."""
    difference: str | None = None


def node_manifest(machine: Machine) -> Json:
    node = machine.node
    cards = [
        {
            "id": card.uuid,
            "index": card.index,
            "count": card.slots,
            "devmem": card.memory,
            "devcore": card.cores,
            "type": card.type,
            "numa": card.numa,
            "health": True,
        }
        for card in node.devices
    ]
    annotations = {"hami.io/node-nvidia-register": json.dumps(cards)}
    status = {"allocatable": {"cpu": f"{node.cpu_milli}m"}}
    return {"kind": "Node", "metadata": {"name": node.name, "annotations": annotations}, "status": status}


def pod_manifest(job: Job, uid: str) -> Json:
    pod = job.pod
    resources: Json = {"requests": {"cpu": f"{pod.cpu_milli}m"}}
    request = pod.containers[0].request
    if request is not None:
        resources["limits"] = {
            "nvidia.com/gpu": str(request.count),
            "nvidia.com/gpumem-percentage": str(request.memory_percentage),
            "nvidia.com/gpucores": str(request.cores),
        }
    types = ",".join("-".join(tokens) for tokens in pod.selection.use_types)
    annotations = {"nvidia.com/use-gputype": types} if types else {}
    meta = {"name": uid, "namespace": "openb", "uid": uid, "annotations": annotations}
    return {"metadata": meta, "spec": {"containers": [{"name": "main", "resources": resources}]}}


class Scheduler:
    """Plays kube-scheduler for the extender at the other end of a session."""

    def __init__(self, session: aiohttp.ClientSession, machines: list[Machine], seed: int) -> None:
        self._session = session
        self._random = random.Random(seed)
        self._names = [machine.node.name for machine in machines]
        self._at = {name: at for at, name in enumerate(self._names)}
        cpu = (PLENTY_MILLI if each.node.cpu_milli is None else each.node.cpu_milli for each in machines)
        self._cpu = np.array(list(cpu))
        self._memory = np.array([PLENTY_MILLI if each.memory_mib is None else each.memory_mib for each in machines])
        self.tied = 0

    async def place(self, job: Job, uid: str) -> str | None:
        """Schedule one pod; returns its node."""
        fits = (self._cpu >= job.pod.cpu_milli) & (self._memory >= job.memory_mib)
        args = {"Pod": pod_manifest(job, uid), "NodeNames": [self._names[at] for at in np.flatnonzero(fits).tolist()]}
        passed: list[str] = (await self._post("filter", args))["NodeNames"]
        if not passed:
            return None
        scores = dict.fromkeys(passed, 0)
        if len(passed) > 1:
            answer = await self._post("prioritize", args | {"NodeNames": passed})
            scores |= {entry["Host"]: entry["Score"] for entry in answer}
        best = [name for name in passed if scores[name] == max(scores.values())]
        self.tied += len(best) > 1
        node: str = self._random.choice(best)
        bound = await self._post("bind", {"PodName": uid, "PodNamespace": "openb", "PodUID": uid, "Node": node})
        assert not bound["Error"], bound["Error"]
        self._cpu[self._at[node]] -= job.pod.cpu_milli
        self._memory[self._at[node]] -= job.memory_mib
        return node

    async def _post(self, verb: str, body: Json) -> Any:  # noqa: ANN401 - JSON
        async with self._session.post(f"/{verb}", data=json.dumps(body).encode()) as response:
            return json.loads(await response.read())


async def compare(scenario: Scenario, policy: str, seed: int, percent: int) -> Compared:
    """Replay one order of arrival both ways."""
    settings, server = Settings(policies=make_policies(policy, None)), ServerSettings(port=0)
    cluster, machines = Cluster(settings), list(scenario.machines)
    for machine in machines:
        wire = core_v1.decode_node(json.dumps(node_manifest(machine)).encode())
        cluster.cache.add_node(convert_node(wire, settings))
    cluster.expect(scenario.workload)
    replay, outcome = Replay(machines, policy, scenario.workload, seed), Compared()
    order = arrivals(scenario.jobs, scenario.demand, scenario.capacity * percent // 100, seed)
    runner, port = await start(make_app(cluster, server), server)
    try:
        async with aiohttp.ClientSession(f"http://{server.bind_address}:{port}") as session:
            scheduler = Scheduler(session, machines, seed)
            for number, at in enumerate(track(order, f"seed {seed}", disable=not sys.stdout.isatty(), transient=True)):
                uid = f"pod-{number}"
                expected, got = replay.place(scenario.jobs[at], uid), await scheduler.place(scenario.jobs[at], uid)
                outcome.pods += 1
                outcome.placed += got is not None
                if got != expected:
                    outcome.difference = f"pod {number} of seed {seed}: in process {expected}, by HTTP {got}"
                    break
            outcome.tied = scheduler.tied
    finally:
        await runner.cleanup()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace-dir", required=True)
    parser.add_argument("--trace", default="default")
    parser.add_argument("--policy", default="fragmentation")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--demand", type=int, default=130, metavar="PERCENT")
    arguments = parser.parse_args()
    scenario = make_scenario(read_machines(arguments.trace_dir), read_jobs(arguments.trace_dir, arguments.trace))
    different = False
    for seed in arguments.seed or (42, 43):
        started = time.perf_counter()
        outcome = asyncio.run(compare(scenario, arguments.policy, seed, arguments.demand))
        print(
            f"seed {seed}: {outcome.pods} pods, {outcome.placed} placed, {outcome.tied} times several nodes had the "
            f"highest score, {outcome.difference or 'every choice the same'}, {time.perf_counter() - started:.0f} s",
            flush=True,
        )
        different |= outcome.difference is not None
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
