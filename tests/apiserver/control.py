"""The server's own endpoints under /_test/, for tests in another process.

It exists because benchmarks and kill -9 runs start the server as a process of its own. It must do no more than the
server's methods do. Invariant: its own requests are not counted, suffer no faults, and need no token.

    POST   /_test/faults    a rule (see faults.Rule), or a list of them -> [{"id": 1, ...}]
    GET    /_test/faults    all rules with their hits
    DELETE /_test/faults    removes all rules; /_test/faults/ID: one
    POST   /_test/compact   forgets the history
    POST   /_test/cut       breaks open watches; ?resource=pods&client=PATTERN: only these
    POST   /_test/load      stores a List as it is, without events
    POST   /_test/patch     [{"path": ..., "body": ...}, ...], each a merge patch that is carried out as if it had come
                            alone, so that many events cost few requests; the first that is refused is the answer
    POST   /_test/tokens    {"token": "...", "seconds": 5}; DELETE /_test/tokens?token=...
    GET    /_test/requests  the counts; DELETE: start anew
    GET    /_test/state     {"version": ..., "objects": {"pods": 3, ...}, "watches": 2}
"""

from typing import Any, Protocol

import msgspec
import orjson
from aiohttp import web

from tests.apiserver.answers import answer
from tests.apiserver.calls import read_call
from tests.apiserver.faults import Faults, Rule
from tests.apiserver.registry import Registry
from tests.apiserver.resources import RESOURCES, Json, Resource
from tests.apiserver.statuses import ApiError
from tests.apiserver.store import Store
from tests.apiserver.tokens import Tokens
from tests.apiserver.traffic import Requests


class Server(Protocol):
    """The server that is controlled."""

    store: Store
    registry: Registry
    faults: Faults
    requests: Requests
    tokens: Tokens

    @property
    def watches(self) -> int: ...

    def load(self, objects: list[Json]) -> int: ...

    def compact(self) -> None: ...

    def cut(self, resource: Resource | None = None, client: str = "*") -> int: ...


class Control:
    """The control endpoints."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Raises ApiError 400 or 404."""
        parts = request.path.removeprefix("/_test/").split("/")
        body = await request.content.read() if request.body_exists else b""
        try:
            answered = self._answer(request, parts, orjson.loads(body) if body else None)
        except (msgspec.ValidationError, ValueError, KeyError, TypeError) as error:
            raise ApiError(400, f"{type(error).__name__}: {error}") from error
        return web.Response(body=msgspec.json.encode(answered), headers={"Content-Type": "application/json"})

    def _answer(self, request: web.BaseRequest, parts: list[str], body: Any) -> Any:  # noqa: ANN401 - decoded JSON
        server, what = self._server, (request.method, parts[0])
        if parts[0] == "faults":
            return self._faults(request.method, parts, body)
        if what == ("POST", "compact"):
            server.compact()
            return {}
        if what == ("POST", "cut"):
            return {"cut": server.cut(_resource(request.query.get("resource")), request.query.get("client", "*"))}
        if what == ("POST", "load"):
            return {"loaded": server.load(body["items"])}
        if what == ("POST", "patch"):
            return self._patch(body)
        if what == ("GET", "state"):
            objects = {table.resource.qualified: len(table) for table in server.store.tables.values()}
            return {"version": server.store.version, "objects": objects, "watches": server.watches}
        if parts[0] == "tokens":
            return self._tokens(request, body)
        if parts[0] == "requests":
            return self._requests(request.method)
        raise ApiError(404, "no such control")

    def _patch(self, patches: list[Json]) -> Json:
        for patch in patches:
            call = read_call("PATCH", patch["path"], {})
            answer(self._server.registry, call, orjson.dumps(patch["body"]), "application/merge-patch+json")
        return {"patched": len(patches)}

    def _requests(self, method: str) -> Any:  # noqa: ANN401 - decoded JSON
        if method == "DELETE":
            self._server.requests.reset()
            return {}
        return self._server.requests.table()

    def _faults(self, method: str, parts: list[str], body: Any) -> Any:  # noqa: ANN401 - decoded JSON
        faults = self._server.faults
        if method == "POST":
            return [faults.add(**rule) for rule in (body if isinstance(body, list) else [body])]
        if method == "DELETE" and len(parts) > 1:
            faults.remove(int(parts[1]))
        elif method == "DELETE":
            faults.clear()
        rules: list[Rule] = list(faults)
        return rules

    def _tokens(self, request: web.BaseRequest, body: Any) -> Any:  # noqa: ANN401 - decoded JSON
        if request.method == "DELETE":
            self._server.tokens.revoke(request.query["token"])
        else:
            self._server.tokens.allow(body["token"], body.get("seconds"))
        return {}


def _resource(name: str | None) -> Resource | None:
    if not name:
        return None
    for resource in RESOURCES:
        if name in (resource.plural, resource.qualified):
            return resource
    raise KeyError(name)
