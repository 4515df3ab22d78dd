"""Structured logs on standard error.

It must not be used by `accounting`. Invariant: a message is a constant text; what varies are keys with stable names.
"""

import logging
import sys

import structlog


def configure_logs(*, json: bool) -> None:
    """Log as JSON lines, or as plain text for a person."""
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def logger() -> structlog.typing.FilteringBoundLogger:
    """Return the process's logger."""
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log
