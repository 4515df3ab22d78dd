"""A real server on loopback inside the test's event loop, and a real HTTP client of it.

It exists so that every test of the wire goes over the wire. It must not judge answers beyond what holds for all of
them. Invariant: every JSON answer that is read here has integers only, since kube-scheduler decodes no other numbers.
"""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import aiohttp
from aiohttp import web

from extender.cluster.cluster import Cluster
from extender.cluster.loading import collect
from extender.config import ServerSettings, Settings
from extender.convert.manifests import parse_manifests
from extender.server.app import make_app
from extender.server.ports import start
from tests.extender.objects import Json, listed


class Answer(NamedTuple):
    """A response, fully read."""

    status: int
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - whatever the server said
        """Return the body as JSON, which must have no fractions."""
        return json.loads(self.body, parse_float=_refuse, parse_constant=_refuse)


class Client:
    """The verbs and the API of one server."""

    def __init__(self, session: aiohttp.ClientSession, cluster: Cluster, app: web.Application | None = None) -> None:
        self._session = session
        self._app = app
        self.cluster = cluster

    def served(self) -> set[tuple[str, str]]:
        """Return the paths and methods, in lower case, that the server has handlers for."""
        routes = () if self._app is None else self._app.router.routes()
        named = {(each.resource.canonical, each.method.lower()) for each in routes if each.resource is not None}
        return {each for each in named if each[1] != "head"}

    @property
    def url(self) -> str:
        """Return the server's address."""
        return str(self._session._base_url).rstrip("/")

    async def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send any request."""
        # A stream, because the client warns of large bodies in bytes.
        data = None if body is None else io.BytesIO(body)
        async with self._session.request(method, path, data=data, headers=headers) as response:
            return Answer(response.status, await response.read())

    def opened(self, path: str) -> "AbstractAsyncContextManager[aiohttp.ClientResponse]":
        """Send a GET; the body is not read yet."""
        return self._session.get(path)

    async def post(self, path: str, body: bytes | Json) -> Answer:
        """Send a POST, as JSON if the body is not bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, data, {"Content-Type": "application/json"})

    async def get(self, path: str) -> Any:  # noqa: ANN401 - whatever the server said
        """Return what a list or report says."""
        answer = await self.send("GET", path)
        assert answer.status == 200
        return answer.json()

    async def filter(self, pod: Json, *names: str) -> Json:
        """Return what filter says of these nodes."""
        answer = await self.post("/filter", asked(pod, *names))
        assert answer.status == 200
        return answer.json()

    async def prioritize(self, pod: Json, *names: str) -> list[Json]:
        """Return what prioritize says of these nodes."""
        answer = await self.post("/prioritize", asked(pod, *names))
        assert answer.status == 200
        return list(answer.json())

    async def bind(self, pod: Json, node: str) -> str:
        """Bind; return the Error, which is empty for success."""
        answer = await self.post("/bind", binding(pod, node))
        assert answer.status == 200
        said = answer.json()
        assert said.keys() == {"Error"}
        return str(said["Error"])

    async def place(self, pod: Json, node: str) -> None:
        """Filter and bind as kube-scheduler does; both must succeed."""
        assert (await self.filter(pod, node))["NodeNames"] == [node]
        assert await self.bind(pod, node) == ""

    async def create(self, pod: Json, status: int = 201) -> Json:
        """Post a pod; return its entry. 200 means that it was known."""
        answer = await self.post("/api/v1/pods", pod)
        assert answer.status == status
        entry: Json = answer.json()
        return entry

    async def delete(self, name: str, namespace: str = "default") -> Answer:
        """Delete a pod; return the answer."""
        return await self.send("DELETE", f"/api/v1/pods/{namespace}/{name}")

    async def pods(self) -> dict[str, Json]:
        """Return the entries of /api/v1/pods by namespace and name."""
        return {entry["pod"]: entry for entry in await self.get("/api/v1/pods")}

    async def requested(self) -> dict[str, Json]:
        """Return what is held, by card, where anything is."""
        cards = [device for node in await self.get("/api/v1/nodes") for device in node["devices"]]
        return {each["uuid"]: each["requested"] for each in cards if any(each["requested"].values())}


def asked(pod: Json, *names: str) -> Json:
    """Return ExtenderArgs with node names."""
    return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}


def binding(pod: Json, node: str) -> Json:
    """Return ExtenderBindingArgs."""
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


def make_cluster(*objects: Json) -> Cluster:
    """Return an embedded cluster that read these objects from a file."""
    settings = Settings()
    cluster = Cluster(settings)
    cluster.load(collect(parse_manifests(listed(*objects).encode(), "--cluster", "test"), settings))
    return cluster


@asynccontextmanager
async def serving(
    *objects: Json,
    cluster: Cluster | None = None,
    max_body_bytes: int | None = None,
    allow_writes: bool = True,
    settings: ServerSettings | None = None,
) -> AsyncIterator[Client]:
    """Yield the client of a server over these objects, or over a cluster."""
    settings = replace(settings or ServerSettings(port=0), allow_writes=allow_writes)
    if max_body_bytes is not None:
        settings = replace(settings, max_body_bytes=max_body_bytes)
    cluster = cluster or make_cluster(*objects)
    app = make_app(cluster, settings)
    runner, port = await start(app, settings)
    try:
        async with aiohttp.ClientSession(f"http://{settings.bind_address}:{port}") as session:
            yield Client(session, cluster, app)
    finally:
        await runner.cleanup()


def _refuse(text: str) -> NoReturn:
    raise AssertionError(f"{text} is no integer")
