"""The HTTP server: routes, limits, and what an error looks like to kube-scheduler.

Why it exists: kube-scheduler reads the body of a 200 only, so every verb answers 200 whatever happens, with the problem
in the answer's Error where it has one. It must not know cards. Invariant: a handler's exception never stops the server
and never leaves a request without an answer.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.registry import Collector

from accounting.status import Problem
from extender.admission.collector import AdmissionCollector
from extender.admission.http import Observe, webhook_routes
from extender.admission.service import Admission
from extender.cluster import Cluster
from extender.config import ServerSettings
from extender.logs import every_line, logger
from extender.server.access import May, certificate_needed, loopback_needed, token_needed
from extender.server.api import Api, Compare
from extender.server.bodies import at_most, read_body
from extender.server.connections import ConnectionCollector, Connections
from extender.server.metrics import Metrics
from extender.server.page import Feed, Page
from extender.server.ports import PORTS
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
#: The application of the lists' own port: the page, /api/v1 and the metrics, without verbs.
API_APP = web.AppKey("api_app", web.Application)
_VERBS = ("filter", "filter-dryrun", "prioritize", "bind", "preempt")
#: kube-scheduler's urlPrefix may end in /scheduler, as in HAMi's chart.
_VERB_PATHS = frozenset(f"{prefix}/{verb}" for prefix in ("", "/scheduler") for verb in _VERBS)
_WEBHOOK_PATHS = frozenset({"/mutate", "/validate"})


class Live(Protocol):
    """What a live cluster puts in the place of the embedded one's bind and probes."""

    hooks: Hooks
    collector: Collector
    on_answer: OnAnswer | None

    def is_ready(self) -> bool:
        """Whether kube-scheduler gets answers from this replica."""

    def unseen(self) -> list[Problem]:
        """Return the resources whose objects may exist and are not seen."""

    def is_admitting(self) -> bool:
        """Whether the API server gets answers from this replica; it need not be the leader for that."""

    async def bind(self, args: wire.BindingArgs) -> str:
        """Bind a pod; returns "" or why not."""


def make_app(  # noqa: PLR0913 - the last three are what a live cluster adds
    cluster: Cluster,
    settings: ServerSettings,
    live: Live | None = None,
    compare: Compare | None = None,
    *,
    admission: Admission | None = None,
    collectors: Iterable[Collector] = (),
    kubernetes: Callable[[], str] = lambda: "",
    may: May | None = None,
) -> web.Application:
    """Return the application over a cluster; those of the other ports are its `WEBHOOK_APP` and `API_APP`.

    `compare`: says where the cluster differs from the API server. `collectors`: further metrics. `kubernetes`: tells
    the API server's version. `may`: says who may read the lists from elsewhere than loopback; without it nobody may.
    """
    app = web.Application(middlewares=_guards(settings, live))
    verbs = Verbs(cluster) if live is None else Verbs(cluster, live.hooks, live.on_answer)
    metrics = Metrics(verbs, None if live is None else live.collector, kubernetes)
    admission = admission or Admission(cluster)
    ports: list[Connections] = []
    for collector in (AdmissionCollector(admission), ConnectionCollector(ports), *collectors):
        metrics.registry.register(collector)
    app.add_routes(webhook_routes(admission, _observe(metrics), at_most(settings.max_review_bytes)))
    app[WEBHOOK_APP] = _make_webhook_app(admission, metrics, settings, live)
    app[API_APP] = web.Application(middlewares=[token_needed(may)])
    app[PORTS] = app[WEBHOOK_APP][PORTS] = app[API_APP][PORTS] = ports
    for name, verb, on_error in _verbs(verbs, live):
        handler = _verb_handler(name, verb, on_error, metrics, settings.max_body_bytes)
        for prefix in ("", "/scheduler"):
            app.router.add_post(f"{prefix}/{name}", handler)
    most, turns = min(settings.max_object_bytes, settings.max_body_bytes), Turns()
    feed, embedded = Feed(cluster, verbs.decisions, turns), live is None
    api = Api(cluster, turns, most, embedded=embedded, writes_files=settings.allow_writes, compare=compare)
    routes = [
        web.get("/metrics", Scraping(metrics.registry, turns, _series(verbs, settings)).metrics),
        *api.routes(),
        *Questions(cluster, verbs.decisions, turns, most, embedded=embedded).routes(),
        *Page(feed).routes(),
    ]
    for each in (app, app[API_APP]):
        each.add_routes(routes)
        each.on_shutdown.append(_stopping(feed))
        _add_probes(each, None if live is None else live.is_ready, list if live is None else live.unseen)
    return app


def _guards(settings: ServerSettings, live: Live | None) -> list[Middleware]:
    """Return what stands before the verbs' port."""
    if settings.verbs_client_ca is not None:
        return [certificate_needed]
    return [] if live is None else [loopback_needed(_VERB_PATHS | _WEBHOOK_PATHS)]


def _make_webhook_app(
    admission: Admission, metrics: Metrics, settings: ServerSettings, live: Live | None
) -> web.Application:
    """Return what the whole cluster may reach: the webhooks and their probes, which tell and change nothing."""
    app = web.Application(middlewares=[] if settings.webhook_client_ca is None else [certificate_needed])
    app.add_routes(webhook_routes(admission, _observe(metrics), at_most(settings.max_review_bytes)))
    _add_probes(app, None if live is None else live.is_admitting)
    return app


def _add_probes(
    app: web.Application, is_ready: Callable[[], bool] | None, unseen: Callable[[], list[Problem]] = list
) -> None:
    for path in ("/livez", "/healthz"):
        app.router.add_get(path, _ok)
    app.router.add_get("/readyz", _readiness(is_ready, unseen))


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


def _verb_handler(name: str, verb: Verb, on_error: Callable[[str], bytes], metrics: Metrics, most: int) -> Handler:
    observe_ok = metrics.duration.labels(name, "ok").observe
    observe_error = metrics.duration.labels(name, "error").observe

    async def handle(request: web.Request) -> web.Response:
        try:
            body = await read_body(request, most)
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


def _readiness(is_ready: Callable[[], bool] | None, unseen: Callable[[], list[Problem]]) -> Handler:
    """Return the probe. `?verbose` adds what is not seen, and does not change the status."""

    async def handle(request: web.Request) -> web.Response:
        ready = is_ready is None or is_ready()
        lines = ["ok" if ready else "not ready"]
        if "verbose" in request.query:
            lines += [f"{each.object} {each.message}" for each in unseen()]
        return web.Response(text="\n".join(lines), status=200 if ready else 503)

    return handle
