"""`verify --cluster FILE | --kubeconfig FILE | --in-cluster`: recompute all usage, and list what is wrong.

It must not change anything. Invariant: exit status 1 exactly when a problem is listed; a dump of a cluster and the
cluster itself get the same report.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from extender.commands.arguments import add_output
from extender.commands.common import print_json, print_lines, table
from extender.commands.sources import add_sources, cluster_of
from extender.commands.terminal import MOST_ROWS, first_rows, some, wrapped
from extender.config import Settings
from extender.reports import card_marks
from extender.server import verify_report


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_sources(parser)
    parser.add_argument("--problems", action="store_true", help="problems only, no cards")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command; 1 if there are problems. Raises `InputError`."""
    report = verify_report(cluster_of(arguments, settings))
    if arguments.problems:
        report = {"problems": report["problems"]}
    if arguments.output == "json":
        print_json(report)
    else:
        print_lines(_text(report, only_problems=arguments.problems))
    return 1 if report["problems"] else 0


def _text(report: dict[str, Any], *, only_problems: bool) -> Iterator[str]:
    problems = report["problems"]
    if not only_problems:
        yield from _cards(report["devices"])
        yield from _raw(report.get("raw", []))
        yield ""
    yield "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    shown, more = first_rows(problems, "problems")
    for problem in shown:
        yield from wrapped(f"{problem['code']}: {problem['object']}: {problem['message']}", "  ")
    yield from more


def _cards(devices: list[dict[str, Any]]) -> Iterator[str]:
    """Show the cards; if there are many, those with problems first, then those that are held."""
    if len(devices) > MOST_ROWS:
        devices = sorted(devices, key=lambda card: (_state(card) == "ok", not card["holders"]))
    shown, more = first_rows(devices, "cards")
    yield from table(
        ("NODE", "CARD", "SLOTS", "MEMORY MiB", "CORES %", "STATE", "HELD BY"),
        [
            (
                card["node"],
                card["uuid"],
                *(f"{card['requested'][name]}/{card['capacity'][name]}" for name in ("slots", "memory", "cores")),
                _state(card),
                some(_holders(card), 2) or "-",
            )
            for card in shown
        ],
    )
    yield from more
    gone = sum(not card["registered"] for card in devices)
    held = f", and {gone} held that no node registers any more" if gone else ""
    registered = len(devices) - gone
    yield f"{registered} {'card' if registered == 1 else 'cards'}{held}"


def _raw(uses: list[dict[str, Any]]) -> Iterator[str]:
    """Show whole devices; if there are many, first where too much is used, then those that somebody has."""
    if not uses:
        return
    if len(uses) > MOST_ROWS:
        uses = sorted(uses, key=lambda use: (not use["overcommitted"], not use["holders"]))
    shown, more = first_rows(uses, "nodes with whole devices")
    yield ""
    yield from table(
        ("NODE", "WHOLE DEVICES", "USED", "STATE", "HELD BY"),
        [
            (
                use["node"],
                use["key"],
                f"{use['used']}/{use['allocatable']}",
                "over-committed" if use["overcommitted"] else "ok",
                some([f"{each['kind']} {each['name']} {each['units']}" for each in use["holders"]]) or "-",
            )
            for use in shown
        ],
    )
    yield from more


def _holders(card: dict[str, Any]) -> list[str]:
    """Return who holds a card; of pods, which nearly all are, the name alone."""
    return [each["name"] if each["kind"] == "pod" else f"{each['kind']} {each['name']}" for each in card["holders"]]


def _state(card: dict[str, Any]) -> str:
    return ", ".join([mark for mark in card_marks(card) if mark != "blocked"] + card["blocked"]) or "ok"
