"""Lists as a client asks for them: selected entries and fields, pages, compression, and 304 for unchanged ones.

Why it exists: a list of 10,000 nodes is 35 MB, and most clients want a small part of it or know it already. It must not
know what entries mean. Invariants: without parameters the answer is the whole list, as ever; a page is what the whole
list has after the place that its token holds; a tag changes whenever an answer may.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import orjson
from aiohttp import web

from extender.convert import InputError
from extender.server.turns import Turns, encoded, json_array

Json = dict[str, Any]
Place = list[str]
"""Where an entry stands in the order of its list; no other entry has the same."""
Entries = Iterator[tuple[Place, Json] | None]
"""Entries with their places, in order; a None is a step without one."""
#: Entries of one page at most, whatever is asked.
MOST_PER_PAGE = 1_000
_MOST_FIELDS = 50
#: The wanted fields of an object, each with the wanted fields of its own value; empty means all of it.
Fields = Mapping[str, Any]


class ListQuery(NamedTuple):
    """The parameters of a request for a list."""

    limit: int | None = None
    after: Place | None = None
    """The place of the last entry of the page before."""
    fields: Fields = MappingProxyType({})
    filters: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, request: web.Request, filters: tuple[str, ...] = (), most: int | None = None) -> "ListQuery":
        """Read a request's query. Raises `InputError` for a parameter that is unknown, given twice or unusable.

        `most`: a limit above it is refused; without it a page has `MOST_PER_PAGE` entries then.
        """
        query = request.query
        for name in query:
            if name not in ("limit", "continue", "fields", *filters):
                known = ", ".join(sorted(("limit", "continue", "fields", *filters)))
                raise InputError("query", name, f"is none of {known}")
            if len(query.getall(name)) > 1:
                raise InputError(name, ", ".join(query.getall(name)), "is given more than once")
        return cls(
            _limit(query["limit"], most) if "limit" in query else None,
            _place(query["continue"]) if "continue" in query else None,
            _fields(query["fields"]) if "fields" in query else {},
            {name: query[name] for name in filters if name in query},
        )

    def wants(self, name: str) -> bool:
        """Whether a field of the whole answer is wanted."""
        return not self.fields or name in self.fields


class Lists:
    """Answers requests for lists."""

    def __init__(self, turns: Turns, version: Callable[[], object]) -> None:
        """`version`: changes whenever a list may have changed."""
        self._turns = turns
        self._version = version
        self._run = uuid4().hex

    async def send(
        self, request: web.Request, query: ListQuery, entries: Callable[[], Entries], also: object = None
    ) -> web.StreamResponse:
        """Answer with a list. `also`: what else it depends on beside the version."""
        headers = self._headers(request, also)
        if _is_known(request, headers):
            return web.Response(status=304, headers=headers)
        if query.limit is None:
            found = (each and _chosen(each[1], query.fields) for each in _after(entries(), query.after))
            return await self._turns.send(request, json_array(found), headers)
        page, more = await self._page(query.limit, _after(entries(), query.after))
        if more:
            headers |= _following(request, page[-1][0])
        return await self._turns.send(request, json_array(_chosen(entry, query.fields) for _, entry in page), headers)

    async def send_parts(
        self,
        request: web.Request,
        query: ListQuery,
        parts: Callable[[], Iterable[tuple[str, Entries]]],
        more: Json,
    ) -> web.StreamResponse:
        """Answer with an object of several lists, of which pages are cut as if they were one, and of `more`.

        Each list is taken to its end before the next one, wanted or not.
        """
        headers = self._headers(request, more)
        if _is_known(request, headers):
            return web.Response(status=304, headers=headers)
        if query.limit is None:
            return await self._turns.send(request, _whole(query, parts(), more), headers)
        lists = list(parts())
        names = [name for name, _ in lists if query.wants(name)]
        page, follows = await self._page(query.limit, _after(_in_a_row(query, lists), query.after))
        if follows:
            headers |= _following(request, page[-1][0])
        answer: Json = {name: [] for name in names}
        for place, entry in page:
            name = names[int(place[0])]
            answer[name].append(_chosen(entry, query.fields.get(name, {})))
        return await self._turns.send(request, (encoded(answer | more),), headers)

    async def _page(self, limit: int, entries: Entries) -> tuple[list[tuple[Place, Json]], bool]:
        """Return the entries of a page, and whether others follow."""
        page: list[tuple[Place, Json]] = []
        async for batch in self._turns.taken(entries):
            page += [each for each in batch if each is not None]
            if len(page) > limit:
                return page[:limit], True
        return page, False

    def _headers(self, request: web.Request, also: object) -> Json:
        said = repr((self._run, self._version(), request.path_qs, also))
        tag = hashlib.sha256(said.encode()).hexdigest()[:20]
        return {"ETag": f'W/"{tag}"', "Vary": "Accept-Encoding"}


def placed(entries: Iterator[Json | None], place: Callable[[Json], Place]) -> Entries:
    """Yield entries with their places."""
    return (None if entry is None else (place(entry), entry) for entry in entries)


def _is_known(request: web.Request, headers: Json) -> bool:
    return any(f'W/"{each.value}"' == headers["ETag"] or each.value == "*" for each in request.if_none_match or ())


def _following(request: web.Request, place: Place) -> dict[str, str]:
    """Return the headers that lead to the next page."""
    token = base64.urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")
    return {"Continue": token, "Link": f'<{request.rel_url.update_query({"continue": token})}>; rel="next"'}


def _after(entries: Entries, after: Place | None) -> Entries:
    if after is None:
        return entries
    return (each if each is not None and each[0] > after else None for each in entries)


def _numbered(number: int, entries: Entries) -> Entries:
    """Yield the entries of one of several lists, in whose places its number comes first."""
    return (None if each is None else ([str(number), *each[0]], each[1]) for each in entries)


def _in_a_row(query: ListQuery, parts: Iterable[tuple[str, Entries]]) -> Entries:
    """Yield the entries of all wanted lists."""
    number = 0
    for name, entries in parts:
        if query.wants(name):
            yield from _numbered(number, entries)
            number += 1
        else:
            yield from (None for _ in entries)


def _whole(query: ListQuery, parts: Iterable[tuple[str, Entries]], more: Json) -> Iterator[bytes]:
    """Yield the fragments of an object of lists."""
    before, number = b"{", 0
    for name, entries in parts:
        if not query.wants(name):
            yield from (b"" for _ in entries)
            continue
        yield before + orjson.dumps(name) + b":"
        own = _after(_numbered(number, entries), query.after)
        yield from json_array(each and _chosen(each[1], query.fields.get(name, {})) for each in own)
        before, number = b",", number + 1
    for name, value in more.items():
        yield before + orjson.dumps(name) + b":" + encoded(value)
        before = b","
    yield b"{}" if before == b"{" else b"}"


def _chosen(value: Any, fields: Fields) -> Any:  # noqa: ANN401 - any JSON
    if not fields:
        return value
    if isinstance(value, list):
        return [_chosen(each, fields) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _chosen(value[name], deeper) for name, deeper in fields.items() if name in value}


def _limit(text: str, most: int | None) -> int:
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004 - below 2^31
    if limit < 1 or (most is not None and limit > most):
        range_of = "must be a whole number from 1" + ("" if most is None else f" to {most}")
        raise InputError("limit", text or "(empty)", range_of)
    return min(limit, MOST_PER_PAGE)


def _place(text: str) -> Place:
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
