"""Answers a list: which rows, of which version, and where the next page begins.

It exists because the pages of one list must show one moment, whatever is written between them, and because clients must
survive the ways in which that fails (410 Expired). It must not know HTTP or encode objects anew. Invariant: all pages
of one list are of the version in its continue token.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import orjson

from tests.apiserver.resources import Resource
from tests.apiserver.selectors import Selector
from tests.apiserver.statuses import ApiError, Cause, invalid, too_large_version, too_old_version
from tests.apiserver.store import Store, Table, scope
from tests.apiserver.stored import Stored

_NOW = -1
"""The version in a token that continues with the present objects."""
_ROWS_PER_CHUNK = 500
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Page(NamedTuple):
    """One answer to a list."""

    head: bytes
    rows: list[Stored]

    def chunks(self) -> Iterator[bytes]:
        """Yield the answer in pieces of some MB."""
        rows = self.rows
        yield self.head
        for first in range(0, len(rows), _ROWS_PER_CHUNK):
            joined = b",".join([row.body for row in rows[first : first + _ROWS_PER_CHUNK]])
            yield b"," + joined if first else joined
        yield b"]}\n"

    @property
    def length(self) -> int:
        """Return the size of the answer in bytes."""
        return len(self.head) + sum(len(row.body) for row in self.rows) + max(0, len(self.rows) - 1) + 3


class _Start(NamedTuple):
    version: int
    key: str


def list_page(store: Store, resource: Resource, selector: Selector, query: Mapping[str, str]) -> Page:
    """Return the page that a query asks for. Raises ApiError 400, 410, 422 or 504."""
    table = store.tables[resource]
    start = _start(store, table, query)
    rows = table.at(start.version, store.version)
    first, last = scope(rows, selector.namespace, start.key)
    # As in the real server's cache, a list of "any" version is never cut into pages.
    limit = 0 if query.get("resourceVersion") == "0" else _number(query, "limit")
    taken, following = _take(rows, first, last, selector, limit)
    meta: dict[str, object] = {"resourceVersion": str(start.version)}
    if following < last:
        token = {"v": "meta.k8s.io/v1", "rv": start.version, "start": f"{rows[following - 1].key}\x00"}
        meta["continue"] = _encode(token)
        if selector.selects_all:
            meta["remainingItemCount"] = last - following
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": []}
    return Page(orjson.dumps(head)[:-2], taken)


def _take(rows: list[Stored], first: int, last: int, selector: Selector, limit: int) -> tuple[list[Stored], int]:
    """Return the selected rows, at most `limit`, and the position behind the last row that was checked."""
    if selector.selects_all:
        end = min(last, first + limit) if limit else last
        return rows[first:end], end
    taken: list[Stored] = []
    for position in range(first, last):
        if selector.matches(rows[position]):
            taken.append(rows[position])
            if len(taken) == limit:
                return taken, position + 1
    return taken, last


def _start(store: Store, table: Table, query: Mapping[str, str]) -> _Start:
    token, asked, match = query.get("continue", ""), query.get("resourceVersion", ""), query.get("resourceVersionMatch")
    _check_match(asked, match, token)
    if token:
        if asked not in ("", "0"):
            raise ApiError(400, "specifying resource version is not allowed when using continue")
        return _continued(store, table, token)
    version = version_of(asked)
    if version == 0:
        return _Start(store.version, "")
    if version > store.version:
        raise too_large_version(version, store.version)
    if match == "Exact" or (match is None and query.get("limit", "0") != "0"):
        if version < table.history.floor:
            raise ApiError(410, "The resourceVersion for the provided list is too old.")
        return _Start(version, "")
    return _Start(store.version, "")


def _continued(store: Store, table: Table, token: str) -> _Start:
    try:
        read = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, key = int(read["rv"]), str(read["start"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise ApiError(400, f"continue key is not valid: {error}") from error
    if version == _NOW:
        return _Start(store.version, key)
    if version > store.version or not key:
        raise ApiError(400, "continue key is not valid")
    if version < table.history.floor:
        raise ApiError(410, _EXPIRED, continue_token=_encode(read | {"rv": _NOW}))
    return _Start(version, key)


def _check_match(asked: str, match: str | None, token: str) -> None:
    if match is None:
        return
    message = ""
    if not asked:
        message = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif token:
        message = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
    elif match not in ("Exact", "NotOlderThan"):
        message = f'Unsupported value: "{match}"'
    elif match == "Exact" and asked == "0":
        message = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if message:
        raise invalid("ListOptions.meta.k8s.io", "", [Cause("FieldValueForbidden", message, "resourceVersionMatch")])


def version_of(text: str) -> int:
    """Return a resourceVersion as a number; 0 for none. Raises ApiError 400."""
    if text and not (text.isascii() and text.isdigit()):
        raise ApiError(
            400, f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text or "0")


def check_start(table: Table, version: int) -> None:
    """Raise ApiError 410 if a watch can no longer start there."""
    if version < table.history.floor:
        raise too_old_version(version, table.history.floor)


def _number(query: Mapping[str, str], key: str) -> int:
    try:
        return max(0, int(query.get(key, "") or "0"))
    except ValueError as error:
        raise ApiError(400, f"{key}: {error}") from error


def _encode(token: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(token)).rstrip(b"=").decode()
