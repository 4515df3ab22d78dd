"""The sources of a command's cluster and pods: files, or the API server.

It must not print. Invariant: a dump of a cluster and the cluster itself give the same state.
"""

import argparse
import asyncio

from accounting.pod import Pod
from extender.cluster import Cluster
from extender.commands.arguments import path
from extender.commands.common import read_cluster
from extender.commands.raw_budgets import RawBudgetFile
from extender.config import Settings
from extender.convert import InputError


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the cluster."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--cluster", action="append", metavar="FILE", help="cluster dump, repeatable")
    group.add_argument("--kubeconfig", type=path, metavar="FILE", help="list from the API server of this kubeconfig")
    group.add_argument("--in-cluster", action="store_true", help="list as the pod's service account")


def cluster_of(arguments: argparse.Namespace, settings: Settings) -> Cluster:
    """Return the cluster of --cluster, --kubeconfig or --in-cluster. Raises `InputError`."""
    if arguments.cluster:
        return read_cluster(arguments.cluster, settings, arguments.raw_budgets)
    cluster = asyncio.run(_fetched(arguments.kubeconfig, settings))
    RawBudgetFile(arguments.raw_budgets, cluster)
    return cluster


def named_pod(arguments: argparse.Namespace, cluster: Cluster) -> Pod:
    """Return the pod with a name. Raises `InputError`."""
    pod = cluster.pod_named(arguments.namespace, arguments.pod)
    if pod is None:
        raise InputError("POD", f"{arguments.namespace}/{arguments.pod}", "there is no such pod in the cluster")
    return pod


async def _fetched(kubeconfig: str | None, settings: Settings) -> Cluster:
    # The Kubernetes client takes a third of a second to import; a dump does not need it.
    from extender.commands.serve_live import connect
    from extender.kube.client import WatchFailed
    from extender.kube.listing import Expired
    from extender.live.fetching import fetch_objects

    client = await connect(kubeconfig)
    cluster = Cluster(settings)
    try:
        cluster.load(await fetch_objects(client, settings))
    except (WatchFailed, Expired) as error:
        option = "--in-cluster" if kubeconfig is None else "--kubeconfig"
        status = f"{error.status} " if isinstance(error, WatchFailed) and error.status else ""
        raise InputError(option, kubeconfig or "true", f"{status}{error}") from None
    finally:
        await client.close()
    return cluster
