"""The HTTP server: routes, limits, and what an error looks like to kube-scheduler.

Why it exists: kube-scheduler reads the body of a 200 only, so every verb answers 200 whatever happens, with the problem
in the answer's Error where it has one. It must not know cards. Invariant: a handler's exception never stops the server
and never leaves a request without an answer.
"""

import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Protocol

from aiohttp import web
from prometheus_client.registry import Collector

from extender.admission.collector import AdmissionCollector
from extender.admission.http import Observe, webhook_routes
from extender.admission.service import Admission
from extender.cluster import Cluster
from extender.config import ServerSettings
from extender.logs import every_line, logger
from extender.server.api import Api, Compare
from extender.server.metrics import Metrics
from extender.server.page import Feed, Page
from extender.server.questions import Questions
from extender.server.scraping import Scraping
from extender.server.series import extra_series
from extender.server.turns import Turns
from extender.verbs import Hooks, Verbs
from extender.wire import extender_v1 as wire
from extender.wire.preemption_v1 import NULL_VICTIMS

Verb = Callable[[bytes], bytes | Awaitable[bytes]]
OnAnswer = Callable[[str, bytes, bytes], None]
"""Told of a verb, its body and its answer."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BOUND = wire.encode_binding()
#: The application of the webhook port, which is made together with the other one and counts in the same metrics.
WEBHOOK_APP = web.AppKey("webhook_app", web.Application)


class Live(Protocol):
    """What a live cluster puts in the place of the embedded one's bind and probes."""

    hooks: Hooks
    collector: Collector
    on_answer: OnAnswer | None

    def is_ready(self) -> bool:
        """Whether kube-scheduler gets answers from this replica."""

    def is_admitting(self) -> bool:
        """Whether the API server gets answers from this replica; it need not be the leader for that."""

    async def bind(self, args: wire.BindingArgs) -> str:
        """Bind a pod; returns "" or why not."""


def make_app(
    cluster: Cluster,
    settings: ServerSettings,
    live: Live | None = None,
    compare: Compare | None = None,
    *,
    admission: Admission | None = None,
    collectors: Iterable[Collector] = (),
    kubernetes: Callable[[], str] = lambda: "",
) -> web.Application:
    """Return the application over a cluster; that of the webhook port is its `WEBHOOK_APP`.

    `compare`: says where the cluster differs from the API server. `collectors`: further metrics.
    `kubernetes`: tells the API server's version.
    """
    app = web.Application(client_max_size=settings.max_body_bytes)
    verbs = Verbs(cluster) if live is None else Verbs(cluster, live.hooks, live.on_answer)
    metrics = Metrics(verbs, None if live is None else live.collector, kubernetes)
    admission = admission or Admission(cluster)
    for collector in (AdmissionCollector(admission), *collectors):
        metrics.registry.register(collector)
    app.add_routes(webhook_routes(admission, _observe(metrics)))
    app[WEBHOOK_APP] = _make_webhook_app(admission, metrics, settings, live)
    for name, verb, on_error in _verbs(verbs, live):
        handler = _verb_handler(name, verb, on_error, metrics)
        # kube-scheduler's urlPrefix may end in /scheduler, as in HAMi's chart.
        for prefix in ("", "/scheduler"):
            app.router.add_post(f"{prefix}/{name}", handler)
    for path in ("/livez", "/healthz"):
        app.router.add_get(path, _ok)
    app.router.add_get("/readyz", _readiness(None if live is None else live.is_ready))
    turns = Turns()
    app.router.add_get("/metrics", Scraping(metrics.registry, turns, _series(verbs, settings)).metrics)
    app.add_routes(Api(cluster, turns, embedded=live is None, compare=compare).routes())
    app.add_routes(Questions(cluster, verbs.decisions, turns, embedded=live is None).routes())
    feed = Feed(cluster, verbs.decisions, turns)
    app.on_shutdown.append(_stopping(feed))
    app.add_routes(Page(feed).routes())
    return app


