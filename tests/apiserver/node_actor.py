"""Plays the kubelet and HAMi's device plugin of every node, over HTTP.

It exists because without them no pod gets beyond its Binding: no status changes, and the node's lock stays taken. It
must not know the extender. Invariant: it writes what a kubelet and the plugin write and nothing else: statuses, the
final delete, the blanked rows, bind-phase and the lock.

Tests call its steps one by one; `follow` does them for every pod that is bound, until it is cancelled. As a process:

    python -m tests.apiserver.node_actor URL [--run-seconds 5]
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson

from tests.apiserver.pod_statuses import Running, State, Terminated, is_sidecar, state_in, status_of
from tests.apiserver.registry import format_time
from tests.apiserver.resources import Json

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
BIND_PHASE = "hami.io/bind-phase"
NODE_LOCK = "hami.io/mutex.lock"
_RETRY_SECONDS = 0.2
_TRIES = 50
_WORKS = ("allocate", "run", "let go")
_LINE_BYTES = 2**22
_MERGE = {"Content-Type": "application/merge-patch+json"}
Work = Callable[[], Coroutine[Any, Any, object]]


class NodeActor:
    """The actor. Its session has the base URL and the credentials."""

    def __init__(self, session: aiohttp.ClientSession, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._session = session
        self._now = now
        self._begun: set[tuple[str, str]] = set()

    # ------------------------------------------------------------------------------------------------------- plugin

    async def allocate(self, namespace: str, name: str) -> None:
        """All Allocate calls of a pod: its rows are blanked one by one, the phase is success, the lock is gone."""
        pod = await self.pod(namespace, name)
        text = _annotations(pod).get(TO_ALLOCATE, "")
        while has_rows(text):
            text = blank_next_row(text)
            await self._annotate(namespace, name, {TO_ALLOCATE: text})
        await self._annotate(namespace, name, {BIND_PHASE: "success"})
        await self.unlock(pod["spec"]["nodeName"], namespace, name)

    async def fail_allocation(self, namespace: str, name: str) -> None:
        """An Allocate call that fails: the phase is failed, the lock is gone."""
        pod = await self.pod(namespace, name)
        await self._annotate(namespace, name, {BIND_PHASE: "failed"})
        await self.unlock(pod["spec"]["nodeName"], namespace, name)

    async def unlock(self, node: str, namespace: str, name: str) -> None:
        """Remove the node's lock if this pod holds it."""
        path = f"/api/v1/nodes/{node}"
        found = await self._get(path)
        if found is not None and _annotations(found).get(NODE_LOCK, "").endswith(f",{namespace},{name}"):
            version = found["metadata"]["resourceVersion"]
            await self._patch(path, {"metadata": {"resourceVersion": version, "annotations": {NODE_LOCK: None}}})

    # ------------------------------------------------------------------------------------------------------ kubelet

    async def set_states(self, namespace: str, name: str, states: dict[str, State]) -> Json:
        """Report containers in these states; the pod afterwards."""
        pod = await self.pod(namespace, name)
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status_of(pod, states, self.time())}
        return await self._patch(f"{_path(namespace, name)}/status", body)

    async def start(self, namespace: str, name: str, *containers: str) -> Json:
        """Containers run from now on."""
        return await self.set_states(namespace, name, {one: Running(self.time()) for one in containers})

    async def end(self, namespace: str, name: str, *containers: str, exit_code: int = 0) -> Json:
        """Containers ended now."""
        status, now = (await self.pod(namespace, name)).get("status", {}), self.time()
        started = {one: state_in(status, one).get("running", {}).get("startedAt", now) for one in containers}
        ended: dict[str, State] = {one: Terminated(exit_code, started[one], now) for one in containers}
        return await self.set_states(namespace, name, ended)

    async def run(self, namespace: str, name: str) -> Json:
        """From the first init to running apps: each init runs and ends with 0, each sidecar starts in its turn."""
        spec = (await self.pod(namespace, name))["spec"]
        for container in spec.get("initContainers") or []:
            await self.start(namespace, name, container["name"])
            if not is_sidecar(container):
                await self.end(namespace, name, container["name"])
        return await self.start(namespace, name, *(one["name"] for one in spec["containers"]))

    async def finish(self, namespace: str, name: str, exit_code: int = 0) -> Json:
        """Apps end, then sidecars are ended; a pod that is not restarted is Succeeded or Failed."""
        spec = (await self.pod(namespace, name))["spec"]
        pod = await self.end(namespace, name, *(one["name"] for one in spec["containers"]), exit_code=exit_code)
        sidecars = [one["name"] for one in spec.get("initContainers") or [] if is_sidecar(one)]
        return await self.end(namespace, name, *sidecars) if sidecars else pod

    async def let_go(self, namespace: str, name: str, uid: str) -> None:
        """The final delete of a pod whose containers are gone."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        async with self._session.delete(_path(namespace, name), json=body) as response:
            if response.status not in (200, 404, 409):
                response.raise_for_status()

    # --------------------------------------------------------------------------------------------------- by itself

    async def follow(self, run_seconds: float | None = None) -> None:
        """Allocate, run and let go every bound pod, until cancelled. With `run_seconds`, pods finish after it."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                with suppress(aiohttp.ClientError, ConnectionError):
                    await self._follow_once(tasks, run_seconds)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _follow_once(self, tasks: asyncio.TaskGroup, run_seconds: float | None) -> None:
        query = {"fieldSelector": "spec.nodeName!=", "watch": "true"}
        unlimited = aiohttp.ClientTimeout(total=None)
        async with self._session.get("/api/v1/pods", params=query, timeout=unlimited) as response:
            response.raise_for_status()
            while line := await response.content.readline():
                event = orjson.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._begin(tasks, event["object"], run_seconds)
                elif event["type"] == "DELETED":
                    uid = event["object"]["metadata"]["uid"]
                    self._begun -= {(uid, what) for what in _WORKS}

    def _begin(self, tasks: asyncio.TaskGroup, pod: Json, run_seconds: float | None) -> None:
        meta, phase = pod["metadata"], pod.get("status", {}).get("phase")
        key = (meta["namespace"], meta["name"])
        if meta.get("deletionTimestamp"):
            self._once(tasks, meta["uid"], "let go", lambda: self.let_go(*key, meta["uid"]))
        elif _annotations(pod).get(BIND_PHASE) == "allocating":
            self._once(tasks, meta["uid"], "allocate", lambda: self.allocate(*key))
        elif phase == "Pending":
            self._once(tasks, meta["uid"], "run", lambda: self._live(*key, run_seconds))

    def _once(self, tasks: asyncio.TaskGroup, uid: str, what: str, work: Work) -> None:
        if (uid, what) not in self._begun:
            self._begun.add((uid, what))
            tasks.create_task(_persistently(work))

    async def _live(self, namespace: str, name: str, run_seconds: float | None) -> None:
        await self.run(namespace, name)
        if run_seconds is not None:
            await asyncio.sleep(run_seconds)
            await self.finish(namespace, name)

    # --------------------------------------------------------------------------------------------------------- HTTP

    def time(self) -> str:
        """Now, as it is written in statuses."""
        return format_time(self._now())

    async def pod(self, namespace: str, name: str) -> Json:
        """The pod. Raises ClientResponseError."""
        async with self._session.get(_path(namespace, name)) as response:
            response.raise_for_status()
            return await response.json()

    async def _get(self, path: str) -> Json | None:
        async with self._session.get(path) as response:
            return await response.json() if response.status == 200 else None

    async def _annotate(self, namespace: str, name: str, annotations: dict[str, str]) -> None:
        await self._patch(_path(namespace, name), {"metadata": {"annotations": annotations}})

    async def _patch(self, path: str, body: Json) -> Json:
        async with self._session.patch(path, data=orjson.dumps(body), headers=_MERGE) as response:
            response.raise_for_status()
            return await response.json()


def has_rows(text: str) -> bool:
    """Some row is left to allocate."""
    return any("," in row for row in text.split(";"))


def blank_next_row(text: str) -> str:
    """The first row that is not empty goes. As the plugin writes it, the text grows by one `;` each time."""
    rows = text.split(";")
    first = next(position for position, row in enumerate(rows) if "," in row)
    rows[first] = ""
    return "".join(f"{row};" for row in rows)


async def _persistently(work: Work) -> None:
    for _ in range(_TRIES):
        try:
            await work()
        except aiohttp.ClientResponseError as error:
            if error.status == 404:
                # The pod was deleted meanwhile.
                return
        except (aiohttp.ClientError, ConnectionError):
            pass
        else:
            return
        await asyncio.sleep(_RETRY_SECONDS)


def _annotations(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


async def _main(url: str, run_seconds: float | None) -> None:
    async with aiohttp.ClientSession(url, read_bufsize=_LINE_BYTES) as session:
        await NodeActor(session).follow(run_seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Follow all pods until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver.node_actor", description="Play all kubelets.")
    parser.add_argument("url")
    parser.add_argument("--run-seconds", type=float, help="how long apps run; default: for ever")
    arguments = parser.parse_args(argv)
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(arguments.url, arguments.run_seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
