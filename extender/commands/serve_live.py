"""`serve --kubeconfig FILE | --in-cluster`: the extender on a live cluster.

It must not know cards. Invariants: wrong input is reported in one line before anything runs; the server listens before
the cluster is known, and answers "not ready" until then; on SIGTERM it stops being ready, waits for kube-scheduler to
notice, stops accepting, settles binds in flight, releases the lease and ends.
"""

import argparse
import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web
from prometheus_client.registry import Collector

from accounting.status import Problem
from extender.admission.service import Admission
from extender.cluster import Learner
from extender.commands.common import expected_pods
from extender.commands.ports import Urls, admission_settings, further_ports, read_certificates, verbs_port
from extender.commands.raw_budgets import RawBudgetFile
from extender.commands.usage import usage_keeper
from extender.config import ServerSettings, Settings
from extender.convert import InputError
from extender.journal import FileJournal
from extender.kube.client import ConnectError, KubeClient
from extender.kube.reviews import Reviews
from extender.live.app import LiveExtender
from extender.live.binding import BindSettings
from extender.live.collector import LiveCollector, LoopMonitor
from extender.live.evicting import EvictSettings
from extender.live.garbage import GarbagePace
from extender.live.leading import LeaseSettings, OwnPod, Predecessors
from extender.live.server_version import ServerVersion
from extender.live.settings import LiveSettings
from extender.live.tainting import TaintSettings
from extender.logs import announce, logger
from extender.security import CertificateCollector, ServingCertificate
from extender.server import Compare, OnAnswer, make_app
from extender.verbs import Hooks
from extender.wire.extender_v1 import BindingArgs
from extender.wire.names import why_no_label, why_no_subdomain


class _Live:
    """The functions of the live parts that the server uses."""

    def __init__(self, live: LiveExtender, collector: Collector, certificate: ServingCertificate | None) -> None:
        self._live = live
        self._certificate = certificate
        self.on_answer: OnAnswer | None = live.on_answer
        self.hooks: Hooks = live.hooks
        self.collector = collector

    def is_ready(self) -> bool:
        return self._live.is_ready()

    def unseen(self) -> list[Problem]:
        return self._live.unseen()

    def is_admitting(self) -> bool:
        # No API server accepts a certificate that has expired.
        accepted = self._certificate is None or not self._certificate.is_expired
        return accepted and self._live.is_synced() and not self._live.is_stopping

    async def bind(self, args: BindingArgs) -> str:
        return await self._live.binder.bind(args)


def run(arguments: argparse.Namespace, settings: Settings, server: ServerSettings) -> int:
    """Run until SIGTERM or SIGINT. Raises `InputError`."""
    live = live_settings(arguments)
    garbage = GarbagePace()
    with garbage.kept():
        asyncio.run(_serve(arguments, settings, server, live, garbage))
    return 0


async def connect(kubeconfig: str | None) -> KubeClient:
    """Return a client. Raises `InputError`."""
    try:
        return await KubeClient.connect(kubeconfig)
    except ConnectError as error:
        option = "--in-cluster" if kubeconfig is None else "--kubeconfig"
        raise InputError(option, kubeconfig or "true", str(error)) from None


async def _serve(
    arguments: argparse.Namespace,
    settings: Settings,
    server: ServerSettings,
    live_settings_: LiveSettings,
    garbage: GarbagePace,
) -> None:
    given = expected_pods(arguments.expected_workload, settings)
    certificates = read_certificates(arguments)
    async with _connected(arguments) as (client, journal):
        live, monitor = LiveExtender(client, settings, live_settings_, journal), LoopMonitor()
        version, budgets = ServerVersion(client), RawBudgetFile(arguments.raw_budgets, live.cluster)
        keeper = usage_keeper(arguments, live.cluster, live.is_synced)
        collector = LiveCollector(live, monitor, garbage)
        parts = _Live(live, collector, certificates.webhooks)
        app = _application(arguments, server, live, parts, certificates.webhooks, version, client)
        listener, url = await verbs_port(app, server, certificates)
        stopped = _on_signals()
        async with further_ports(app, server, certificates) as urls:
            beside = [asyncio.create_task(each.run()) for each in (monitor, garbage, version)]
            await live.start()
            _welcome(url, urls)
            async with Learner(live.cluster, given).running(), budgets.followed(), keeper.running():
                await stopped.wait()
            logger().info("stopping")
            for task in beside:
                task.cancel()
            live.begin_stop()
            await asyncio.sleep(arguments.shutdown_delay)
        await listener.cleanup()
        await live.stop(server.shutdown_seconds)
    logger().info("stopped")


