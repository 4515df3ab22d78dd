"""Turns a bug that the extender catches and logs into one that ends the run.

It exists because the extender survives bugs: it logs them and goes on. Invariant: what is logged without a traceback is
expected, and makes no output.
"""

import sys
from collections.abc import MutableMapping
from typing import Any, NoReturn

import structlog


class _Logger:
    """Writes nothing."""

    def msg(self, *_: object, **__: object) -> None:
        """Drop the text."""

    debug = info = warning = error = critical = exception = log = msg


def raise_what_is_logged() -> None:
    """Raise what is logged, from now on in this process."""
    structlog.configure(processors=[_raised], logger_factory=lambda *_: _Logger(), cache_logger_on_first_use=False)


def _raised(_: object, __: str, event: MutableMapping[str, Any]) -> NoReturn:
    error = sys.exc_info()[1]
    if event.get("exc_info") and error is not None:
        raise error
    raise structlog.DropEvent
