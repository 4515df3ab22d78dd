"""`verify --cluster FILE`: recompute all usage; list over-committed, orphaned and blocked cards, and all else wrong.

It must not change anything. Invariant: exit status 1 exactly when a problem is listed.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from extender.api import verify_report
from extender.commands.common import print_json, print_lines, read_cluster, table
from extender.config import Settings


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command; 1 if there are problems. Raises `InputError`."""
    report = verify_report(read_cluster(arguments.cluster, settings))
    if arguments.output == "json":
        print_json(report)
    else:
        print_lines(_text(report))
    return 1 if report["problems"] else 0


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
