"""A live extender against the API server for tests: real HTTP on loopback, everything in one event loop.

It exists so that a test of the live cluster reads as a story of objects, requests and faults. It must not know what a
test expects. Invariant: objects change by the API server's own rules; the extender's state is compared with the
reference over the API server's objects, never with what the extender says of itself.

    async with running(node("n1"), lock_mode=False) as bench:
        pod = bench.kube.create(pod("p"))
        await bench.scheduler.place(pod)
        await bench.agrees()
"""

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
from aiohttp import web
from kubernetes_asyncio.client import Configuration
from prometheus_client.registry import Collector, CollectorRegistry

from accounting.status import Problem
from extender.admission.service import Admission
from extender.config import ServerSettings, Settings
from extender.journal.journal import Journal
from extender.kube.client import KubeClient
from extender.kube.connection import Connection
from extender.kube.reflector import ReflectorSettings
from extender.live.app import LiveExtender
from extender.live.binding.attempt import BindSettings
from extender.live.settings import LiveSettings
from extender.live.waking.waker import WakeSettings
from extender.security.tls import ServingCertificate
from extender.server.app import WEBHOOK_APP, OnAnswer, make_app
from extender.server.listener import Listener
from extender.server.ports import start
from extender.verbs.hooks import Hooks
from extender.wire.extender_v1 import BindingArgs
from tests.apiserver.beside import Beside
from tests.apiserver.kubelets import Kubelets
from tests.apiserver.node_actor import NodeActor
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json
from tests.live.harness_audit import Audit
from tests.live.harness_kube import Kube
from tests.live.harness_scheduler import Scheduler
from tests.virtual_time import eventually, passes

__all__ = ["Bench", "Extender", "Kube", "eventually", "live_settings", "names", "report", "running", "stalls"]

#: Long enough for a loaded machine; nothing that works waits that long.
PATIENCE_SECONDS = 10.0
#: How often a replica looks at its certificate; as seldom as in a process would only be more turns of a thread.
_CERTIFICATE_SECONDS = 5.0
ONE_VENDOR = Settings()


@asynccontextmanager
async def stalls() -> AsyncIterator[list[float]]:
    """Measure for how long the event loop is busy at a stretch, in seconds; the longest is the first of the list.

    The time is this thread's own, so that a loaded machine causes no stall. The garbage collector leaves existing
    objects alone, as in the served process.
    """
    worst = [0.0]

    async def measure() -> None:
        while True:
            began = time.thread_time()
            await passes(0.001)
            worst[0] = max(worst[0], time.thread_time() - began)

    gc.collect()
    gc.freeze()
    measuring = asyncio.create_task(measure())
    try:
        yield worst
    finally:
        measuring.cancel()
        gc.unfreeze()


def report(figures: str) -> None:
    """Print what was measured; `pytest -s` shows it."""
    sys.stdout.write(f"{figures}\n")


class _Live:
    """The live parts as the HTTP server needs them."""

    def __init__(self, live: LiveExtender) -> None:
        self._live = live
        self.hooks: Hooks = live.hooks
        self.collector: Collector = CollectorRegistry()
        self.on_answer: OnAnswer | None = None

    def is_ready(self) -> bool:
        return self._live.is_ready()

    def unseen(self) -> list[Problem]:
        return self._live.unseen()

    def is_admitting(self) -> bool:
        return self._live.is_synced()

    async def bind(self, args: BindingArgs) -> str:
        return await self._live.binder.bind(args)

    async def compare(self) -> Json:
        return (await self._live.compare()).as_json()


class Extender:
    """One process of the extender: its live parts and its HTTP server."""

    def __init__(self, live: LiveExtender, runner: Listener, session: aiohttp.ClientSession) -> None:
        self.live = live
        self.session = session
        self.webhooks_url = ""
        """Where the webhooks are served by TLS; "": nowhere."""
        self._runners = [runner]
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def boot(
        cls,
        api: str | Configuration,
        settings: LiveSettings,
        cluster: Settings = ONE_VENDOR,
        journal: Journal | None = None,
        certificate: ServingCertificate | None = None,
    ) -> "Extender":
        """Start a process; it is not synced yet. With a certificate, it serves the webhooks."""
        configuration = api if isinstance(api, Configuration) else _configuration(api)
        live = LiveExtender(KubeClient(Connection(configuration)), cluster, settings, journal)
        server = ServerSettings(port=0, webhook_port=0, shutdown_seconds=0.1)
        admission = Admission(live.cluster, is_synced=live.is_synced)
        app = make_app(live.cluster, server, _Live(live), admission=admission)
        runner, port = await start(app, server)
        await live.start()
        connector = aiohttp.TCPConnector(limit=0)
        made = cls(live, runner, aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector))
        if certificate is not None:
            await made._serve_webhooks(app[WEBHOOK_APP], server, certificate)
        return made

    async def _serve_webhooks(
        self, app: web.Application, settings: ServerSettings, certificate: ServingCertificate
    ) -> None:
        runner, port = await start(app, settings, certificate.context)
        self._runners.append(runner)
        self._watching = asyncio.create_task(certificate.watch(_CERTIFICATE_SECONDS))
        self.webhooks_url = f"https://127.0.0.1:{port}"

    async def kill(self) -> None:
        """End without settling anything, as a killed process does; requests that were sent stay on their way."""
        await self.end(0)

    async def end(self, seconds: float = PATIENCE_SECONDS) -> None:
        """End as a process does on request: settle what is in flight, and give the Lease up."""
        await self.session.close()
        await self.live.stop(seconds)
        if self._watching is not None:
            self._watching.cancel()
        for runner in self._runners:
            await runner.cleanup()

    async def ready(self) -> None:
        """Wait until verbs are answered."""
        await eventually(self.live.is_ready, "the extender is ready")


