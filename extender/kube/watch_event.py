"""Reading one line of a watch.

It must not act on the event. Invariant: every form in which an API server says that a version is too old or not its own
is `Expired`; so is a line that cannot be read, because the version of its change is lost.
"""

from http import HTTPStatus
from typing import Annotated, NamedTuple

import msgspec

from extender.kube.client import WatchFailed
from extender.kube.listing import Expired
from extender.wire.shallow import read_with

_EXPIRED_REASONS = frozenset({"Expired", "Gone"})
#: The version is in the future, as after a restore of the API server's store.
_FUTURE_VERSION = "Too large resource version"
#: HTTP statuses that concern the version, not the request.
_BAD_VERSION = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY})


class WatchEvent(NamedTuple):
    """One event: ADDED, MODIFIED, DELETED, BOOKMARK or an unknown type."""

    type: str
    raw: msgspec.Raw
    """The object's bytes, undecoded: `version_of` or the sink finds out whether they decode."""


class _ObjectMeta(msgspec.Struct):
    version: str | None = msgspec.field(name="resourceVersion", default=None)


class _Object(msgspec.Struct):
    metadata: _ObjectMeta | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Details(msgspec.Struct):
    retry_after_seconds: Annotated[int, msgspec.Meta(le=2**31 - 1)] | None = msgspec.field(
        name="retryAfterSeconds", default=None
    )


class _Status(msgspec.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_event_decoder = msgspec.json.Decoder(_Event)
_object_decoder = msgspec.json.Decoder(_Object)
_status_decoder = msgspec.json.Decoder(_Status)


_HEADS = tuple((kind, b'{"type":"%b","object":' % kind.encode()) for kind in ("MODIFIED", "ADDED", "DELETED"))


def read_event(line: bytes) -> WatchEvent:
    """Return the event of a line. Raises `Expired`, and `WatchFailed` for an ERROR event of another kind."""
    for kind, head in _HEADS:
        if line.startswith(head) and line.endswith(b"}"):
            # The form that every API server writes; if the part in between decodes, it is the object.
            return WatchEvent(kind, msgspec.Raw(memoryview(line)[len(head) : -1]))
    try:
        event = read_with(_event_decoder, line)
        if event.type == "ERROR":
            raise _failure(read_with(_status_decoder, event.object))
    except msgspec.DecodeError as error:
        raise _unreadable(error) from None
    return WatchEvent(event.type, event.object)


def version_of(event: WatchEvent) -> str | None:
    """Return the version of an event's object. Raises `Expired` if the object does not decode."""
    try:
        meta = read_with(_object_decoder, event.raw).metadata
    except msgspec.DecodeError as error:
        raise _unreadable(error) from None
    return None if meta is None else meta.version


def _unreadable(error: msgspec.DecodeError) -> Expired:
    return Expired(f"a line of the watch does not decode: {error}")


def is_about_version(failure: WatchFailed) -> bool:
    """Whether a watch was refused for its version, so that asking again would not help."""
    return failure.status in _BAD_VERSION or _FUTURE_VERSION in str(failure)


def _failure(status: _Status) -> Exception:
    """Return the error of an ERROR event."""
    message = status.message or "error event"
    if status.code == HTTPStatus.GONE or status.reason in _EXPIRED_REASONS or _FUTURE_VERSION in message:
        return Expired(message)
    retry_after = None if status.details is None else status.details.retry_after_seconds
    return WatchFailed(status.code or 0, message, None if retry_after is None else max(0.0, float(retry_after)))
