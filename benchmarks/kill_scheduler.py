"""A scripted kube-scheduler: filter, prioritize, bind in the background, try again with backoff.

It exists because races come from the order of calls: pods are filtered one after another, and the next one before the
last one is bound. It must not know cards. Invariant: a pod is tried until it is on a node or gone; what the extender
reports as bound is bound at that moment. Times are a tenth of kube-scheduler's.
"""

import asyncio
import heapq
from random import Random
from typing import Any

import aiohttp

from benchmarks.kill_watcher import Violation, Watcher, is_waiting

Json = dict[str, Any]

_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 1.0
_OTHER_PLUGINS_MOST = 60  # how far the scores of other plugins differ; ours are 0 to 100
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


class Scheduler:
    """One scheduler. `session` leads to the extender, `api` to the API server."""

    def __init__(
        self, session: aiohttp.ClientSession, api: aiohttp.ClientSession, watcher: Watcher, rng: Random
    ) -> None:
        self.filtered = self.refused = self.bound = self.failed_binds = self.unanswered = 0
        self.errors: dict[str, int] = {}  # the first word of an error -> how often
        self._session = session
        self._api = api
        self._watcher = watcher
        self._rng = rng
        self._queue: list[tuple[float, int, str]] = []
        self._queued: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._binding: set[str] = set()
        self._turn = 0

    async def run(self) -> None:
        """Schedule until cancelled. Raises `Violation`."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as binds:
            while True:
                for uid in self._watcher.waiting():
                    if uid not in self._queued and uid not in self._binding:
                        self._push(uid, 0.0)
                if self._queue and self._queue[0][0] <= loop.time():
                    uid = heapq.heappop(self._queue)[2]
                    self._queued.discard(uid)
                    await self._schedule(uid, binds)
                    continue
                self._watcher.changed.clear()
                pause = self._queue[0][0] - loop.time() if self._queue else _LONGEST_BACKOFF_SECONDS
                try:
                    async with asyncio.timeout(max(0.0, pause)):
                        await self._watcher.changed.wait()
                except TimeoutError:
                    pass

    async def bind(self, obj: Json, node: str) -> str:
        """Send one bind; returns why it failed, or "". Raises `Violation` for a success that is none."""
        meta = obj["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        error: str = (await self._call("bind", body)).get("Error") or ""
        if not error:
            await self._check_bound(meta, node)
        return error

    async def _schedule(self, uid: str, binds: asyncio.TaskGroup) -> None:
        obj = self._watcher.objects.get(uid)
        if obj is None or not is_waiting(obj):
            return
        try:
            node = await self._choose(obj)
        except _NETWORK_ERRORS as error:
            self.unanswered += 1
            self._try_again(uid, str(error) if isinstance(error, ValueError) else type(error).__name__)
            return
        if node is None:
            self.refused += 1
            self._try_again(uid, "")
            return
        self._binding.add(uid)
        binds.create_task(self._bind(uid, obj, node))

    async def _choose(self, obj: Json) -> str | None:
        names = list(self._watcher.nodes)
        self._rng.shuffle(names)
        self.filtered += 1
        found = await self._call("filter", {"Pod": obj, "Nodes": None, "NodeNames": names})
        if found.get("Error"):
            raise ValueError(found["Error"])
        passed: list[str] = found.get("NodeNames") or []
        if len(passed) < 2:
            return passed[0] if passed else None
        scores = dict.fromkeys(passed, 0)
        for entry in await self._call("prioritize", {"Pod": obj, "Nodes": None, "NodeNames": passed}):
            scores[entry["Host"]] += 10 * entry["Score"]
        return max(passed, key=lambda name: scores[name] + self._rng.randrange(_OTHER_PLUGINS_MOST))

    async def _bind(self, uid: str, obj: Json, node: str) -> None:
        try:
            error = await self.bind(obj, node)
        except _NETWORK_ERRORS as failure:
            self.unanswered += 1
            error = type(failure).__name__
        finally:
            self._binding.discard(uid)
        if error:
            self.failed_binds += 1
            self._try_again(uid, error)
        else:
            self.bound += 1

    async def _check_bound(self, meta: Json, node: str) -> None:
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        async with self._api.get(path) as response:
            found = await response.json()
        if response.status == 404 or found["metadata"]["uid"] != meta["uid"]:
            return
        where = found["spec"].get("nodeName")
        if where != node:
            raise Violation(f"bind of {meta['name']} to {node} succeeded, and the pod is on {where}")

    def _try_again(self, uid: str, error: str) -> None:
        if error:
            word = error.partition(":")[0]
            self.errors[word] = self.errors.get(word, 0) + 1
        attempts = self._attempts[uid] = self._attempts.get(uid, 0) + 1
        pause = min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** min(attempts - 1, 10))
        self._push(uid, pause * self._rng.uniform(0.8, 1.2))

    def _push(self, uid: str, pause: float) -> None:
        self._turn += 1
        self._queued.add(uid)
        heapq.heappush(self._queue, (asyncio.get_running_loop().time() + pause, self._turn, uid))

    async def _call(self, verb: str, body: Json) -> Any:  # noqa: ANN401 - decoded JSON
        async with self._session.post(f"/{verb}", json=body) as response:
            return await response.json()
