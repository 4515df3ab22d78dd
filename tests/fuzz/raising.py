"""Lets a bug that is caught and logged end the run.

The extender survives bugs: it logs them and goes on. It must not let one of them pass here. Invariant: what is logged
without a traceback is expected, and makes no output.
"""

import sys
from collections.abc import MutableMapping
from typing import Any, NoReturn

import structlog


class _Logger:
    """Writes nothing."""

    def msg(self, *_: object, **__: object) -> None:
        """Nothing."""

    debug = info = warning = error = critical = exception = log = msg


def raise_what_is_logged() -> None:
    """From now on in this process."""
    structlog.configure(processors=[_raised], logger_factory=lambda *_: _Logger(), cache_logger_on_first_use=False)


def _raised(_: object, __: str, event: MutableMapping[str, Any]) -> NoReturn:
    error = sys.exc_info()[1]
    if event.get("exc_info") and error is not None:
        raise error
    raise structlog.DropEvent
