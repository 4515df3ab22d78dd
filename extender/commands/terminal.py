"""Text that fits a terminal, and signs of life while something takes long.

It must not know a command. Invariants: standard output is the same whether or not somebody watches, but for its width
on a terminal; signs of life go to standard error, only on a terminal, only after two seconds, and leave nothing behind.
"""

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from extender.printable import printable

T = TypeVar("T")
#: Rows of a table, names of a list.
MOST_ROWS = 40
MOST_NAMES = 5
#: The width of text that nobody watches.
_WIDTH = 120
_LEAST_CELL = 6
_PATIENCE_SECONDS = 2.0
_REDRAW_SECONDS = 0.2
_BAR = 30


def terminal_width() -> int | None:
    """Return the columns of the terminal that standard output is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def some(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return the first names, and how many others there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def first_rows(rows: Sequence[T], what: str, most: int = MOST_ROWS) -> tuple[Sequence[T], list[str]]:
    """Return the rows to show, and the line that says how many were left out, if any were."""
    more = len(rows) - most
    return rows[:most], [f"... and {more:,} more {what}; -o json has them all"] if more > 0 else []


def fitted(widths: Sequence[int], width: int | None) -> list[int]:
    """Return the widths of columns that fit in a line: the widest ones give way, the last of equals first."""
    found = list(widths)
    while width is not None and sum(found) + 2 * (len(found) - 1) > width:
        widest = max(range(len(found)), key=lambda column: (found[column], column))
        if found[widest] <= _LEAST_CELL:
            break
        found[widest] -= 1
    return found


def cut(text: str, width: int) -> str:
    """Return a text that is no wider, with a sign where something is left out."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return a text in lines that fit, all but the first one further in."""
    return textwrap.wrap(
        printable(text),
        terminal_width() or _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def watched(values: Iterable[T], what: str, whole: int | None = None) -> Iterator[T]:
    """Yield the values; meanwhile show how far it is, once it takes long. `whole`: their number, if it is known."""
    if not sys.stderr.isatty():
        yield from values
        return
    begun = shown = time.monotonic()
    drawn = False
    for count, value in enumerate(values):
        yield value
        now = time.monotonic()
        if now - begun > _PATIENCE_SECONDS and now - shown > _REDRAW_SECONDS:
            shown, drawn = now, True
            sys.stderr.write(f"\r\x1b[K{_progress(what, count + 1, whole)}")
            sys.stderr.flush()
    if drawn:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _progress(what: str, count: int, whole: int | None) -> str:
    if not whole:
        return f"{what}: {count:,}"
    done = min(_BAR, _BAR * count // whole)
    return f"{what}: [{'#' * done}{'.' * (_BAR - done)}] {count:,} of {whole:,}"
