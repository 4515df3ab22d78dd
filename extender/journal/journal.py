"""The journal: every change of the state and every question about it, in order, one JSON line each.

Why it exists: a wrong answer in production becomes a test by replaying its journal. It must not change or prevent what
it records: if it cannot be written, the journal ends and the extender goes on. Invariants: replaying a journal gives
the same answers and the same bookings, byte for byte; every process begins with a start entry, so one file can hold the
journals of many; a line that a killed process left incomplete is not read.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from accounting.holders import Hold
from accounting.holdings import DeviceUse
from accounting.packing.mix import Mix
from accounting.packing.workload import Plan
from extender.config import Settings
from extender.kube.reflector import Change, Sink, Taken
from extender.logs import logger
from extender.wire.unreadable import UNREADABLE, why_unreadable

#: Format of the entries. A higher one is refused: its entries may mean something else.
FORMAT: Final = 1

Kind: TypeAlias = Literal[
    "Node",
    "Pod",
    "ResourceQuota",
    "PodDisruptionBudget",
    "DeviceClass",
    "ResourceSlice",
    "ResourceClaim",
    "VirtualMachineInstance",
    "Hold",
]


class Journal(Protocol):
    """Where entries go."""

    def write(self, entry: dict[str, Any]) -> None:
        """Append one entry of a type below."""


class _Entry(msgspec.Struct, frozen=True, tag_field="op", tag=str.lower):
    """One line."""


class Start(_Entry, frozen=True):
    """A process began, with these settings and an empty cluster."""

    settings: Settings
    version: str = ""
    """Of the program."""
    format: int = 1
    """Of the journal; those before 0.2 do not say it."""


class Verb(_Entry, frozen=True):
    """A call and its answer. A body that is not text is in base64."""

    verb: Literal["filter", "prioritize", "preempt", "bind"]
    answer: str
    body: str | None = None
    base64: bytes = b""


class Changed(_Entry, frozen=True, tag="change"):
    """A list, a watch or a read showed an object."""

    kind: Kind
    change: Change
    object: str


class Replaced(_Entry, frozen=True):
    """A whole list was read; objects that it did not name are gone."""

    kind: Kind
    identities: list[str]


class Assume(_Entry, frozen=True):
    """A bind booked a pod on a node."""

    uid: str
    node: str
    allocation: str


class Finish(_Entry, frozen=True):
    """The Binding was accepted."""

    uid: str


class Forget(_Entry, frozen=True):
    """A booking was undone."""

    uid: str


class Refuse(_Entry, frozen=True):
    """A bind found no cards for a pod on a node."""

    uid: str
    node: str
    why: str


class Lose(_Entry, frozen=True):
    """The API server has lost an accepted Binding."""

    uid: str


class Claimed(_Entry, frozen=True, tag="claim"):
    """A pod claimed cards on the node where it will probably go."""

    uid: str
    node: str
    uses: tuple[DeviceUse, ...]
    count: int
    further_counts: tuple[tuple[str, int], ...] = ()


class Plugin(_Entry, frozen=True):
    """A vendor's device plugin on a node was found gone, or running again."""

    node: str
    vendor: str
    alive: bool


class Unclaim(_Entry, frozen=True):
    """A claim ended."""

    uid: str


class Expect(_Entry, frozen=True):
    """From here on policies that look ahead expect this workload; their tables follow from it."""

    mix: Mix
    plan: Plan


class RawBudgets(_Entry, frozen=True):
    """From here on these budgets of whole devices are in force: (namespace, raw key, units) each."""

    hard: list[tuple[str, str, int]]


class Holds(_Entry, frozen=True):
    """A pass has decided where what is held for a VM is."""

    namespace: str
    vmi: str
    holds: list[Hold]


Entry: TypeAlias = (
    Start
    | Verb
    | Changed
    | Replaced
    | Assume
    | Finish
    | Forget
    | Refuse
    | Lose
    | Claimed
    | Unclaim
    | Plugin
    | Expect
    | RawBudgets
    | Holds
)


class FileJournal:
    """A file, appended line by line: a killed process leaves whole lines and at most one incomplete one."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._encoder = msgspec.json.Encoder()
        self._between = b"\n" if _ends_in_a_line(path) else b""
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, entry: dict[str, Any]) -> None:
        """Append one entry. If that fails the journal ends, since entries after a gap cannot be replayed."""
        if self._file is None:
            return
        left = memoryview(self._between + self._encoder.encode(entry) + b"\n")
        self._between = b""
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            logger().error("journal ends: it cannot be written", why=str(error))
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _ends_in_a_line(path: str) -> bool:
    """Whether the last line of a file is incomplete. Raises OSError."""
    if not (Path(path).is_file() and Path(path).stat().st_size):
        return False
    with Path(path).open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


class JournaledSink:
    """A sink that records the objects that pass through it."""

    def __init__(self, sink: Sink, kind: str, journal: Journal) -> None:
        self._sink = sink
        self._kind = kind
        self._journal = journal

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Record and pass on."""
        # The journal tells a list by the `replaced` that ends it.
        recorded = Change.PUT if change is Change.LISTED else change
        self._journal.write(
            {
                "op": "change",
                "kind": self._kind,
                "change": recorded.value,
                "object": bytes(raw).decode(errors="replace"),
            }
        )
        return self._sink.change(change, raw)

    def replaced(self, identities: set[str]) -> None:
        """Record and pass on."""
        self._journal.write({"op": "replaced", "kind": self._kind, "identities": sorted(identities)})
        self._sink.replaced(identities)


def read_journal(path: str) -> Iterator[tuple[int, Entry]]:
    """Yield (line number, entry).

    Raises OSError, and ValueError naming a line that is no entry, or begins a journal of a later format; a cut line at
    the end of the file, or before the next process began, is passed over.
    """
    decoder = msgspec.json.Decoder(Entry)
    bad: ValueError | None = None
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                entry: Entry = decoder.decode(line)
            except (*UNREADABLE, UnicodeDecodeError) as error:
                if bad is not None:
                    break
                bad = ValueError(f"line {number} {why_unreadable(error, 'is no journal entry: ')}")
                continue
            if bad is not None and not isinstance(entry, Start):
                break
            bad = None
            if isinstance(entry, Start) and entry.format > FORMAT:
                version = entry.version or "a later version"
                raise ValueError(f"line {number}: format {entry.format} of {version}; this version reads {FORMAT}")
            yield number, entry
    if bad is not None:
        raise bad
