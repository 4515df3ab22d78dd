"""The API server for tests: a Kubernetes API over real HTTP, in one asyncio process.

It exists so that the extender meets versions, conflicts, 410s and broken connections in tests as it does in a cluster,
and so that benchmarks have a counterpart that is not the bottleneck. It must not import the extender. Invariant:
without faults it behaves, for the resources in resources.py, as conformance.yaml says, and so does a real one.

    async with ApiServer() as server:
        server.load(objects)
        server.faults.add(fault="status", code=429, retry_after_seconds=1, resource="pods/binding", nth=3)
        ... requests to server.url ...
        assert server.requests.count(resource="pods/binding") == 1

Besides the API, it offers /livez, /readyz, /healthz, /version, and its control under /_test/ (see control.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from random import Random
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.apiserver.answers import Answer, answer, selector_of
from tests.apiserver.calls import Call, read_call
from tests.apiserver.control import Control
from tests.apiserver.discovery import Discovery
from tests.apiserver.faults import Faults, Rule
from tests.apiserver.harm import Harm
from tests.apiserver.loading import load
from tests.apiserver.pages import Page
from tests.apiserver.registry import Registry
from tests.apiserver.resources import REVIEWS, Json, Resource
from tests.apiserver.reviews import Reviews
from tests.apiserver.statuses import ApiError
from tests.apiserver.store import Store
from tests.apiserver.streaming import Stream
from tests.apiserver.tokens import Tokens
from tests.apiserver.traffic import Requests
from tests.apiserver.watching import Line, Watch, error_line, read_options

_BODY_BYTES = 3 * 2**20
_WHOLE_BYTES = 8 * 2**20
"""Up to this size a list is answered in one piece."""
_KEEPALIVE_SECONDS = 3600
_VERSION = b'{"major":"1","minor":"36","gitVersion":"v1.36.0-test"}'
_JSON = {"Content-Type": "application/json"}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ApiServer:
    """One server with an empty cluster."""

    def __init__(
        self,
        *,
        history_limit: int = 10_000,
        bookmark_seconds: float = 60.0,
        watch_timeout_seconds: float = 1800.0,
        expired_start_is_event: bool = False,
        seed: int = 0,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """An empty cluster; `start` makes it reachable.

        `history_limit` is the number of events kept per resource. With `expired_start_is_event` a watch that starts
        below the history is answered 200 with an ERROR event, as kube-apiserver's cache does; else with HTTP 410.
        """
        self.store = Store(history_limit)
        self.registry = Registry(self.store, now, Random(seed))
        self.faults = Faults(seed)
        self.requests = Requests()
        self.tokens = Tokens(lambda: asyncio.get_running_loop().time())
        self.reviews = Reviews()
        self.discovery = Discovery()
        self.url = ""
        self._bookmark_seconds = bookmark_seconds
        self._watch_timeout_seconds = watch_timeout_seconds
        self._expired_start_is_event = expired_start_is_event
        self._watches: dict[Watch, Call] = {}
        self._tasks: set[asyncio.Task[web.StreamResponse]] = set()
        self._runner: web.ServerRunner | None = None
        self._control = Control(self)
        self._harm = Harm()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one."""
        server = web.Server(
            self._handle, access_log=None, keepalive_timeout=_KEEPALIVE_SECONDS, handler_cancellation=True
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=1024).start()
        self.url = f"http://{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End every stream and connection, and stop listening."""
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def load(self, objects: Iterable[Json]) -> int:
        """Store objects as they are, status included, without events. Open watches of their resources end with 410."""
        return load(self.registry, objects)

    def compact(self) -> None:
        """Forget the history of all resources."""
        self.store.compact()

    def cut(self, resource: Resource | None = None, client: str = "*") -> int:
        """Break the connections of open watches, of one resource or all, of some clients or all; returns how many."""
        watches = [
            watch
            for watch, call in self._watches.items()
            if resource in (None, watch.resource) and fnmatchcase(call.client, client)
        ]
        for watch in watches:
            watch.cut = True
            watch.wake.set()
        return len(watches)

    def serve(self, *group_versions: str) -> None:
        """Serve these APIs from now on; they are those that not every cluster has."""
        self.discovery.serve(*group_versions)

    def withdraw(self, group_version: str) -> None:
        """Stop serving an API; its watches break."""
        for resource in self.discovery.withdraw(group_version):
            self.cut(resource)

    @property
    def watches(self) -> int:
        """Return how many watches are open."""
        return len(self._watches)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        try:
            if path.startswith("/_test/"):
                return await self._control.handle(request)
            if path in ("/livez", "/readyz", "/healthz"):
                return web.Response(text="ok")
            self.tokens.check(request.headers.get("Authorization", ""))
            if path == "/version":
                return web.Response(body=_VERSION, headers=_JSON)
            document = self.discovery.document(path)
            if document is not None:
                return web.Response(body=document, headers=_JSON)
            call = read_call(request.method, path, request.query, _client(request))
            self.discovery.check(call.resource)
            self.requests.add(call)
            return await self._suffer(request, call, self.faults.of_request(call))
        except ApiError as error:
            return _refusal(error)

    async def _suffer(self, request: web.BaseRequest, call: Call, rules: list[Rule]) -> web.StreamResponse:
        if call.verb == "watch":
            early = await self._harm.before(request, rules)
            return await self._watch(request, call) if early is None else early
        body = await _read(request)
        content_type = request.content_type

        async def carry_out() -> web.StreamResponse:
            return await self._answer(request, call, body, content_type)

        if not rules:
            return await carry_out()
        # A client that gives up does not stop its request.
        return await self._on_its_own(self._harm.around(request, rules, carry_out))

    async def _answer(self, request: web.BaseRequest, call: Call, body: bytes, content_type: str) -> web.StreamResponse:
        try:
            if call.resource in REVIEWS:
                return web.Response(status=201, body=self.reviews.answer(call, body), headers=_JSON)
            return await _response(request, answer(self.registry, call, body, content_type))
        except ApiError as error:
            return _refusal(error)

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        options = read_options(call.query, self.store, self._watch_timeout_seconds)
        try:
            watch = Watch(self.store, call.resource, selector_of(call), options)
        except ApiError as error:
            if self._expired_start_is_event and error.code == 410:
                return _one_line(error_line(error))
            raise
        ignore = self.store.listen(call.resource, watch.wake.set)
        self._watches[watch] = call
        try:
            return await Stream(request, call, watch, self.faults).run(options, self._bookmark_seconds)
        finally:
            ignore()
            del self._watches[watch]

    def _on_its_own(self, work: Coroutine[None, None, web.StreamResponse]) -> Awaitable[web.StreamResponse]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)


def _client(request: web.BaseRequest) -> str:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return token or request.headers.get("User-Agent", "")


def _refusal(error: ApiError) -> web.Response:
    return web.Response(status=error.code, body=error.body(), headers=_JSON | error.headers())


def _one_line(line: Line) -> web.Response:
    return web.Response(body=line.data, headers=_JSON)


async def _read(request: web.BaseRequest) -> bytes:
    if not request.body_exists:
        return b""
    body = await request.content.read(_BODY_BYTES + 1)
    while not request.content.at_eof():
        body += await request.content.read(_BODY_BYTES + 1)
        if len(body) > _BODY_BYTES:
            raise ApiError(413, f"Request entity too large: limit is {_BODY_BYTES}")
    return body


async def _response(request: web.BaseRequest, result: Answer) -> web.StreamResponse:
    body = result.body
    if not isinstance(body, Page):
        return web.Response(status=result.code, body=body, headers=_JSON)
    length = body.length
    if length <= _WHOLE_BYTES:
        return web.Response(body=b"".join(body.chunks()), headers=_JSON)
    response = web.StreamResponse(headers=_JSON)
    response.content_length = length
    await response.prepare(request)
    for chunk in body.chunks():
        await response.write(chunk)
    await response.write_eof()
    return response