def _configuration(url: str) -> Configuration:
    """Return how an API server without credentials is reached."""
    configuration = Configuration()
    configuration.host = url
    return configuration


class Bench:
    """The API server, one extender, a scheduler that asks it, and the audit."""

    def __init__(self, api: ApiServer, settings: LiveSettings, cluster: Settings = ONE_VENDOR) -> None:
        self.api = api
        self.kube = Kube(api)
        self.audit = Audit(api, cluster)
        self.settings = settings
        self._cluster = cluster
        self.extender: Extender
        self.scheduler: Scheduler

    @property
    def live(self) -> LiveExtender:
        """Return the live parts of the extender that runs now."""
        return self.extender.live

    @property
    def requests(self) -> int:
        """Return how many requests the extender has sent to the API server, without watches."""
        return self.live.client.requests

    async def boot(self) -> None:
        """Start the extender and wait until it is ready."""
        self.extender = await Extender.boot(self.api.url, self.settings, self._cluster)
        await self.extender.ready()
        # From now on changes come as events, not in a list, and not from an earlier process.
        await eventually(lambda: self.live.waker.is_on_duty, "waking is on duty")
        await eventually(lambda: {"pods", "nodes", "resourcequotas"} <= self._watched(), "the watches are open")
        self.scheduler = Scheduler(self.extender.session, self.kube)

    def _watched(self) -> set[str]:
        return {watch.resource.plural for watch in self.api._watches}

    async def restart(self) -> None:
        """Kill the extender and start another one."""
        await self.extender.kill()
        await self.boot()

    async def agrees(self, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the extender's state is what the reference computes from the API server's objects."""
        try:
            await eventually(lambda: self.audit.difference(self.live.cluster) is None, seconds=seconds)
        except AssertionError:
            raise AssertionError(self.audit.difference(self.live.cluster)) from None
        assert self.audit.overcommitted == []

    async def caught_up(self) -> None:
        """Wait until the extender has seen every change of pods and nodes so far."""
        marker = f"marker-{self.api.store.version}"
        self.kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": marker}})
        await eventually(lambda: marker in self.live.facts.nodes, "the watch of nodes")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": marker}, "spec": _ASKING}
        uid = self.kube.create(pod)["metadata"]["uid"]
        await eventually(lambda: self.live.cluster.pod(uid) is not None, "the watch of pods")
        self.kube.delete_pod(marker)
        self.kube.delete_node(marker)
        await eventually(lambda: self.live.cluster.pod(uid) is None and marker not in self.live.facts.nodes)

    @asynccontextmanager
    async def watch_gap(self, resource: str = "pods") -> AsyncIterator[None]:
        """Lose every event of a resource that happens in the block, unnoticed."""

        def positions() -> list[int]:
            return [watch.position for watch in self.api._watches if watch.resource.plural == resource]

        # A watch that begins later would get past events.
        await eventually(lambda: bool(positions()), f"a watch of {resource} is open")
        rule = self.api.faults.add(fault="drop", resource=resource, verb="watch")
        yield
        now = self.api.store.version
        await eventually(lambda: min(positions(), default=0) >= now, f"all events of {resource} are lost")
        self.api.faults.remove(rule.id)

    @asynccontextmanager
    async def node_actor(self) -> AsyncIterator[NodeActor]:
        """Run all kubelets and device plugins during the block."""
        async with aiohttp.ClientSession(self.api.url, read_bufsize=2**22) as session:
            actor = NodeActor(session)
            async with Beside() as beside:
                beside.start(Kubelets(actor).follow())
                yield actor


_LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}
_ASKING = {"containers": [{"name": "a", "image": "a", "resources": {"limits": _LIMITS}}]}


def live_settings(
    *,
    lock_mode: bool = False,
    claims: bool = True,
    http_timeout_seconds: float = 5.0,
    wake: WakeSettings | None = None,
    resolve_seconds: tuple[float, float] = (0.02, 0.2),
) -> LiveSettings:
    """Settings of one replica that always leads, with short pauses."""
    return LiveSettings(
        leader_elect=False,
        bind=BindSettings(http_timeout_seconds, lock_mode=lock_mode, resolve_seconds=resolve_seconds),
        wake=wake or WakeSettings(),
        reflector=replace(ReflectorSettings(), backoff_seconds=(0.01, 0.05)),
        claims=claims,
        identity="test",
    )


@asynccontextmanager
async def running(
    *objects: Json,
    settings: LiveSettings | None = None,
    cluster: Settings = ONE_VENDOR,
    history_limit: int = 10_000,
    served: Sequence[str] = (),
    faults: Sequence[Json] = (),
    **how: Any,  # noqa: ANN401
) -> AsyncIterator[Bench]:
    """An API server with these objects and an extender that has listed them.

    `served`: APIs that not every cluster has. `faults`: from the start on. `how`: see `live_settings`.
    """
    async with ApiServer(history_limit=history_limit) as api:
        api.serve(*served)
        api.load(objects)
        for fault in faults:
            api.faults.add(**fault)
        bench = Bench(api, settings or live_settings(**how), cluster)
        await bench.boot()
        try:
            yield bench
        finally:
            await bench.extender.kill()
            bench.audit.close()


def names(objects: Sequence[Json]) -> list[str]:
    """Return the names of objects."""
    return [obj["metadata"]["name"] for obj in objects]