def _application(
    arguments: argparse.Namespace,
    server: ServerSettings,
    live: LiveExtender,
    parts: _Live,
    certificate: ServingCertificate | None,
    version: ServerVersion,
    client: KubeClient,
) -> web.Application:
    admission = Admission(live.cluster, admission_settings(arguments), live.is_synced)
    collectors = [] if certificate is None else [CertificateCollector(certificate)]
    return make_app(
        live.cluster,
        server,
        parts,
        _comparing(live),
        admission=admission,
        collectors=collectors,
        kubernetes=lambda: version.text,
        may=Reviews(client).may,
    )


@asynccontextmanager
async def _connected(arguments: argparse.Namespace) -> AsyncIterator[tuple[KubeClient, FileJournal | None]]:
    """Open the resources that must be closed in any case. Raises `InputError`."""
    client = await connect(arguments.kubeconfig)
    try:
        journal = _journal(arguments.journal)
        try:
            yield client, journal
        finally:
            if journal is not None:
                journal.close()
    finally:
        await client.close()


def _comparing(live: LiveExtender) -> Compare:
    async def compare() -> dict[str, Any]:
        return (await live.compare()).as_json()

    return compare


def _welcome(url: str, urls: Urls) -> None:
    announce(f"gpu-extender listens on {url}\n{urls.text()}", "listening", address=url, **urls._asdict())


def _on_signals() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def _journal(path: str | None) -> FileJournal | None:
    if path is None:
        return None
    try:
        return FileJournal(path)
    except OSError as error:
        raise InputError("--journal", path, error.strerror or str(error)) from None


def live_settings(arguments: argparse.Namespace) -> LiveSettings:
    """Return the settings of the flags. Raises `InputError` for times that would allow no bind."""
    _check_times(arguments)
    lease = LeaseSettings(
        namespace=arguments.lease_namespace,
        name=arguments.lease_name or ("kube-scheduler" if arguments.follow_lease else "gpu-extender"),
        duration_seconds=arguments.lease_duration,
        retry_seconds=arguments.lease_retry,
    )
    electing = arguments.leader_elect or arguments.follow_lease
    bind = BindSettings(
        http_timeout_seconds=arguments.http_timeout,
        # Half a lease, because its holder renews it long before that.
        longest_write_seconds=arguments.lease_duration / 2 if electing else math.inf,
        lock_mode=arguments.lock_mode == "hami",
    )
    settings = LiveSettings(
        leader_elect=arguments.leader_elect,
        follow_lease=arguments.follow_lease,
        lease=lease,
        bind=bind,
        claims=arguments.claims,
        taints=TaintSettings() if arguments.taint_held_cards else None,
        labelled_pod=_own_pod() if arguments.leader_label else None,
        evict=EvictSettings(
            evicts=arguments.preemption == "evict",
            per_minute=arguments.preemption_evictions_per_minute,
            stop_file=arguments.preemption_stop_file,
            timeout_seconds=arguments.preemption_timeout,
        ),
    )
    return replace(settings, predecessors=_predecessors(arguments.predecessor_lock, settings.identity))


def _own_pod() -> OwnPod:
    """Return the pod that the environment names. Raises `InputError`."""
    pod = OwnPod(os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", ""))
    why = why_no_label(pod.namespace) or why_no_subdomain(pod.name)
    if why:
        raise InputError("--leader-label", f"{pod.namespace}/{pod.name}", f"POD_NAMESPACE and POD_NAME: {why}")
    return pod


def _predecessors(path: str | None, identity: str) -> Predecessors | None:
    """Take the lock that proves that earlier processes of this pod have ended."""
    if path is None:
        return None
    try:
        return Predecessors.take(path, os.environ.get("POD_UID", ""), identity)
    except OSError as error:
        raise InputError("--predecessor-lock", path, error.strerror or str(error)) from None


def _check_times(arguments: argparse.Namespace) -> None:
    if arguments.preemption_timeout <= 0:
        raise InputError("--preemption-timeout", f"{arguments.preemption_timeout:g}", "must be above 0")
    timeout, duration, retry = arguments.http_timeout, arguments.lease_duration, arguments.lease_retry
    if timeout <= 0:
        raise InputError("--http-timeout", f"{timeout:g}", "must be above 0")
    if not (arguments.leader_elect or arguments.follow_lease):
        return
    if retry <= 0:
        raise InputError("--lease-retry", f"{retry:g}", "must be above 0")
    if duration < 3 * retry:
        raise InputError("--lease-duration", f"{duration:g}", f"must be at least three times --lease-retry, {retry:g}")
