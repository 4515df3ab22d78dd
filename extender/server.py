"""The HTTP server: routes, limits, and what an error looks like to kube-scheduler.

Why it exists: kube-scheduler reads the body of a 200 only, so every verb answers 200 whatever happens, with the problem
in the answer's Error where it has one. It must not know cards. Invariant: a handler's exception never stops the server
and never leaves a request without an answer.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.registry import Collector

from extender import __version__
from extender.api import Api, Compare, json_response
from extender.cluster import Cluster
from extender.config import ServerSettings
from extender.hooks import Hooks
from extender.logs import logger
from extender.metrics import Metrics
from extender.verbs import Verbs
from extender.wire import extender_v1 as wire

Verb = Callable[[bytes], bytes | Awaitable[bytes]]
OnAnswer = Callable[[str, bytes, bytes], None]
"""Told of a verb, its body and its answer."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_INDEX = {
    "name": "gpu-extender",
    "version": __version__,
    "verbs": ["/filter", "/prioritize", "/bind", "/preempt", "/filter-dryrun"],
    "lists": ["/api/v1/pods", "/api/v1/nodes", "/api/v1/verify", "/api/v1/quotas"],
    "probes": ["/livez", "/readyz", "/healthz", "/metrics"],
}


class Live(Protocol):
    """What a live cluster puts in the place of the embedded one's bind and probes."""

    hooks: Hooks
    collector: Collector
    on_answer: OnAnswer | None

    def is_ready(self) -> bool:
        """Whether kube-scheduler gets answers from this replica."""

    async def bind(self, args: wire.BindingArgs) -> str:
        """Bind a pod; returns "" or why not."""


def make_app(
    cluster: Cluster, settings: ServerSettings, live: Live | None = None, compare: Compare | None = None
) -> web.Application:
    """Return the application over a cluster. `compare`: says where it differs from the API server."""
    app = web.Application(client_max_size=settings.max_body_bytes)
    verbs = Verbs(cluster) if live is None else Verbs(cluster, live.hooks, live.on_answer)
    metrics = Metrics(verbs, None if live is None else live.collector)
    for name, verb, on_error in _verbs(verbs, live):
        handler = _verb_handler(name, verb, on_error, metrics)
        # kube-scheduler's urlPrefix may end in /scheduler, as in HAMi's chart.
        for prefix in ("", "/scheduler"):
            app.router.add_post(f"{prefix}/{name}", handler)
    for path in ("/livez", "/healthz"):
        app.router.add_get(path, _ok)
    app.router.add_get("/readyz", _readiness(live))
    app.router.add_get("/metrics", make_aiohttp_handler(metrics.registry))
    app.router.add_get("/", _index)
    app.add_routes(Api(cluster, embedded=live is None, compare=compare).routes())
    return app


async def start(app: web.Application, settings: ServerSettings) -> tuple[web.AppRunner, int]:
    """Start listening. Returns the runner, to be cleaned up, and the port. Raises OSError if the address is taken."""
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=settings.keepalive_seconds,
        shutdown_timeout=settings.shutdown_seconds,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.bind_address, settings.port, backlog=1024)
        await site.start()
    except BaseException:
        await runner.cleanup()
        raise
    port: int = runner.addresses[0][1]
    return runner, port


def _verbs(verbs: Verbs, live: Live | None) -> list[tuple[str, Verb, Callable[[str], bytes]]]:
    """Return each verb's name, function, and the answer that says "I do not know"."""

    async def bind(body: bytes) -> bytes:
        if live is None:
            return verbs.bind(body)
        args = wire.decode_binding(body)
        verbs.check_ready()
        answer = wire.encode_binding(await live.bind(args))
        if live.on_answer is not None:
            live.on_answer("bind", body, answer)
        return answer

    return [
        ("filter", verbs.filter, wire.encode_filter_error),
        ("filter-dryrun", verbs.filter_dryrun, wire.encode_filter_error),
        ("prioritize", verbs.prioritize, lambda _: b"[]"),
        ("bind", bind, wire.encode_binding),
        ("preempt", verbs.preempt, lambda _: wire.NULL_VICTIMS),
    ]


def _verb_handler(name: str, verb: Verb, on_error: Callable[[str], bytes], metrics: Metrics) -> Handler:
    observe_ok = metrics.duration.labels(name, "ok").observe
    observe_error = metrics.duration.labels(name, "error").observe

    async def handle(request: web.Request) -> web.Response:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            observe_error(0.0)
            logger().warning("request cannot be answered", verb=name, why=str(error.text))
            return _verb_response(on_error(f"request body: {error.text}"))
        started = time.perf_counter()
        try:
            made = verb(body)
            answer = made if isinstance(made, bytes) else await made
        except wire.WireError as error:
            observe_error(time.perf_counter() - started)
            logger().warning("request cannot be answered", verb=name, why=str(error))
            return _verb_response(on_error(str(error)))
        except Exception:  # noqa: BLE001 - whatever happened, kube-scheduler needs an answer and the server lives on
            observe_error(time.perf_counter() - started)
            logger().exception("verb failed", verb=name)
            return _verb_response(on_error(f"internal error in {name}"))
        observe_ok(time.perf_counter() - started)
        return _verb_response(answer)

    return handle


def _verb_response(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


async def _ok(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def _readiness(live: Live | None) -> Handler:
    async def handle(_request: web.Request) -> web.Response:
        ready = live is None or live.is_ready()
        return web.Response(text="ok" if ready else "not ready", status=200 if ready else 503)

    return handle


async def _index(_request: web.Request) -> web.Response:
    return json_response(_INDEX)
