"""Shows the stories on a terminal.

It exists to show at a glance which pod holds what, where and when. It must not know what is right. Invariant: nothing
is wider than 100 columns, and colours say nothing that the words do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.demo_pods import GIB, DemoPod

Json = dict[str, Any]

WIDTH: Final = 100
_STYLES: Final = {"peak": "yellow", "steady": "green", "released": "dim", "gone": "dim"}
_BAR_GIB: Final = 2  # per block


class Use(NamedTuple):
    """What a pod holds on one card."""

    card: str
    slots: int
    memory_mib: int


class Moment(NamedTuple):
    """A row of a pod's table: what happened, the containers' states, what the pod holds, and what is wrong."""

    text: str
    states: tuple[str, ...]
    uses: tuple[Use, ...]
    state: str
    wrong: str = ""


def pod_table(pod: DemoPod, account: Json, cards: Mapping[str, str], moments: Sequence[Moment]) -> Table:
    """Return one pod's life as a table.

    `account`: what the extender says of it; `cards`: a card's UUID -> its short name.
    """
    table = _table()
    table.add_column(_low("step"), no_wrap=True)
    for ask, container in zip(pod.asks, account["containers"], strict=True):
        where = ", ".join(cards[device["uuid"]] for device in container["devices"])
        table.add_column(f"{ask.name}\n{container['kind']}\n{gib(ask.memory_mib)}\n{where}", no_wrap=True)
    table.add_column(_low("held"), no_wrap=True)
    table.add_column(_low("slots"), justify="right", no_wrap=True)
    table.add_column(_low("state"), no_wrap=True)
    for moment in moments:
        style = "bold red" if moment.wrong else _STYLES.get(moment.state, "")
        held = "\n".join(_held(use, style, named=len(account["peak"]) > 1) for use in moment.uses)
        slots = "\n".join(str(use.slots) for use in moment.uses)
        table.add_row(moment.text, *moment.states, held or "-", slots or "-", f"[{style}]{moment.state}[/]")
    return table


def _low(heading: str) -> str:
    """A heading on the last of the four lines of a container's heading."""
    return "\n\n\n" + heading


def _held(use: Use, style: str, *, named: bool) -> str:
    bar = "█" * (use.memory_mib // GIB // _BAR_GIB)
    return f"[{style}]{bar}[/] {gib(use.memory_mib)}" + (f", {use.card}" if named else "")


def table_of(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a plain table; columns of numbers are right-aligned."""
    table = _table()
    for column, heading in enumerate(headings):
        numbers = all(isinstance(row[column], int) for row in rows)
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def heading(console: Console, number: int, text: str) -> None:
    console.print()
    console.print(f"[bold]{number}. {text}[/bold]", highlight=False)


def note(console: Console, text: str) -> None:
    """Return a line of plain text, indented under its heading."""
    console.print(f"   {text}", highlight=False, soft_wrap=False)


def gib(mib: int) -> str:
    """Return MiB as GiB where they are whole GiB."""
    return f"{mib // GIB} GiB" if mib % GIB == 0 else f"{mib} MiB"


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
