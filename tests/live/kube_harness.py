"""Clients of an API server, a sink that notes what it gets, and a server with scripted answers.

It exists for tests of the client and the reflector apart from the rest of the extender. It must not know cards.
Invariant: what is opened here is closed here.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from extender.kube.client import KubeClient
from extender.kube.connection import Connection
from extender.kube.listing import ListSettings
from extender.kube.reflector import Change, Reflector, ReflectorSettings, Taken
from tests.apiserver.resources import PODS as POD_RESOURCE
from tests.apiserver.server import ApiServer
from tests.extender.objects import pod

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PODS = "/api/v1/pods"

#: Short pauses; nothing that works waits for the long ones.
QUICK = ReflectorSettings(
    lists=ListSettings(page_size=3, request_timeout_seconds=5.0, pause_seconds=0.01),
    inactivity_seconds=30.0,
    backoff_seconds=(0.01, 0.1),
)


def connection_to(url: str) -> Connection:
    """A connection without credentials."""
    configuration = Configuration()
    configuration.host = url
    return Connection(configuration)


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[KubeClient]:
    """A client without credentials."""
    client = KubeClient(connection_to(url))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def scripted(handler: Handler) -> AsyncIterator[str]:
    """Run a server that answers every request as `handler` says."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def empty_list(version: str = "7") -> web.Response:
    """Return an empty list."""
    return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": version}, "items": []})


def line(kind: str, obj: Json) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


class _Meta(msgspec.Struct):
    uid: str
    name: str
    resourceVersion: str  # noqa: N815 - the API's name


class _Object(msgspec.Struct):
    metadata: _Meta


@dataclass
class NotingSink:
    """Keeps name -> version, as a cache would, and notes what happened."""

    objects: dict[str, int] = field(default_factory=dict)
    history: list[tuple[str, str]] = field(default_factory=list)
    lists: list[set[str]] = field(default_factory=list)
    breaks_on: frozenset[str] = frozenset()
    """The names whose handling has a bug."""
    illegible: frozenset[str] = frozenset()
    """The names whose objects do not decode."""
    on_change: Callable[[str], None] = lambda _: None

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one object."""
        meta = msgspec.json.decode(raw, type=_Object).metadata
        self.on_change(meta.name)
        if meta.name in self.breaks_on:
            raise RuntimeError(meta.name)
        if meta.name in self.illegible:
            return Taken(None)
        self.history.append((change.value, meta.name))
        if change is Change.DELETED:
            self.objects.pop(meta.name, None)
        else:
            self.objects[meta.name] = int(meta.resourceVersion)
        return Taken(meta.name, meta.resourceVersion)

    def replaced(self, identities: set[str]) -> None:
        """Drop what a list did not name."""
        self.lists.append(set(identities))
        for name in self.objects.keys() - identities:
            del self.objects[name]
            self.history.append(("vanished", name))


@asynccontextmanager
async def reflecting(
    url: str,
    sink: NotingSink,
    settings: ReflectorSettings = QUICK,
    **more: Any,  # noqa: ANN401 - of Reflector
) -> AsyncIterator[Reflector]:
    """Run a reflector of all pods."""
    async with client_of(url) as client:
        reflector = Reflector(client, PODS, sink, settings, **more)
        running = asyncio.create_task(reflector.run())
        try:
            yield reflector
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def stored(api: ApiServer) -> dict[str, int]:
    """Return what the API server has: versions by name."""
    return {row.name: row.version for row in api.store.tables[POD_RESOURCE].rows}


def same(api: ApiServer, sink: NotingSink) -> Callable[[], bool]:
    """Whether the sink has what the API server has."""
    return lambda: sink.objects == stored(api)


def lists(api: ApiServer) -> int:
    """Return the number of requests for a list, or a page of one, so far."""
    return api.requests.count(verb="list")


def watches(api: ApiServer) -> int:
    """Return the number of requests for a watch so far."""
    return api.requests.count(verb="watch")


def load(api: ApiServer, count: int) -> None:
    """Load that many pods into the API server: p0, p1 and so on."""
    api.load([pod(f"p{number}") for number in range(count)])
