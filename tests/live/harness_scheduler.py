"""Plays kube-scheduler towards the extender: filter and prioritize one pod after another, binds in the background.

It exists because the order of these calls breaks extenders. It must not look into the extender. Invariants: every
answer is one that kube-scheduler would decode; the node is chosen as kube-scheduler does, by the best score and among
equal ones at random, and all chance comes from the seed.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

import aiohttp

from tests.extender.objects import Json
from tests.virtual_time import passes


class Objects(Protocol):
    """Where the scheduler reads the objects."""

    def pod(self, name: str, namespace: str = "default") -> Json: ...

    def pods(self) -> list[Json]: ...

    def send(self, method: str, path: str, body: object = None, content_type: str = "") -> Json: ...

    def set_status(self, name: str, status: Json) -> Json: ...


#: In bursts of 200 pods the next filter came before the last bind in 1.5 to 6 percent of cases; the 99th percentile of
#: the gap between a pod's filter and its bind was 11 ms, which is one or two filters.
LATE_SHARE = 0.06


class Filtered(NamedTuple):
    """An answer to filter."""

    passed: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]
    error: str


class Bound(NamedTuple):
    """How the scheduling of a pod ended: the chosen node (None: none), and bind's Error."""

    node: str | None
    error: str

    @property
    def ok(self) -> bool:
        return self.node is not None and not self.error


class Scheduler:
    """A short client of the verbs."""

    def __init__(self, session: aiohttp.ClientSession, objects: Objects, seed: int = 0) -> None:
        self._session = session
        self._objects = objects
        self._chance = Random(seed)
        self._binding: set[asyncio.Task[Bound]] = set()

    # -- single calls -----------------------------------------------------------------------------------------------

    async def filter(self, pod: Json, *nodes: str) -> Filtered:
        """Ask filter about these nodes, or without any about all."""
        said = await self._post("/filter", self._args(pod, nodes))
        assert said.keys() == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
        if said["Error"]:
            return Filtered([], {}, {}, said["Error"])
        return Filtered(said["NodeNames"], said["FailedNodes"], said["FailedAndUnresolvableNodes"], "")

    async def preempt(self, pod: Json, offered: Mapping[str, Sequence[str]]) -> Json:
        """Ask preempt, with UIDs by node; returns the victims by node."""
        meta = {name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for name, uids in offered.items()}
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        said: Json = await self._post("/preempt", body)
        found: Json = said["NodeNameToMetaVictims"]
        return found

    async def prioritize(self, pod: Json, *nodes: str) -> dict[str, int]:
        """Ask prioritize."""
        return {entry["Host"]: entry["Score"] for entry in await self._post("/prioritize", self._args(pod, nodes))}

    async def bind(self, pod: Json, node: str) -> str:
        """Ask bind; returns its Error."""
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        said = await self._post("/bind", body)
        assert said.keys() == {"Error"}
        assert "%" not in said["Error"]
        return str(said["Error"])

    # -- whole cycles -------------------------------------------------------------------------------------------------

    async def choose(self, pod: Json, *nodes: str) -> str | None:
        """Run one scheduling cycle up to the chosen node; None when no node fits."""
        filtered = await self.filter(pod, *nodes)
        if len(filtered.passed) <= 1:
            # For a single node kube-scheduler asks for no scores.
            return filtered.passed[0] if filtered.passed else None
        scores = await self.prioritize(pod, *filtered.passed)
        best = max(scores.get(name, 0) for name in filtered.passed)
        return self._chance.choice([name for name in filtered.passed if scores.get(name, 0) == best])

    async def place(self, pod: Json, *nodes: str) -> str:
        """Schedule a pod and wait for its bind, which must succeed; returns the node."""
        node = await self.choose(pod, *nodes)
        assert node is not None, f"no node fits {pod['metadata']['name']}: {await self.filter(pod, *nodes)}"
        assert await self.bind(pod, node) == ""
        return node

    async def burst(self, pods: Sequence[Json], late_share: float = 0.0) -> list[Bound]:
        """Schedule pods one after another; each bind runs in the background while the next pods are filtered.

        A share of `late_share` of the binds comes late, after the next pod's filter.
        """
        tasks: list[asyncio.Task[Bound]] = []
        late: list[tuple[Json, str | None]] = []
        for pod in pods:
            node = await self.choose(pod)
            tasks += [self._spawn(*each) for each in late]
            late = [(pod, node)]
            if self._chance.random() >= late_share:
                tasks.append(self._spawn(*late.pop()))
        tasks += [self._spawn(*each) for each in late]
        return await self._finish(tasks)

    async def gang(self, pods: Sequence[Json]) -> list[Bound]:
        """Schedule a gang: all members are filtered before the first bind, then all binds come at once."""
        chosen = [(pod, await self.choose(pod)) for pod in pods]
        return await self._finish([self._spawn(pod, node) for pod, node in chosen])

    def _spawn(self, pod: Json, node: str | None) -> asyncio.Task[Bound]:
        task = asyncio.get_running_loop().create_task(self._bound(pod, node))
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)
        return task

    async def _bound(self, pod: Json, node: str | None) -> Bound:
        return Bound(node, "" if node is None else await self.bind(pod, node))

    async def _finish(self, tasks: list[asyncio.Task[Bound]]) -> list[Bound]:
        return list(await asyncio.gather(*tasks))

    # -- wire ---------------------------------------------------------------------------------------------------------

    def _args(self, pod: Json, nodes: Sequence[str]) -> Json:
        names = list(nodes)
        if not names:
            listed = self._objects.send("GET", "/api/v1/nodes")["items"]
            names = [item["metadata"]["name"] for item in listed]
            # The order of NodeNames is neither sorted nor stable.
            self._chance.shuffle(names)
        shown = {key: value for key, value in pod.items() if key not in ("kind", "apiVersion")}
        return {"Pod": shown, "Nodes": None, "NodeNames": names}

    async def _post(self, path: str, body: Json) -> Any:  # noqa: ANN401 - JSON
        async with self._session.post(path, data=json.dumps(body)) as response:
            assert response.status == 200
            return json.loads(await response.read())


