"""Does for every bound pod what its kubelet and HAMi's device plugin would do, until it is cancelled.

It exists so that tests and benchmarks have a cluster in which pods run by themselves. It must not know how a step is
done. Invariants: whatever the API server and the network do, each pod gets its steps, in order, and a deleted one goes;
an error that another try cannot mend is raised, never ignored.

    python -m tests.apiserver.kubelets URL [--run-seconds 5]
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import orjson

from tests.apiserver.node_actor import BIND_PHASE, NodeActor, PodGone
from tests.apiserver.resources import Json

_RETRY_SECONDS = 0.2
_STEPS = ("allocate", "run", "finish", "let go")
_LINE_BYTES = 2**22
_SERVER_ERROR = 500
#: Answers below 500 that may change: an admission webhook or plugin that is not ready yet denies.
_LATER = (403, 409, 429)
_UNLIMITED = aiohttp.ClientTimeout(total=None)
Work = Callable[[], Coroutine[Any, Any, object]]


def _nothing(_text: str) -> None:
    """Default callback: does nothing."""


class Kubelets:
    """All nodes' kubelets and plugins. With `run_seconds`, apps end with 0 after they have run that long."""

    def __init__(
        self, actor: NodeActor, run_seconds: float | None = None, note: Callable[[str], None] = _nothing
    ) -> None:
        """`note` is called for every step that must be repeated and every pod that was gone before its step."""
        self._actor = actor
        self._run_seconds = run_seconds
        self._note = note
        self._begun: set[tuple[str, str]] = set()

    async def follow(self) -> None:
        """Allocate, run and let go every bound pod. Raises ExceptionGroup if a step cannot be done."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                # Without a version a watch begins with all present pods, which makes up for what was missed in between.
                await self._once("watch", lambda: self._watch(tasks))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        query = {"fieldSelector": "spec.nodeName!=", "watch": "true"}
        async with self._actor.session.get("/api/v1/pods", params=query, timeout=_UNLIMITED) as response:
            response.raise_for_status()
            async for line in response.content:
                event = _read(line)
                if event is None:
                    return
                self._take(tasks, event)

    def _take(self, tasks: asyncio.TaskGroup, event: Json) -> None:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._begun -= {(uid, step) for step in _STEPS}
            return
        for what, work in self._due(pod):
            if (uid, what) not in self._begun:
                self._begun.add((uid, what))
                tasks.create_task(self._persistently(f"{what} {pod['metadata']['name']} ({uid})", work))

    def _due(self, pod: Json) -> list[tuple[str, Work]]:
        """Return the steps that a pod needs next."""
        meta, phase = pod["metadata"], pod.get("status", {}).get("phase")
        key = (meta["namespace"], meta["name"], meta["uid"])
        if meta.get("deletionTimestamp"):
            return [("let go", lambda: self._actor.let_go(*key))]
        if (meta.get("annotations") or {}).get(BIND_PHASE) == "allocating":
            return [("allocate", lambda: self._actor.allocate(*key))]
        if phase == "Pending":
            return [("run", lambda: self._actor.run(*key))]
        if phase == "Running" and self._run_seconds is not None:
            return [("finish", lambda: self._finish(*key))]
        return []

    async def _finish(self, namespace: str, name: str, uid: str) -> None:
        await asyncio.sleep(self._run_seconds or 0.0)
        await self._actor.finish(namespace, name, uid=uid)

    async def _persistently(self, what: str, work: Work) -> None:
        while True:
            if await self._once(what, work):
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _once(self, what: str, work: Work) -> bool:
        """Return whether the work is done, or its pod gone. Raises what another try cannot mend."""
        try:
            await work()
        except PodGone:
            self._note(f"{what}: the pod is gone")
        except aiohttp.ClientResponseError as error:
            if error.status < _SERVER_ERROR and error.status not in _LATER:
                raise
            self._note(f"{what}: {error.status} {error.message}")
            return False
        except (aiohttp.ClientError, OSError) as error:
            self._note(f"{what}: {error!r}")
            return False
        return True


def _read(line: bytes) -> Json | None:
    """Read an event; None if the watch must begin anew: half a line, no JSON, or an ERROR."""
    try:
        event: Json = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return None if event["type"] == "ERROR" else event


async def _main(url: str, run_seconds: float | None) -> None:
    async with aiohttp.ClientSession(url, read_bufsize=_LINE_BYTES) as session:
        await Kubelets(NodeActor(session), run_seconds, print).follow()


def main(argv: Sequence[str] | None = None) -> int:
    """Follow all pods until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver.kubelets", description="Play all kubelets.")
    parser.add_argument("url")
    parser.add_argument("--run-seconds", type=float, help="how long apps run; default: for ever")
    arguments = parser.parse_args(argv)
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(arguments.url, arguments.run_seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
