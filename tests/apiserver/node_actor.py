"""Plays the kubelet and HAMi's device plugin of every node, step by step, over HTTP.

It exists because without them no pod gets beyond its Binding: no status changes, and the node's lock stays taken. It
must not know the extender, nor when a step is due. Invariants: it writes what a kubelet and the plugin write and
nothing else: statuses, the final delete, the blanked rows, bind-phase and the lock. A step concerns one pod, by its
UID, from its first request to its last: a later pod of that name is never touched. What is written follows from the pod
at the version that is replaced. An interrupted step resumes where it was: what has ended does not run again.

`kubelets.py` does the steps by itself for every pod that is bound.
"""

from collections.abc import Callable, Mapping
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
_MERGE = {"Content-Type": "application/merge-patch+json"}
_NOT_FOUND, _CONFLICT = 404, 409
States = Mapping[str, State]


class PodGone(Exception):
    """The pod is gone. Another pod may have its name by now."""


class _Conflict(Exception):
    """The object is another one, or at another version, than the write was for."""


class NodeActor:
    """The actor. Its session has the base URL and the credentials.

    Steps name a pod and may name its UID; without a UID they are for the pod that has the name when they begin. They
    raise PodGone, ClientError or OSError, and may be repeated until they do not.
    """

    def __init__(self, session: aiohttp.ClientSession, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.session = session
        self._now = now

    # ------------------------------------------------------------------------------------------------------- plugin

    async def allocate(self, namespace: str, name: str, uid: str | None = None) -> None:
        """Make all Allocate calls of a pod: blank its rows one by one, set the phase to success, remove the lock."""
        pod = await self.pod(namespace, name, uid)
        while has_rows(text := _annotations(pod).get(TO_ALLOCATE, "")):
            pod = await self._annotate(pod, {TO_ALLOCATE: blank_next_row(text)})
        pod = await self._annotate(pod, {BIND_PHASE: "success"})
        await self.unlock(pod["spec"]["nodeName"], namespace, name)

    async def fail_allocation(self, namespace: str, name: str, uid: str | None = None) -> None:
        """Make an Allocate call that fails: set the phase to failed, remove the lock."""
        pod = await self._annotate(await self.pod(namespace, name, uid), {BIND_PHASE: "failed"})
        await self.unlock(pod["spec"]["nodeName"], namespace, name)

    async def unlock(self, node: str, namespace: str, name: str) -> None:
        """Remove the node's lock if this pod holds it. Like the plugin's, the lock names no UID."""
        path = f"/api/v1/nodes/{node}"
        while (found := await self._get(path)) is not None:
            if not _annotations(found).get(NODE_LOCK, "").endswith(f",{namespace},{name}"):
                return
            version = found["metadata"]["resourceVersion"]
            try:
                await self._patch(path, {"metadata": {"resourceVersion": version, "annotations": {NODE_LOCK: None}}})
            except _Conflict:
                continue
            return

    # ------------------------------------------------------------------------------------------------------ kubelet

    async def set_states(self, namespace: str, name: str, states: States) -> Json:
        """Report containers in these states; returns the pod afterwards."""
        return await self._report(await self.pod(namespace, name), lambda _: states)

    async def start(self, namespace: str, name: str, *containers: str) -> Json:
        """Start containers."""
        return await self._start(await self.pod(namespace, name), *containers)

    async def end(self, namespace: str, name: str, *containers: str, exit_code: int = 0) -> Json:
        """End containers."""
        return await self._end(await self.pod(namespace, name), *containers, exit_code=exit_code)

    async def finish_inits(self, namespace: str, name: str, uid: str | None = None) -> Json:
        """Run each init that has not yet ended with 0 until it does, and start each sidecar in its turn."""
        pod = await self.pod(namespace, name, uid)
        for container in pod["spec"].get("initContainers") or []:
            state = _state(pod, container)
            if is_sidecar(container):
                pod = pod if "running" in state else await self._start(pod, container["name"])
            elif state.get("terminated", {}).get("exitCode") != 0:
                pod = pod if "running" in state else await self._start(pod, container["name"])
                pod = await self._end(pod, container["name"])
        return pod

    async def run(self, namespace: str, name: str, uid: str | None = None) -> Json:
        """Bring a pod from its first init to running apps."""
        pod = await self.finish_inits(namespace, name, uid)
        waiting = [one["name"] for one in pod["spec"]["containers"] if not _state(pod, one).keys() - {"waiting"}]
        return await self._start(pod, *waiting)

    async def finish(self, namespace: str, name: str, exit_code: int = 0, *, uid: str | None = None) -> Json:
        """End the apps, then the sidecars; a pod that is not restarted is then Succeeded or Failed."""
        pod = await self.pod(namespace, name, uid)
        pod = await self._end(pod, *_not_ended(pod, pod["spec"]["containers"]), exit_code=exit_code)
        sidecars = [one for one in pod["spec"].get("initContainers") or [] if is_sidecar(one)]
        return await self._end(pod, *_not_ended(pod, sidecars))

    async def let_go(self, namespace: str, name: str, uid: str) -> None:
        """Send the final delete of a pod whose containers are gone."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        async with self.session.delete(_path(namespace, name), json=body) as response:
            if response.status == _NOT_FOUND:
                return
            if response.status == _CONFLICT:
                # Another pod has the name, or the delete must be repeated.
                await self.pod(namespace, name, uid)
            response.raise_for_status()

    # ----------------------------------------------------------------------------------------------------- statuses

    async def _start(self, pod: Json, *containers: str) -> Json:
        return await self._report(pod, lambda _: {one: Running(self.time()) for one in containers})

    async def _end(self, pod: Json, *containers: str, exit_code: int = 0) -> Json:
        def ended(now: Json) -> States:
            time = self.time()
            running = {one: state_in(now.get("status", {}), one).get("running", {}) for one in containers}
            return {one: Terminated(exit_code, running[one].get("startedAt", time), time) for one in containers}

        return await self._report(pod, ended)

    async def _report(self, pod: Json, states: Callable[[Json], States]) -> Json:
        def status(now: Json) -> Json:
            return {"status": status_of(now, states(now), self.time())}

        return await self._write(pod, status, "/status") if states(pod) else pod

    def time(self) -> str:
        """Return the time as statuses have it."""
        return format_time(self._now())

    # --------------------------------------------------------------------------------------------------------- HTTP

    async def pod(self, namespace: str, name: str, uid: str | None = None) -> Json:
        """Return the pod. Raises PodGone, ClientError or OSError."""
        pod = await self._get(_path(namespace, name))
        if pod is None or uid not in (None, pod["metadata"]["uid"]):
            raise PodGone(f"{namespace}/{name} ({uid})")
        return pod

    async def _annotate(self, pod: Json, annotations: dict[str, str]) -> Json:
        return await self._write(pod, lambda _: {"metadata": {"annotations": annotations}})

    async def _write(self, pod: Json, change: Callable[[Json], Json], subresource: str = "") -> Json:
        """Patch the pod with what follows from it, or from its newer version if it has changed; returns the result."""
        meta = pod["metadata"]
        path = _path(meta["namespace"], meta["name"])
        while True:
            fixed = {key: pod["metadata"][key] for key in ("uid", "resourceVersion")}
            body = change(pod)
            try:
                written = await self._patch(path + subresource, body | {"metadata": fixed | body.get("metadata", {})})
            except _Conflict:
                written = None
            if written is not None:
                return written
            pod = await self.pod(meta["namespace"], meta["name"], meta["uid"])

    async def _get(self, path: str) -> Json | None:
        async with self.session.get(path) as response:
            return await _body(response)

    async def _patch(self, path: str, body: Json) -> Json | None:
        async with self.session.patch(path, data=orjson.dumps(body), headers=_MERGE) as response:
            if response.status == _CONFLICT:
                raise _Conflict
            return await _body(response)


def has_rows(text: str) -> bool:
    """Whether some row is left to allocate."""
    return any("," in row for row in text.split(";"))


def blank_next_row(text: str) -> str:
    """Blank the first row that is not empty. As with the plugin, the text grows by one `;` each time."""
    rows = text.split(";")
    first = next(position for position, row in enumerate(rows) if "," in row)
    rows[first] = ""
    return "".join(f"{row};" for row in rows)


async def _body(response: aiohttp.ClientResponse) -> Json | None:
    """Return the object; None if there is none.

    Raises ClientError for any other answer, which says nothing about it.
    """
    if response.status == _NOT_FOUND:
        return None
    response.raise_for_status()
    found: Json = orjson.loads(await response.read())
    return found


def _state(pod: Json, container: Json) -> dict[str, Any]:
    return state_in(pod.get("status", {}), container["name"])


def _not_ended(pod: Json, containers: list[Json]) -> list[str]:
    return [one["name"] for one in containers if "terminated" not in _state(pod, one)]


def _annotations(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
