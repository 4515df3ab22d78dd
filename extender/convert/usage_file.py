"""Usage records as lines of text, to be kept over a restart.

It must not do I/O. Invariants: what is read is what was written; a file of another version, or one that was cut or
edited, is refused as a whole, since a bill must not be made from half of it.
"""

from collections.abc import Iterable, Iterator

import msgspec

from accounting.holders import Owner, Phase, Record, Subject
from accounting.holders.usage_records import Line

VERSION = 1


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    gpu_extender_usage: int
    """Version of the format."""
    saved_ns: int


class _Record(msgspec.Struct, forbid_unknown_fields=True, array_like=True):
    kind: str
    namespace: str
    name: str
    uid: str
    subject_kind: str
    subject: str
    phase: str
    first_ns: int
    last_ns: int
    amounts: list[int]
    used: list[int]


class _Foot(msgspec.Struct, forbid_unknown_fields=True):
    records: int


_encode = msgspec.json.Encoder().encode
_head, _record, _foot = msgspec.json.Decoder(_Head), msgspec.json.Decoder(_Record), msgspec.json.Decoder(_Foot)


def usage_lines(records: Iterable[Record], saved_ns: int) -> Iterator[bytes]:
    """Yield the lines of a file: a head, one line per record, and how many there are."""
    yield _encode(_Head(VERSION, saved_ns)) + b"\n"
    count = 0
    for record in records:
        line = record.line
        yield (
            _encode(
                _Record(
                    *line.owner,
                    *line.subject,
                    line.phase.value,
                    record.first_ns,
                    record.last_ns,
                    list(record.amounts),
                    list(record.used),
                )
            )
            + b"\n"
        )
        count += 1
    yield _encode(_Foot(count)) + b"\n"


def read_usage(text: bytes) -> list[Record]:
    """Return the records of a file. Raises ValueError that names the line and why."""
    lines = text.splitlines()
    if not lines:
        raise ValueError("is empty")
    number = 1
    try:
        head = _head.decode(lines[0])
        if head.gpu_extender_usage != VERSION:
            raise ValueError(f"has version {head.gpu_extender_usage} of the format; this program reads {VERSION}")
        found = []
        for number, line in enumerate(lines[1:-1], 2):  # noqa: B007 - the message names it
            found.append(_read(_record.decode(line)))
        number = len(lines)
        count = _foot.decode(lines[-1]).records
    except msgspec.DecodeError as error:
        raise ValueError(f"line {number}: {error}") from None
    if count != len(found):
        raise ValueError(f"line {number}: {count} records were written, {len(found)} are there")
    return found


def _read(each: _Record) -> Record:
    owner = Owner(each.kind, each.namespace, each.name, each.uid)
    if len(each.amounts) != len(each.used):
        raise msgspec.ValidationError("amounts and used must be of one length")
    try:
        line = Line(owner, Subject(each.subject_kind, each.subject), Phase(each.phase))
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from None
    return Record(line, each.first_ns, each.last_ns, tuple(each.amounts), tuple(each.used))