def _make_webhook_app(
    admission: Admission, metrics: Metrics, settings: ServerSettings, live: Live | None
) -> web.Application:
    """Return what the whole cluster may reach: the webhooks and their probes, which tell and change nothing."""
    app = web.Application(client_max_size=settings.max_review_bytes)
    app.add_routes(webhook_routes(admission, _observe(metrics)))
    for path in ("/livez", "/healthz"):
        app.router.add_get(path, _ok)
    app.router.add_get("/readyz", _readiness(None if live is None else live.is_admitting))
    return app


def _series(verbs: Verbs, settings: ServerSettings) -> Callable[[], Iterator[bytes]] | None:
    """Return what makes the series per card and pod that were asked for; None if none were."""
    if not (settings.metrics_per_card or settings.metrics_per_pod or settings.metrics_hami_names):
        return None

    def series() -> Iterator[bytes]:
        try:
            verbs.check_ready()
        except wire.WireError:
            return iter(())
        return extra_series(verbs.cluster, settings)

    return series


def _stopping(feed: Feed) -> Callable[[web.Application], Awaitable[None]]:
    async def stop(_app: web.Application) -> None:
        feed.stop()

    return stop


def _observe(metrics: Metrics) -> Callable[[str, str], Observe]:
    return lambda webhook, result: metrics.duration.labels(webhook, result).observe


async def start(
    app: web.Application, settings: ServerSettings, ssl_context: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, int]:
    """Start listening, with a context by TLS on the webhook port.

    Returns the runner, to be cleaned up, and the port. Raises OSError if the address is taken.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=settings.keepalive_seconds,
        shutdown_timeout=settings.shutdown_seconds,
    )
    await runner.setup()
    try:
        address, wanted = settings.bind_address, settings.port
        if ssl_context is not None:
            address, wanted = settings.webhook_bind_address, settings.webhook_port
        site = web.TCPSite(runner, address, wanted, backlog=1024, ssl_context=ssl_context)
        await site.start()
    except BaseException:
        await runner.cleanup()
        raise
    port: int = runner.addresses[0][1]
    return runner, port


def _verbs(verbs: Verbs, live: Live | None) -> list[tuple[str, Verb, Callable[[str], bytes]]]:
    """Return each verb's name, function, and the answer that says "I do not know"."""

    async def bind(body: bytes) -> bytes:
        started, args = time.perf_counter(), wire.decode_binding(body)
        if live is None:
            answer = verbs.bind(body)
            if answer == _BOUND:
                _log_bound(verbs.cluster, args, started)
            return answer
        verbs.check_ready()
        why_not = await live.bind(args)
        verbs.decisions.bound(args.PodUID, args.Node, why_not, time.perf_counter() - started)
        answer = wire.encode_binding(why_not)
        if not why_not:
            _log_bound(verbs.cluster, args, started)
        if live.on_answer is not None:
            live.on_answer("bind", body, answer)
        return answer

    return [
        ("filter", verbs.filter, wire.encode_filter_error),
        ("filter-dryrun", verbs.filter_dryrun, wire.encode_filter_error),
        ("prioritize", verbs.prioritize, lambda _: b"[]"),
        ("bind", bind, wire.encode_binding),
        ("preempt", verbs.preempt, lambda _: NULL_VICTIMS),
    ]


def _log_bound(cluster: Cluster, args: wire.BindingArgs, started: float) -> None:
    """Say that a pod is on its node, one line each."""
    record, milliseconds = cluster.cache.pods.get(args.PodUID), (time.perf_counter() - started) * 1000
    every_line().info(
        "bound",
        pod=f"{args.PodNamespace}/{args.PodName}",
        node=args.Node,
        cards=[] if record is None else [use.uuid for use in record.held],
        milliseconds=round(milliseconds, 1),
    )


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


def _readiness(is_ready: Callable[[], bool] | None) -> Handler:
    async def handle(_request: web.Request) -> web.Response:
        ready = is_ready is None or is_ready()
        return web.Response(text="ok" if ready else "not ready", status=200 if ready else 503)

    return handle
