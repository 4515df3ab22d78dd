"""Repeated log lines: the first ones are written, the rest are counted.

Why it exists: clients decide how often the same line is logged; 16,000 bad requests gave 2.3 MB. It must not know what
the lines mean. Invariants: at most `BURST` lines of one message are written in `WINDOW_SECONDS`; the next line written
after that says how many were left out; the counts only grow.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from structlog.typing import EventDict

BURST, WINDOW_SECONDS = 5, 10.0
#: Set to True on a line that is never left out; it is not written.
EVERY_LINE = "every_line"


@dataclass(slots=True)
class _Window:
    began: float
    lines: int = 0
    left_out: int = 0


class Repeats:
    """A processor of structlog. Messages are constant texts, so there are few of them."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self.left_out: dict[str, int] = {}
        """By message, since the start of the process."""
        self._seconds = seconds
        self._windows: dict[str, _Window] = {}

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        """Return the line, or raise `DropEvent`."""
        if event.pop(EVERY_LINE, False):
            return event
        message, now = str(event.get("event")), self._seconds()
        window = self._windows.setdefault(message, _Window(now))
        if now >= window.began + WINDOW_SECONDS:
            if window.left_out:
                event["left_out"] = window.left_out
            window = self._windows[message] = _Window(now)
        if window.lines == BURST:
            window.left_out += 1
            self.left_out[message] = self.left_out.get(message, 0) + 1
            raise structlog.DropEvent
        window.lines += 1
        return event


class RepeatsCollector(Collector):
    """How many lines were left out."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats

    def collect(self) -> Iterator[Metric]:
        """Yield the count of each message of which lines were left out."""
        name, text = "gpu_extender_log_lines_left_out", "Log lines that repeated too fast and were not written."
        family = CounterMetricFamily(name, text, labels=["message"])
        for message, count in sorted(self._repeats.left_out.items()):
            family.add_metric([message], count)
        yield family
