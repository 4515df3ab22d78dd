"""Structured logs on standard error, and the lines on standard output that say where a server listens.

`accounting` must not use it. Invariants: a message is a constant text, and variable parts are keys with stable names;
every line has the configured format, those of libraries and tracebacks included; in text format no line has control
characters for a terminal, and only an entry's first line looks like an entry; logging never raises.
"""

import contextlib
import json as json_module
import logging
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

import structlog
from structlog.typing import EventDict

from extender.log_repeats import EVERY_LINE, Repeats
from extender.printable import cut, printable

LEVELS = ("debug", "info", "warning", "error")
REPEATS = Repeats()
"""The one of this process; its metric is made from it."""
#: The most characters of a value in a line.
_LONGEST_VALUE = 2_000
_TRACEBACK = "exception"

_Error = tuple[type[BaseException], BaseException, TracebackType | None]
_is_json = False


def configure_logs(*, json: bool, level: str = "info") -> None:
    """Log as JSON lines, or as plain text for a person, from this level on."""
    global _is_json  # noqa: PLW0603 - a process has one format, as it has one standard error
    _is_json = json
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer = structlog.processors.JSONRenderer() if json else _text
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            REPEATS,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _short,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_StandardError,
        cache_logger_on_first_use=False,
    )


def logger() -> structlog.typing.FilteringBoundLogger:
    """Return the process's logger."""
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log


def every_line() -> structlog.typing.FilteringBoundLogger:
    """Return the logger for lines that are never left out, however many there are."""
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(**{EVERY_LINE: True})
    return log


def announce(text: str, event: str, **values: object) -> None:
    """Print on standard output what people should know, as text, or as one line of JSON if logs are JSON."""
    out: TextIO = sys.stdout
    line = json_module.dumps({"event": event, "level": "info", **values}) if _is_json else text.rstrip("\n")
    out.write(f"{line}\n")
    out.flush()


def _short(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Cut long values, except tracebacks."""
    for key, value in event.items():
        if isinstance(value, str) and key != _TRACEBACK:
            event[key] = cut(value, _LONGEST_VALUE)
    return event


class _StandardError:
    """Writes lines to what standard error is now.

    A line that cannot be written is lost, so that a request does not fail because the log's reader is gone.
    """

    def __init__(self, *_: object) -> None:
        """Take what structlog gives to a factory."""

    def msg(self, line: str) -> None:
        """Write a line."""
        out: TextIO | None = sys.stderr
        if out is None:
            # The process was started without one.
            return
        with contextlib.suppress(OSError, ValueError):
            out.write(f"{line}\n")
            out.flush()

    debug = info = warning = error = critical = msg


_console = structlog.dev.ConsoleRenderer(colors=False)


def _text(log: object, method: str, event: EventDict) -> str:
    """Render a line for people. Lines of a traceback are indented, so that none of them looks like an entry."""
    traceback = event.pop(_TRACEBACK, None)
    safe: EventDict = {printable(str(key)): _safe(value) for key, value in event.items()}
    line = str(_console(log, method, safe))
    if traceback is None:
        return line
    return "\n".join([line, *(f"    {printable(each)}" for each in str(traceback).splitlines())])


def _safe(value: object) -> object:
    return value if isinstance(value, bool | int | float | None) else printable(str(value))


# -- what others say ---------------------------------------------------------------------------------------------------


class _ToStructlog(logging.Handler):
    """Passes what libraries log to this process's logger."""

    def emit(self, record: logging.LogRecord) -> None:
        report = logger().warning if record.levelno < logging.ERROR else logger().error
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong call of a library must not end what it reports of
            text = str(record.msg)
        report("a library reports", library=record.name, what=text, exc_info=record.exc_info)


def take_over_the_process() -> None:
    """Give what Python and libraries print the configured format. Only for a process of the extender itself."""
    logging.getLogger().addHandler(_ToStructlog(logging.WARNING))
    logging.captureWarnings(capture=True)
    sys.excepthook = _on_uncaught
    sys.unraisablehook = _on_unraisable
    threading.excepthook = _on_thread


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, Exception):
        # Ctrl-C is not an error.
        return
    _report("the process ends by a bug", (kind, error, trace))


def _on_unraisable(found: "sys.UnraisableHookArgs") -> None:
    error = found.exc_value or found.exc_type()
    _report("an exception nobody can take", (found.exc_type, error, found.exc_traceback))


def _on_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_value is not None:
        _report("a thread ends by a bug", (found.exc_type, found.exc_value, found.exc_traceback))


def _report(event: str, error: _Error) -> None:
    report: Callable[..., object] = logger().error
    report(event, exc_info=error)