class SchedulingQueue:
    """kube-scheduler's queue, which schedules one pod after another, for scenarios that run by themselves.

    Only a refused pod's own updates move it back into the queue, as in the worst case that was seen: other events came
    too early. A refused pod is asked about twice, because of the scheduler's own condition.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        objects: Objects,
        error_backoff_seconds: float = 0.05,
        idle_seconds: float = 0.002,
    ) -> None:
        """`idle_seconds`: the pause between looks for pods to schedule while there are none."""
        self._scheduler = scheduler
        self._objects = objects
        self._idle_seconds = idle_seconds
        self._error_backoff_seconds = error_backoff_seconds
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._seen: dict[str, str] = {}  # name -> resourceVersion at its last cycle
        self.cycles = 0

    def look(self) -> None:
        """Queue every pending pod that is new or has changed since its last cycle."""
        for pod in self._objects.pods():
            name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
            if not pod["spec"].get("nodeName") and self._seen.get(name) != version:
                self._seen[name] = version
                self._queue.put_nowait(name)

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self.look()
                try:
                    name = self._queue.get_nowait()
                except asyncio.QueueEmpty:
                    await passes(self._idle_seconds)
                    continue
                await self._cycle(name, tasks)

    async def _cycle(self, name: str, tasks: asyncio.TaskGroup) -> None:
        pod = next((each for each in self._objects.pods() if each["metadata"]["name"] == name), None)
        if pod is None or pod["spec"].get("nodeName"):
            return
        self.cycles += 1
        node = await self._scheduler.choose(pod)
        if node is not None:
            tasks.create_task(self._bind(pod, node))
            return
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        if refused not in (pod["status"].get("conditions") or []):
            self._objects.set_status(name, {"conditions": [refused]})

    async def _bind(self, pod: Json, node: str) -> None:
        if await self._scheduler.bind(pod, node):
            await passes(self._error_backoff_seconds)
            self._queue.put_nowait(pod["metadata"]["name"])
