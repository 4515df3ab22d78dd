"""Lists as a client asks for them: selected entries and fields, pages, compression, and 304 for unchanged ones.

Why it exists: a list of 10,000 nodes is 35 MB, and most clients want a small part of it or have it already. It must not
know what entries mean. Invariants: without parameters the answer is the whole list; a page begins after the key in its
token; the tag changes whenever the answer may have changed.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import orjson
from aiohttp import web

from extender.convert import InputError
from extender.server.turns import Turns, json_array

Json = dict[str, Any]
Entries = Iterator[Json | None]
#: The most entries of one page, whatever the client asks for.
MOST_PER_PAGE = 1_000
_MOST_FIELDS = 50
#: The wanted fields of an object, each with the wanted fields of its own value; empty means all of it.
Fields = Mapping[str, Any]


class ListQuery(NamedTuple):
    """The parameters of a request for a list."""

    limit: int | None = None
    after: list[str] | None = None
    """The key of the previous page's last entry."""
    fields: Fields = MappingProxyType({})
    filters: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, request: web.Request, filters: tuple[str, ...] = ()) -> "ListQuery":
        """Read a request's query. Raises `InputError` for a parameter that is unknown, given twice or unusable."""
        query = request.query
        for name in query:
            if name not in ("limit", "continue", "fields", *filters):
                known = ", ".join(sorted(("limit", "continue", "fields", *filters)))
                raise InputError("query", name, f"is none of {known}")
            if len(query.getall(name)) > 1:
                raise InputError(name, ", ".join(query.getall(name)), "is given more than once")
        return cls(
            _limit(query["limit"]) if "limit" in query else None,
            _key(query["continue"]) if "continue" in query else None,
            _fields(query["fields"]) if "fields" in query else {},
            {name: query[name] for name in filters if name in query},
        )


class Lists:
    """Answers requests for lists."""

    def __init__(self, turns: Turns, version: Callable[[], object]) -> None:
        """`version`: changes whenever a list may have changed."""
        self._turns = turns
        self._version = version
        self._run = uuid4().hex

    async def send(
        self, request: web.Request, query: ListQuery, entries: Callable[[], Entries], key: Callable[[Json], list[str]]
    ) -> web.StreamResponse:
        """Answer with a list. `key`: gives an entry's place in the order of the list."""
        tag = self._tag(request)
        if any(each.value in (tag, "*") for each in request.if_none_match or ()):
            return web.Response(status=304, headers={"ETag": f'W/"{tag}"'})
        headers = {"ETag": f'W/"{tag}"', "Vary": "Accept-Encoding"}
        if query.limit is None:
            found = (entry and _chosen(entry, query.fields) for entry in _after(entries(), query.after, key))
            return await self._turns.send(request, json_array(found), headers)
        page, more = await self._page(query, entries(), key)
        if more:
            token = base64.urlsafe_b64encode(orjson.dumps(key(page[-1]))).decode().rstrip("=")
            following = request.rel_url.update_query({"continue": token})
            headers |= {"Continue": token, "Link": f'<{following}>; rel="next"'}
        return await self._turns.send(request, json_array(_chosen(each, query.fields) for each in page), headers)

    async def _page(
        self, query: ListQuery, entries: Entries, key: Callable[[Json], list[str]]
    ) -> tuple[list[Json], bool]:
        """Return the entries of a page, and whether more follow."""
        page: list[Json] = []
        async for batch in self._turns.taken(_after(entries, query.after, key)):
            page += [entry for entry in batch if entry is not None]
            if len(page) > (query.limit or 0):
                return page[: query.limit], True
        return page, False

    def _tag(self, request: web.Request) -> str:
        return hashlib.sha256(repr((self._run, self._version(), request.path_qs)).encode()).hexdigest()[:20]


def _after(entries: Entries, after: list[str] | None, key: Callable[[Json], list[str]]) -> Entries:
    if after is None:
        return entries
    return (entry if entry is not None and key(entry) > after else None for entry in entries)


def _chosen(value: Any, fields: Fields) -> Any:  # noqa: ANN401 - any JSON
    if not fields:
        return value
    if isinstance(value, list):
        return [_chosen(each, fields) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _chosen(value[name], deeper) for name, deeper in fields.items() if name in value}


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):  # noqa: PLR2004 - below 2^31
        raise InputError("limit", text or "(empty)", "must be a whole number from 1")
    return min(int(text), MOST_PER_PAGE)


def _key(text: str) -> list[str]:
    try:
        found = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
        raise InputError("continue", text or "(empty)", "is no token that a list gave")
    return found


def _fields(text: str) -> Fields:
    found: dict[str, Any] = {}
    names = text.split(",")
    if len(names) > _MOST_FIELDS:
        raise InputError("fields", f"{len(names)} names", f"are more than {_MOST_FIELDS}")
    for name in names:
        inner = found
        for part in name.split("."):
            if not part:
                raise InputError("fields", text or "(empty)", "must be names of fields, such as node,devices.uuid")
            inner = inner.setdefault(part, {})
    return found
