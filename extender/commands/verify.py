"""`verify --cluster FILE | --kubeconfig FILE`: recompute all usage; list over-committed, orphaned and blocked cards.

It must not change anything. Invariant: exit status 1 exactly when a problem is listed; a dump of a cluster and the
cluster itself get the same report.
"""

import argparse
import asyncio
from collections.abc import Iterator
from typing import Any

from extender.cluster import Cluster
from extender.commands.common import print_json, print_lines, read_cluster, table
from extender.config import Settings
from extender.convert import InputError
from extender.server import verify_report


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command; 1 if there are problems. Raises `InputError`."""
    if arguments.kubeconfig is None:
        cluster = read_cluster(arguments.cluster, settings)
    else:
        cluster = asyncio.run(_fetch(arguments.kubeconfig, settings))
    report = verify_report(cluster)
    if arguments.output == "json":
        print_json(report)
    else:
        print_lines(_text(report))
    return 1 if report["problems"] else 0


async def _fetch(kubeconfig: str, settings: Settings) -> Cluster:
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
        status = f"{error.status} " if isinstance(error, WatchFailed) and error.status else ""
        raise InputError("--kubeconfig", kubeconfig, f"{status}{error}") from None
    finally:
        await client.close()
    return cluster


def _text(report: dict[str, Any]) -> Iterator[str]:
    yield from table(
        ("NODE", "CARD", "SLOTS", "MEMORY MiB", "CORES %", "STATE", "PODS"),
        [
            (
                card["node"],
                card["uuid"],
                *(f"{card['requested'][name]}/{card['capacity'][name]}" for name in ("slots", "memory", "cores")),
                _state(card),
                ", ".join(card["pods"]) or "-",
            )
            for card in report["devices"]
        ],
    )
    yield ""
    yield f"{len(report['problems'])} problems"
    for problem in report["problems"]:
        yield f"  {problem['code']}: {problem['object']}: {problem['message']}"


def _state(card: dict[str, Any]) -> str:
    marks = [
        ("orphaned", not card["registered"]),
        ("unhealthy", card["registered"] and not card["healthy"]),
        ("cordoned", card["cordoned"]),
        ("over-committed", card["overcommitted"]),
        ("exclusive", card["exclusive"]),
    ]
    return ", ".join([name for name, holds in marks if holds] + card["blocked"]) or "ok"
