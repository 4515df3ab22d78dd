"""Run the extender on an embedded cluster read from dumps, or on the bundled example."""

import argparse
import asyncio
import gc
import signal

from extender.admission.service import Admission
from extender.cluster import Cluster, Learner, example_cluster, garbage_collector_paused, load_objects
from extender.commands.common import expected_pods
from extender.commands.ports import (
    Urls,
    admission_settings,
    check_ports,
    further_ports,
    read_certificates,
    server_settings,
    verbs_port,
)
from extender.commands.raw_budgets import RawBudgetFile
from extender.commands.usage import usage_keeper
from extender.config import ServerSettings, Settings
from extender.convert import InputError
from extender.logs import announce, configure_logs, logger, take_over_the_process
from extender.security import CertificateCollector
from extender.server import make_app


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the options for further metrics."""
    group = parser.add_argument_group("metrics; without these no label names a card, a node or a pod")
    group.add_argument("--metrics-per-card", action="store_true", help="nine series for each card")
    group.add_argument("--metrics-per-pod", action="store_true", help="three series for each card of each pod")
    group.add_argument(
        "--metrics-hami-names",
        action="store_true",
        help="each card, with --metrics-per-pod each container, under the names of HAMi's scheduler as well",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run until SIGTERM or SIGINT. SIGHUP reads the files again. Raises `InputError`."""
    configure_logs(json=arguments.log_format == "json", level=arguments.log_level)
    take_over_the_process()
    server, live = server_settings(arguments), bool(arguments.kubeconfig or arguments.in_cluster)
    check_ports(arguments, live=live)
    if live:
        return _run_live(arguments, settings, server)
    paths = arguments.cluster or [example_cluster()]
    cluster = Cluster(settings, server.remembered_pods)
    with garbage_collector_paused():
        cluster.load(load_objects(paths, settings))
    # Loaded objects stay, so the collector need not visit them again, which would stop requests for a long moment.
    learner = Learner(cluster, expected_pods(arguments.expected_workload, settings))
    if learner.is_due():
        learner.learn_now()
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(cluster, paths, server, arguments, learner))
    return 0


def _run_live(arguments: argparse.Namespace, settings: Settings, server: ServerSettings) -> int:
    if arguments.cluster:
        raise InputError("--cluster", arguments.cluster[0], "cannot be used together with a live cluster")
    if arguments.kubeconfig and arguments.in_cluster:
        raise InputError("--in-cluster", "true", "cannot be used together with --kubeconfig")
    # The Kubernetes client takes a third of a second to import; an embedded cluster does not need it.
    from extender.commands import serve_live

    return serve_live.run(arguments, settings, server)


async def _serve(
    cluster: Cluster, paths: list[str], settings: ServerSettings, arguments: argparse.Namespace, learner: Learner
) -> None:
    budgets, keeper = RawBudgetFile(arguments.raw_budgets, cluster), usage_keeper(arguments, cluster)
    certificates = read_certificates(arguments)
    collectors = [] if certificates.webhooks is None else [CertificateCollector(certificates.webhooks)]
    admission = Admission(cluster, admission_settings(arguments))
    app = make_app(cluster, settings, admission=admission, collectors=collectors)
    listener, url = await verbs_port(app, settings, certificates)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, reload_files, cluster, paths)
    try:
        async with (
            learner.running(),
            budgets.followed(),
            keeper.running(),
            further_ports(app, settings, certificates) as urls,
        ):
            _welcome(cluster, paths, url, urls)
            await stopped.wait()
    finally:
        await listener.cleanup()
    logger().info("stopped")


def reload_files(cluster: Cluster, paths: list[str]) -> None:
    """Read the files again; if one cannot be read, nothing changes."""
    try:
        objects = load_objects(paths, cluster.settings)
    except InputError as error:
        logger().error("files not read again", why=str(error))
        return
    cluster.load(objects)
    logger().info("files read again", nodes=len(objects.nodes), pods=len(objects.pods))


def _welcome(cluster: Cluster, paths: list[str], url: str, urls: Urls) -> None:
    cards = sum(len(node.devices) for node in cluster.cache.nodes.values())
    text = f"""gpu-extender listens on {url}
cluster: {len(cluster.cache.nodes)} nodes, {cards} cards, {len(cluster.cache.pods)} pods on them, \
{len(cluster.problems())} problems ({", ".join(paths)})
{urls.text()}
See the cards, and why pods wait: {url}/
Try:
  curl -s {url}/api/v1/nodes
  curl -s {url}/api/v1/pods
  curl -s {url}/api/v1/verify
  curl -s {url}/metrics
  make demo
Stop with Ctrl-C. Read the files again with SIGHUP.
"""
    counts = {"nodes": len(cluster.cache.nodes), "cards": cards, "pods": len(cluster.cache.pods)}
    problems = len(cluster.problems())
    files = {"files": paths, "read_again_by": "SIGHUP"}
    announce(text, "listening", address=url, **urls._asdict(), **counts, problems=problems, **files)
