"""Usage records as JSON and as CSV.

It must not add up. Invariants: both have the same numbers, whole seconds of each amount; a cell of the CSV is never a
formula to whoever opens it.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from accounting.holders import Record
from extender.cluster import UsageLedger
from extender.reports.lists import in_order
from extender.reports.shapes import UsageRecord

_NS = 10**9
_COLUMNS = tuple(UsageRecord.__annotations__)
_FORMULA = tuple("=+-@\t\r")


def usage_record(record: Record, now_ns: int) -> UsageRecord:
    """Return one record up to now."""
    owner, subject, phase = record.line
    used = [amount // _NS for amount in record.until(now_ns)]
    slots, memory, cores, units = (*used, 0) if subject.kind == "card" else (0, 0, 0, used[0])
    return {
        "kind": owner.kind,
        "namespace": owner.namespace,
        "name": owner.name,
        "uid": owner.uid,
        "model": subject.name if subject.kind == "card" else "",
        "raw_key": subject.name if subject.kind == "raw" else "",
        "phase": phase.value,
        "first": _time(record.first_ns),
        "last": _time(max(now_ns, record.last_ns) if record.is_open else record.last_ns),
        "open": record.is_open,
        "slot_seconds": slots,
        "memory_mib_seconds": memory,
        "core_percent_seconds": cores,
        "unit_seconds": units,
    }


def usage_records(ledger: UsageLedger, namespace: str | None = None) -> Iterator[UsageRecord | None]:
    """Yield the records up to now, by owner, subject and phase; a None is a step without one."""
    now = ledger.now_ns()
    for record in (yield from in_order(ledger.records.unordered(), lambda each: each.line)):
        is_wanted = namespace in (None, record.line.owner.namespace)
        yield usage_record(record, now) if is_wanted else None


def usage_csv(rows: Iterable[UsageRecord | None]) -> Iterator[bytes]:
    """Yield the lines of a CSV file with a head; a None becomes a step without text."""
    yield _line(_COLUMNS)
    for row in rows:
        yield b"" if row is None else _line([_cell(value) for value in row.values()])


def _line(cells: Iterable[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns // _NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
