"""`replay FILE`: feed a journal to a fresh cluster and report the first difference.

It must not change the journal. Invariant: exit status 1 exactly when something differs.
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from extender.commands.arguments import add_output
from extender.commands.common import print_json, print_lines
from extender.config import Settings
from extender.convert import InputError
from extender.journal import read_journal
from extender.live.replaying import Difference, Replay, Summary

#: How many characters are shown before and after the first difference; answers can have megabytes.
_BEFORE, _AFTER = 60, 140


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("journal_file", metavar="FILE", help="written by serve --journal")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command. Raises `InputError`."""
    try:
        summary = Replay(settings).run(read_journal(arguments.journal_file))
    except OSError as error:
        raise InputError("FILE", arguments.journal_file, error.strerror or str(error)) from None
    except ValueError as error:
        raise InputError("FILE", arguments.journal_file, f"not a journal: {error}") from None
    if not summary.entries:
        raise InputError("FILE", arguments.journal_file, "not a journal: it has no entry")
    if arguments.output == "json":
        print_json(asdict(summary))
    else:
        print_lines(_text(summary))
    return 0 if summary.difference is None else 1


def _text(summary: Summary) -> Iterator[str]:
    yield (
        f"{summary.entries} entries of {summary.processes} processes, "
        f"{summary.answers} answers, {summary.bookings} bookings, {summary.refusals} refusals replayed"
    )
    if summary.difference is None:
        yield "no difference"
    else:
        yield from _difference(summary.difference)


def _difference(found: Difference) -> Iterator[str]:
    pairs = zip(found.recorded, found.replayed, strict=False)
    same = next(
        (at for at, (one, other) in enumerate(pairs) if one != other), min(map(len, (found.recorded, found.replayed)))
    )
    yield f"line {found.line}: {found.what} differs"
    yield f"  then: {_around(found.recorded, same)}"
    yield f"  now:  {_around(found.replayed, same)}"


def _around(text: str, at: int) -> str:
    start, end = max(0, at - _BEFORE), at + _AFTER
    shown = text[start:end].replace("\n", " ")
    return f"{'...' if start else ''}{shown}{'...' if end < len(text) else ''}"
