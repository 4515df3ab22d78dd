"""Pods per second with this extender, with one that does nothing, and without any, in one run.

It exists because on a shared machine only the ratio of such figures means something. It must not judge them.
Invariants: every way of scheduling has the same kube-scheduler, configuration, nodes and pods; the pods are created
while kube-scheduler is down, and the time runs from the first to the last that a watch shows on a node; afterwards
every event is judged by the reference.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import orjson

from accounting.reference import state as reference_state
from benchmarks.kill_watcher import read_node, read_pod
from tests.e2e.control_plane import ADMIN_TOKEN, ControlPlane, Json, scheduler_configuration
from tests.e2e.language import node_of, pod_of
from tests.e2e.processes import Child, answers, free_ports
from tests.e2e.world import NAMESPACE, Kube, Refusal

_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_AT_ONCE: Final = 16
_SECONDS: Final = 600.0
_UNLIMITED: Final = aiohttp.ClientTimeout(total=None)
_CARDS: Final = "8 cards of 40000"
_POD: Final = "app 4000"
#: kube-scheduler's own limit of 50 requests a second would be all that is measured.
_REQUESTS_PER_SECOND: Final = 5000


class Way(NamedTuple):
    """One way to schedule. `module` is run as the extender, with `flags`; None: there is none."""

    name: str
    module: str | None
    flags: tuple[str, ...] = ()


NONE: Final = Way("no extender", None)
OURS: Final = Way("gpu-extender", "extender", ("--lock-mode", "none"))
WAYS: Final = (
    NONE,
    Way("do-nothing extender that lists every host", "tests.e2e.do_nothing", ("--list-every-host",)),
    OURS,
    Way("do-nothing extender that answers []", "tests.e2e.do_nothing"),
)


class Throughput:
    """One control plane with many nodes. `rounds`: how often each way is measured, back and forth in turn."""

    def __init__(
        self, plane: ControlPlane, kube: Kube, folder: Path, *, nodes: int, pods: int, rounds: int = 1
    ) -> None:
        self._plane = plane
        self._kube = kube
        self._folder = folder
        self._number_of_nodes = nodes
        self._number_of_pods = pods
        self._rounds = rounds
        self._nodes: list[Json] = []

    async def run(self) -> dict[str, Any]:
        """All ways one after another; pods per second, ratios, and processor time per pod."""
        await self._clean()
        self._nodes = [node_of(f"node-{number:05}", _CARDS) for number in range(self._number_of_nodes)]
        await self._each(self._nodes, "/api/v1/nodes")
        measured: dict[str, Any] = {"load average before": round(os.getloadavg()[0], 2)}
        found: dict[str, list[dict[str, Any]]] = {way.name: [] for way in WAYS}
        for number in range(self._rounds):
            # Other load on the machine comes and goes, so each way runs once before and once after the others.
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                found[way.name].append(await self._measure(way))
        for name, rounds in found.items():
            measured[name] = rounds[0] if len(rounds) == 1 else _together(rounds)
        fastest = measured[NONE.name]["pods per second"]
        for way in WAYS:
            measured[way.name]["ratio to no extender"] = round(measured[way.name]["pods per second"] / fastest, 3)
        await self._clean()
        return measured

    async def _measure(self, way: Way) -> dict[str, Any]:
        port = free_ports(1)[0]
        extender = self._extender(way, port)
        try:
            if extender is not None:
                extender.start()
                await asyncio.to_thread(
                    extender.wait_until, lambda: answers(f"http://127.0.0.1:{port}/readyz"), "ready"
                )
            pods = [pod_of(f"p{number:05}", _POD, NAMESPACE) for number in range(self._number_of_pods)]
            await self._each(pods, _PODS)
            events, seconds, used = await self._schedule(extender, None if extender is None else port)
        finally:
            self._plane.stop_scheduler()
            if extender is not None:
                extender.end()
            await self._kube.send("DELETE", f"{_PODS}?gracePeriodSeconds=0", {"gracePeriodSeconds": 0})
        if way is OURS:
            self._judge(events)
        number = self._number_of_pods
        return {
            "pods per second": round((number - 1) / seconds, 1),
            "seconds": round(seconds, 2),
            "processor ms per pod": {name: round(cpu * 1000 / number, 2) for name, cpu in used.items()},
        }

    async def _schedule(self, extender: Child | None, port: int | None) -> tuple[list[bytes], float, dict[str, float]]:
        """Start kube-scheduler and wait for the last pod; the events, the seconds, and the processor seconds."""
        listed = await self._kube.send("GET", f"{_PODS}?limit=1")
        query = {
            "watch": "1",
            "fieldSelector": "spec.nodeName!=",
            "resourceVersion": listed["metadata"]["resourceVersion"],
        }
        events: list[bytes] = []
        scheduler = self._plane.start_scheduler(self._configuration(port), self._folder / "kube-scheduler.log")
        running = [scheduler, self._plane.api_server, *([extender] if extender is not None else [])]
        before = {child.name: child.cpu_seconds() for child in running}
        began = 0.0
        async with asyncio.timeout(_SECONDS):
            while len(events) < self._number_of_pods:
                # A watch that the API server ends is begun again, from where all began.
                events.clear()
                async with self._kube.session.get(_PODS, params=query, timeout=_UNLIMITED) as response:
                    response.raise_for_status()
                    while len(events) < self._number_of_pods and (line := await response.content.readline()):
                        began = began or time.monotonic()
                        if line.startswith(b'{"type":"ADDED"'):
                            events.append(line)
        seconds = time.monotonic() - began
        return events, seconds, {child.name: child.cpu_seconds() - before[child.name] for child in running}

    def _configuration(self, port: int | None) -> Json:
        configuration = scheduler_configuration(None if port is None else f"http://127.0.0.1:{port}")
        configuration["clientConnection"] = {"qps": _REQUESTS_PER_SECOND, "burst": _REQUESTS_PER_SECOND}
        if port is None:
            # With an extender its resources are ignored by the same means.
            ignored = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["nvidia.com/gpumem"]}}
            configuration["profiles"][0]["pluginConfig"] = [ignored]
        return configuration

    def _extender(self, way: Way, port: int) -> Child | None:
        if way.module is None:
            return None
        where: list[object] = ["serve", "--kubeconfig", self._plane.kubeconfig("extender")]
        if way is not OURS:
            where = ["--url", self._plane.url, "--token", ADMIN_TOKEN, "--authority", self._plane.certificate]
        command = [sys.executable, "-m", way.module, *where, "--port", port, *way.flags]
        return Child("extender", command, self._folder / "extender.log")

    def _judge(self, events: list[bytes]) -> None:
        """Check that no card was over-committed after any event. Raises AssertionError."""
        nodes = {node["metadata"]["name"]: read_node(node) for node in self._nodes}
        on: dict[str, dict[str, Any]] = {}
        for event in map(orjson.loads, events):
            pod, name = read_pod(event["object"]), event["object"]["spec"]["nodeName"]
            on.setdefault(name, {})[pod.uid] = pod
            state = reference_state.node_state(nodes[name], list(on[name].values()))
            over = [uuid for uuid, card in state.cards.items() if card.overcommitted]
            assert not over, f"{over} on {name} after the binding of {pod.key}"
            assert isinstance(pod.allocation, tuple), f"pod {pod.key} has no cards"

    async def _each(self, objects: list[Mapping[str, Any]] | list[Json], path: str) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def create(obj: Mapping[str, Any]) -> None:
            async with limit:
                await self._kube.send("POST", path, obj)

        await asyncio.gather(*map(create, objects))

    async def _clean(self) -> None:
        await self._kube.send("DELETE", f"{_PODS}?gracePeriodSeconds=0", {"gracePeriodSeconds": 0})
        await self._kube.send("DELETE", "/api/v1/nodes")
        with suppress(Refusal):
            await self._kube.send("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpu-extender")


def _together(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of several rounds as one: the pods of all of them in the seconds of all of them."""
    speeds, seconds = [each["pods per second"] for each in rounds], [each["seconds"] for each in rounds]
    pods = sum(speed * each for speed, each in zip(speeds, seconds, strict=True))
    used = [each["processor ms per pod"] for each in rounds]
    return {
        "pods per second": round(pods / sum(seconds), 1),
        "pods per second by round": speeds,
        "seconds": round(sum(seconds), 2),
        "processor ms per pod": {name: round(sum(each[name] for each in used) / len(used), 2) for name in used[0]},
    }
