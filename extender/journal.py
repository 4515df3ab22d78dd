"""The journal: everything that changed the state or asked about it, in order, one JSON line each.

Why it exists: a wrong answer in production becomes a test by replaying its journal. It must not change what it records.
Invariant: replaying a journal on a fresh cluster gives the same answers and the same bookings, byte for byte.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from extender.kube.reflector import Change, Sink

Entry = dict[str, Any]


class Journal(Protocol):
    """Where entries go."""

    def write(self, entry: Entry) -> None:
        """Append one entry."""


class FileJournal:
    """A file, appended line by line and flushed, so that a killed process leaves whole lines."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - open for the life of the process

    def write(self, entry: Entry) -> None:
        """Append one entry and flush it."""
        self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JournaledSink:
    """A sink that records what passes through."""

    def __init__(self, sink: Sink, kind: str, journal: Journal) -> None:
        self._sink = sink
        self._kind = kind
        self._journal = journal

    def change(self, change: Change, raw: msgspec.Raw) -> str | None:
        """Record and pass on."""
        self._journal.write(
            {"op": "change", "kind": self._kind, "change": change.value, "object": bytes(raw).decode(errors="replace")}
        )
        return self._sink.change(change, raw)

    def replaced(self, identities: set[str]) -> None:
        """Record and pass on."""
        self._journal.write({"op": "replaced", "kind": self._kind, "identities": sorted(identities)})
        self._sink.replaced(identities)


def read_journal(path: str) -> Iterator[tuple[int, Entry]]:
    """Yield (line number, entry).

    Raises OSError, and ValueError naming a line that is no entry; a cut last line ends it.
    """
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            if not isinstance(entry, dict) or "op" not in entry:
                raise ValueError(f"line {number} is no journal entry")
            yield number, entry
