"""Shows on a running extender what pods hold on their cards, from their creation to their end.

It exists for people who want to see the rule at work before they read it. It must not compute anything: what it shows
comes from the extender, and what it expects stands in the stories. Invariant: it deletes whatever it created; exit
status 0 if every number was right, 1 if one was not, 2 if it could not run.

python -m benchmarks.demo [--url http://127.0.0.1:8888]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import demo_refusal, demo_run
from benchmarks.demo_client import Client, DemoError
from benchmarks.demo_stories import STORIES, Story
from benchmarks.demo_view import WIDTH, gib, heading, note, pod_table, table_of
from benchmarks.http_load import Address
from benchmarks.processes import extender

Json = dict[str, Any]

_DEFAULT: Final = Address("127.0.0.1", 8888)


def run(client: Client, console: Console) -> list[str]:
    """Tell every story; returns what was wrong."""
    for name in (*(story.name for story in STORIES), "first", "second", "too-large"):
        client.delete(name)  # left by a run that was cut off
    nodes = client.nodes()
    unused = demo_run.unused_nodes(nodes)
    if not unused:
        raise DemoError(f"{client.address}: the stories need a node with good, unused cards of at least 24 GiB")
    _show_cluster(console, client, nodes, list(unused))
    wrong = []
    names = demo_run.card_names(nodes)
    for number, story in enumerate(STORIES, start=1):
        told = demo_run.tell(client, story, unused)
        _show_story(console, number, story, told, names)
        wrong += [f"{story.name}: {moment.text}: {moment.wrong}" for moment in told.moments if moment.wrong]
    node = max(unused.values(), key=lambda each: each["devices"][0]["capacity"]["memory"])
    waiting = demo_refusal.wait_for_shrink(client, node, node["devices"][0])
    wrong += _show_waiting(console, len(STORIES) + 1, waiting, names)
    return wrong + _show_too_much(console, len(STORIES) + 2, client, nodes)


def _show_cluster(console: Console, client: Client, nodes: list[Json], unused: list[str]) -> None:
    cards = sum(card["registered"] for node in nodes for card in node["devices"])
    console.print(f"[bold]{client.address}[/bold]: {len(nodes)} nodes, {cards} cards", highlight=False)
    console.print(
        f"The pods are offered unused nodes with large cards: {', '.join(unused)}. Each container asks for one card "
        "and some of its memory; the pods' policy is binpack, so that their containers share a card.",
        highlight=False,
    )


def _show_story(console: Console, number: int, story: Story, told: demo_run.Told, names: dict[str, str]) -> None:
    heading(console, number, story.title)
    placed = told.placed
    scores = ", ".join(f"{node} {score}" for node, score in placed.scores.items())
    if placed.offered:
        note(
            console, f"filter passes {placed.passed} of {placed.offered} nodes; prioritize {scores}; bind {placed.node}"
        )
    else:
        note(console, f"Bound to {placed.node} by another scheduler, which wrote the cards into its annotation.")
    console.print(pod_table(told.pod, told.account, names, told.moments))


def _show_waiting(console: Console, number: int, waiting: demo_refusal.Waiting, names: dict[str, str]) -> list[str]:
    card = waiting.card
    heading(console, number, "A second pod waits for the first one's init, and only for that")
    note(console, f"Both pods want {names[card['uuid']]} of {waiting.node}, {gib(card['capacity']['memory'])}.")
    rows = [(row.event, *map(gib, (row.first, row.second, row.free)), row.answer) for row in waiting.rows]
    headings = ("moment", "first holds", "second holds", "free", "answer to the second")
    console.print(table_of(headings, rows))
    note(console, f"Why it was refused (gpu-extender explain -f second.yaml --cluster {waiting.node}.yaml):")
    console.print(_reasons(waiting.explained, names))
    return waiting.wrong


def _show_too_much(console: Console, number: int, client: Client, nodes: list[Json]) -> list[str]:
    asked = demo_refusal.ask_too_much(client, nodes)
    heading(
        console,
        number,
        f"A pod that asks for {gib(asked.pod.asks[0].memory_mib)} of one card fits no node, full or empty",
    )
    rows = [(count, text) for text, count in asked.counts.items()]
    console.print(table_of(("nodes", "answer, in FailedAndUnresolvableNodes"), rows))
    note(console, f"Why not on {asked.explained['node']}, which has the largest card:")
    console.print(_reasons(asked.explained, demo_run.card_names(nodes)))
    return asked.wrong


def _reasons(explained: Json, names: dict[str, str]) -> Table:
    rows = [
        (
            reason["code"],
            reason["message"],
            ", ".join(sorted(names[uuid].removeprefix("card ") for uuid in reason["devices"])),
        )
        for reason in explained["reasons"]
    ]
    return table_of(("code", "message", "cards"), rows)


@contextmanager
def _server(url: Address | None) -> Iterator[Address]:
    """Yield the server that was named, else the one at the default address, else one of our own."""
    if url is not None or _answers(_DEFAULT):
        yield url or _DEFAULT
    else:
        with extender([]) as own:
            yield own.address


def _answers(address: Address) -> bool:
    """Whether an extender with an embedded cluster answers there."""
    try:
        client = Client(address)
    except OSError:
        return False
    try:
        return all("devices" in node for node in client.nodes())
    except (DemoError, TypeError):
        return False
    finally:
        client.close()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Write a usage error in the form of every other error."""
        self.exit(2, f"error: command line: {' '.join(sys.argv[1:])}: {message}\n")


def _address(text: str) -> Address:
    parts = urlsplit(text)
    if parts.scheme != "http" or not parts.hostname:
        raise argparse.ArgumentTypeError("must be like http://127.0.0.1:8888")
    return Address(parts.hostname, parts.port or 80)


def main(argv: Sequence[str] | None = None) -> int:
    parser = _Parser(prog="python -m benchmarks.demo", description=__doc__, allow_abbrev=False)
    text = f"a running extender (default: {_DEFAULT} if one is there, else one is started for the time of the run)"
    parser.add_argument("--url", type=_address, help=text)
    options = parser.parse_args(argv)
    console = Console()
    if not console.is_terminal or console.width > WIDTH:
        console.width = WIDTH
    try:
        with _server(options.url) as address, closing(Client(address)) as client:
            try:
                wrong = run(client, console)
            finally:
                client.delete_all()
    except (DemoError, OSError) as error:
        sys.stderr.write(f"error: --url: {options.url or _DEFAULT}: {error}\n")
        return 2
    console.print()
    for each in wrong:
        console.print(f"[bold red]wrong[/]: {escape(each)}", highlight=False)
    if not wrong:
        console.print("[bold green]Every number was as expected.[/] Everything that was created is deleted again.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
