"""Usage records: what was held, how much of it, and for how long.

Why it exists: bills and reports need share times time, and users must not be able to change it. It must not know
clocks, files or pods' annotations: the time is an argument, and the amounts are those of the accounting. Invariants:
integers only; a holder has at most one open interval per subject and phase; one function opens, changes and closes
records, and repeating the same amounts changes nothing; a record's time never runs backwards.

A record's amount is `amount x nanoseconds`, per dimension of the subject: slots, MiB and cores of a card model, or
units of a raw key.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """Which part of a pod's life an amount belongs to."""

    INIT = "init"
    """The amount by which the peak exceeds the steady amount, until the pod's inits are over."""
    STEADY = "steady"


class Subject(NamedTuple):
    """What is used: a card model, or a raw key."""

    kind: str
    """`card` or `raw`."""
    name: str


class Owner(NamedTuple):
    """Who uses it."""

    kind: str
    """`pod`, `vmi` or `claim`."""
    namespace: str
    name: str
    uid: str


class Line(NamedTuple):
    """One record's key."""

    owner: Owner
    subject: Subject
    phase: Phase


Amounts = tuple[int, ...]
"""(slots, MiB, cores) of a card model, (units,) of a raw key."""


@dataclass(slots=True)
class Record:
    """What one owner has used of one subject in one phase. Times are Unix times in nanoseconds."""

    line: Line
    first_ns: int
    last_ns: int
    amounts: Amounts
    """What is held now; all 0 in a closed record."""
    used: Amounts
    """Sum of amount x nanoseconds up to `last_ns`."""

    @property
    def is_open(self) -> bool:
        """Whether something is held now."""
        return any(self.amounts)

    def until(self, now_ns: int) -> Amounts:
        """Return the sum of amount x nanoseconds up to now."""
        passed = max(0, now_ns - self.last_ns)
        return tuple(used + amount * passed for used, amount in zip(self.used, self.amounts, strict=True))


@dataclass(slots=True)
class UsageRecords:
    """All records. Records of owners that are gone stay until they are dropped by age."""

    _records: dict[Line, Record] = field(default_factory=dict)
    _open: dict[str, dict[Line, Record]] = field(default_factory=dict)  # owner UID -> its open records
    _known: Counter[str] = field(default_factory=Counter)  # owner UID -> records

    def put(self, owner: Owner, held: Mapping[tuple[Subject, Phase], Amounts], now_ns: int) -> bool:
        """Record all that an owner holds now; its other records are closed. Returns whether anything changed."""
        before = self._open.get(owner.uid, {})
        now = {Line(owner, *key): amounts for key, amounts in held.items() if any(amounts)}
        if {line: record.amounts for line, record in before.items()} == now:
            return False
        for line in [line for line in before if line not in now]:
            self._change(line, tuple(0 for _ in before[line].amounts), now_ns)
        for line, amounts in now.items():
            self._change(line, amounts, now_ns)
        return True

    def is_open(self, uid: str) -> bool:
        """Whether an owner has an open record."""
        return uid in self._open

    def knows(self, uid: str) -> bool:
        """Whether an owner has any record, open or closed."""
        return uid in self._known

    def close(self, uid: str, now_ns: int) -> bool:
        """Close every record of an owner. Returns whether any was open."""
        lines = list(self._open.get(uid, {}).items())
        for line, record in lines:
            self._change(line, tuple(0 for _ in record.amounts), now_ns)
        return bool(lines)

    def close_others(self, uids: Iterable[str], now_ns: int) -> None:
        """Close the records of every owner that is not named, as after a list."""
        for uid in sorted(self._open.keys() - set(uids)):
            self.close(uid, now_ns)

    def restore(self, records: Iterable[Record]) -> None:
        """Load records of an earlier process. Open ones stay open; the next pass changes or closes them."""
        for record in records:
            self._known[record.line.owner.uid] += record.line not in self._records
            self._records[record.line] = record
            if record.is_open:
                self._open.setdefault(record.line.owner.uid, {})[record.line] = record

    def drop_closed_before(self, ns: int) -> int:
        """Drop the records that were closed before a time; returns how many."""
        old = [line for line, record in self._records.items() if not record.is_open and record.last_ns < ns]
        for line in old:
            del self._records[line]
            self._known[line.owner.uid] -= 1
            if not self._known[line.owner.uid]:
                del self._known[line.owner.uid]
        return len(old)

    def unordered(self) -> list[Record]:
        """Return all records as they are, in no order."""
        return list(self._records.values())

    def __iter__(self) -> Iterator[Record]:
        """Yield all records, by owner, subject and phase."""
        return iter([self._records[line] for line in sorted(self._records)])

    def __len__(self) -> int:
        return len(self._records)

    def _change(self, line: Line, amounts: Amounts, now_ns: int) -> None:
        record = self._records.get(line)
        if record is None:
            record = self._records[line] = Record(line, now_ns, now_ns, amounts, tuple(0 for _ in amounts))
            self._known[line.owner.uid] += 1
        else:
            record.used, record.last_ns = record.until(now_ns), max(record.last_ns, now_ns)
            record.amounts = amounts
        uid = line.owner.uid
        if record.is_open:
            self._open.setdefault(uid, {})[line] = record
        elif uid in self._open:
            self._open[uid].pop(line, None)
            if not self._open[uid]:
                del self._open[uid]


def split_by_phase(peak: Amounts, steady: Amounts, *, past_inits: bool) -> dict[Phase, Amounts]:
    """Return what a pod holds now, by phase: the steady part, and what its inits need in addition."""
    if past_inits:
        return {Phase.STEADY: steady}
    beyond = tuple(more - less for more, less in zip(peak, steady, strict=True))
    return {Phase.STEADY: steady} | ({Phase.INIT: beyond} if any(beyond) else {})
