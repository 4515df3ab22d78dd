"""Text that fits a terminal, and progress while something takes long.

It must not know a command. Invariants: standard output differs on a terminal only in its width; progress goes to
standard error, only on a terminal, only after two seconds, and leaves nothing behind.
"""

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from extender.printable import printable

T = TypeVar("T")
#: The most rows of a table, and names of a list.
MOST_ROWS = 40
MOST_NAMES = 5
#: The width of text that does not go to a terminal.
_WIDTH = 120
_LEAST_CELL = 6
_PATIENCE_SECONDS = 2.0
_REDRAW_SECONDS = 0.2
_BAR = 30


def terminal_width() -> int | None:
    """Return the columns of standard output's terminal; None if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def some(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def first_rows(rows: Sequence[T], what: str, most: int = MOST_ROWS) -> tuple[Sequence[T], list[str]]:
    """Return the rows to show, and a line with the number of rows left out, if there are any."""
    more = len(rows) - most
    return rows[:most], [f"... and {more:,} more {what}; -o json has them all"] if more > 0 else []


def fitted(widths: Sequence[int], width: int | None) -> list[int]:
    """Return the widths of columns that fit in a line: the widest are cut first, among equals the last."""
    found = list(widths)
    while width is not None and sum(found) + 2 * (len(found) - 1) > width:
        widest = max(range(len(found)), key=lambda column: (found[column], column))
        if found[widest] <= _LEAST_CELL:
            break
        found[widest] -= 1
    return found


def cut(text: str, width: int) -> str:
    """Return a text of at most this width, with a sign if something is cut."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return a text in lines that fit, with all but the first one indented further."""
    return textwrap.wrap(
        printable(text),
        terminal_width() or _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def watched(values: Iterable[T], what: str, whole: int | None = None) -> Iterator[T]:
    """Yield the values, and show the progress once it takes long. `whole`: the number of values, if known."""
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
