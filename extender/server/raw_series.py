"""Metrics per holder of whole devices, as Prometheus' text, made in steps.

It must not be on by default: such labels are not bounded. Invariants: all samples follow HELP and TYPE; a step takes
some milliseconds at most; a launcher is listed only with what it has beyond its VM's devices.
"""

from collections.abc import Generator, Iterator
from typing import TypeVar

from accounting.answers import RawReport, raw_reports_in_steps
from extender.cluster import Cluster
from extender.server.prometheus_text import head, quoted

_NAME = "gpu_extender_raw_devices_held"
_TEXT = "Whole devices that a pod, a VM (kind vmi) or a hold has on a node, by raw key."
_PER_STEP = 500
_T = TypeVar("_T")


def raw_series(cluster: Cluster) -> Iterator[bytes]:
    """Yield who has whole devices; an empty text is a step. Nothing where no raw key is counted."""
    if not cluster.settings.raw_keys:
        return
    found = yield from _without_text(raw_reports_in_steps(cluster.raw))
    yield head(_NAME, _TEXT)
    reports = [each for name in sorted(found) for each in found[name]]
    for first in range(0, len(reports), _PER_STEP):
        yield "".join(map(_lines, reports[first : first + _PER_STEP])).encode()


def _without_text(steps: Generator[None, None, _T]) -> Generator[bytes, None, _T]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
        yield b""


def _lines(report: RawReport) -> str:
    return "".join(f"{_NAME}{{{_labels(report, *each[:2])}}} {each.units}\n" for each in report.holders)


def _labels(report: RawReport, kind: str, name: str) -> str:
    namespace, _, own = name.partition("/")
    pairs = ("kind", kind), ("namespace", namespace), ("name", own), ("node", report.node), ("key", report.key)
    return ",".join(f'{label}="{quoted(value)}"' for label, value in pairs)
