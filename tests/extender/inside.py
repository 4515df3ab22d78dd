"""Runs the commands by their entry point, inside this process.

It exists because a process of its own takes half a second to start, and the many variants of one input need only one.
It must not replace the tests that start processes: every command and every way to fail has one of those. Invariant:
standard input, output and error are as a process would see them, and are restored.
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from extender.cli import main
from tests.extender.processes import Result, checked_refusal


def run_inside(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """Run a command to its end."""
    written, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(written)
    with redirect_stdout(out), redirect_stderr(err), _standard_input(stdin):
        status = main([str(each) for each in arguments])
    out.flush()
    return Result(status, written.getvalue(), err.getvalue())


def refusal_inside(*arguments: str | Path, stdin: bytes = b"") -> str:
    """Return the one line of a command that refuses its input, with exit status 2 and nothing on standard output."""
    return checked_refusal(run_inside(*arguments, stdin=stdin))


@contextmanager
def _standard_input(data: bytes) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data))
    try:
        yield
    finally:
        sys.stdin = before
