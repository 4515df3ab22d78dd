"""One open watch: what it sends next.

It exists to turn the history of a resource into the events of one watch: selected, in order, with bookmarks, to an
end. It must not know HTTP or faults. Invariant: every event above the start version is given exactly once, or the
watch ends with 410.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import orjson

from tests.apiserver.calls import is_set
from tests.apiserver.history import Event, EventType
from tests.apiserver.pages import check_start, version_of
from tests.apiserver.resources import PODS, Json, Resource
from tests.apiserver.selectors import Selector
from tests.apiserver.statuses import ApiError, Cause, invalid, too_large_version, too_old_version
from tests.apiserver.store import Store, scope
from tests.apiserver.stored import Stored, restamped

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Options(NamedTuple):
    """The query of a watch."""

    version: int
    bookmarks: bool
    timeout_seconds: float
    initial_events: bool
    """Whether the present objects come first, as ADDED."""
    initial_bookmark: bool


class Line(NamedTuple):
    """One event as it is sent. Faults know it by type and key; bookmarks and errors have no key."""

    type: EventType | None
    key: str
    data: bytes


def read_options(query: Mapping[str, str], store: Store, default_timeout_seconds: float) -> Options:
    """Return the options of a watch. Raises ApiError 400, 422 or 504."""
    try:
        version = version_of(query.get("resourceVersion", ""))
    except ApiError as error:
        raise ApiError(500, str(error), reason="") from error
    match, sent = query.get("resourceVersionMatch"), query.get("sendInitialEvents")
    initial = is_set(query, "sendInitialEvents")
    if (sent is None) != (match is None) or match not in (None, "NotOlderThan"):
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid("ListOptions.meta.k8s.io", "", [Cause("FieldValueForbidden", text, "resourceVersionMatch")])
    if initial and version > store.version:
        raise too_large_version(version, store.version)
    bookmarks = is_set(query, "allowWatchBookmarks")
    timeout = float(query.get("timeoutSeconds") or 0) or default_timeout_seconds
    return Options(version, bookmarks, timeout, initial or (version == 0 and sent is None), initial and bookmarks)


class Watch:
    """The state of one watch. `wake` is set whenever there may be something to send."""

    def __init__(self, store: Store, resource: Resource, selector: Selector, options: Options) -> None:
        """Begin. Raises ApiError 410 if the start version is no longer in the history."""
        self._store = store
        self._table = store.tables[resource]
        self._selector = selector
        self._options = options
        self.resource = resource
        self.wake = asyncio.Event()
        self.cut = False
        """Whether the stream must end without a word."""
        self.position = options.version if options.version and not options.initial_events else store.version
        self._initial = self._snapshot() if options.initial_events else []
        if not options.initial_events:
            check_start(self._table, self.position)

    def initial(self) -> Iterator[Line]:
        """Return the objects of the start, and the bookmark after them."""
        for row in self._initial:
            yield self._line("ADDED", row)
        self._initial = []
        if self._options.initial_bookmark:
            yield self._bookmark(self.position, {"annotations": {INITIAL_EVENTS_END: "true"}})

    def pending(self) -> Iterator[Line]:
        """Return what happened since the last call. Raises ApiError 410 if some of it is gone."""
        if self.position < self._table.history.dropped:
            raise too_old_version(self.position, self._table.history.dropped)
        # Both are read now: the caller may wait between two lines, and the next call returns what is written meanwhile.
        events, now = self._table.history.after(self.position), self._store.version
        for event in events:
            self.position = event.version
            line = self._selected(event)
            if line is not None:
                yield line
        self.position = max(self.position, now)

    def bookmark(self) -> Line:
        """Return a bookmark of the present version. The caller has sent everything before."""
        return self._bookmark(self.position, {})

    def _snapshot(self) -> list[Stored]:
        rows = self._table.rows
        first, last = scope(rows, self._selector.namespace)
        return [row for row in rows[first:last] if self._selector.matches(row)]

    def _selected(self, event: Event) -> Line | None:
        selector, row, before = self._selector, event.row, event.before
        is_in = event.type != "DELETED" and selector.matches(row)
        was_in = before is not None and selector.matches(before)
        if is_in:
            return self._line("MODIFIED" if was_in else "ADDED", row)
        if not was_in or before is None:
            return None
        # An object that is no longer selected is sent as it was last selected, with the version of the change.
        last = row if event.type == "DELETED" else restamped(self.resource, before, event.version)
        return self._line("DELETED", last)

    def _line(self, kind: EventType, row: Stored) -> Line:
        return Line(kind, row.key, b'{"type":"%b","object":%b}\n' % (kind.encode(), row.alone(self.resource)))

    def _bookmark(self, version: int, meta: Json) -> Line:
        obj: Json = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"resourceVersion": str(version), **meta},
        }
        if self.resource is PODS:
            # Go writes an empty Pod like this. A decoder that expects a list here fails.
            obj |= {"spec": {"containers": None}, "status": {}}
        return Line(None, "", orjson.dumps({"type": "BOOKMARK", "object": obj}, option=orjson.OPT_APPEND_NEWLINE))


def error_line(error: ApiError) -> Line:
    """Return an ERROR event."""
    body = {"type": "ERROR", "object": error.status()}
    return Line(None, "", orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE))
