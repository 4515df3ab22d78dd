"""Reading a whole list in pages.

Why it exists: 100,000 pods are 200 pages, so a page that fails must not cost the other 199, and a list that takes
minutes must notice when its version expires. It must not know what the objects mean. Invariants: all pages are of one
version, which the API server read with a quorum after this list began; otherwise the list fails.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from extender.kube.client import KubeClient, Unknown, WatchFailed
from extender.wire.shallow import read_json

_LONGEST_WAIT_SECONDS = 60.0


class Expired(Exception):
    """The version is too old or unknown to this API server: only a new list shows the present objects."""


@dataclass(frozen=True, slots=True)
class ListSettings:
    """Page sizes, tries and times of a list."""

    page_size: int = 500
    """Objects per page: a few MB, so that splitting a page blocks the event loop for only some milliseconds."""
    request_timeout_seconds: float = 30.0
    tries: int = 4
    """Tries per page. The first page gets only one: there is nothing to lose yet."""
    pause_seconds: float = 0.2
    """Pause between two tries; it doubles, unless the API server says how long to wait."""


class Page(NamedTuple):
    """One page: the version of the whole list, and some of its objects."""

    version: str
    items: list[msgspec.Raw]


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


async def list_pages(
    client: KubeClient, path: str, query: Mapping[str, str], settings: ListSettings
) -> AsyncGenerator[Page, None]:
    """Yield the pages of a list. Raises `Expired` or `WatchFailed` if it cannot be completed."""
    asked = dict(query) | {"limit": str(settings.page_size)}
    page = await _page(client, path, asked, settings)
    while True:
        yield Page(page.metadata.version, page.items or [])
        if not page.metadata.next_page:
            return
        asked["continue"] = page.metadata.next_page
        page = await _page_in_tries(client, path, asked, settings)


async def _page_in_tries(client: KubeClient, path: str, query: Mapping[str, str], settings: ListSettings) -> _List:
    pause = settings.pause_seconds
    for _ in range(settings.tries - 1):
        try:
            return await _page(client, path, query, settings)
        except WatchFailed as error:
            if (
                error.status
                and error.status != HTTPStatus.TOO_MANY_REQUESTS
                and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            ):
                raise
            await asyncio.sleep(min(_LONGEST_WAIT_SECONDS, error.retry_after_seconds or pause))
            pause *= 2
    return await _page(client, path, query, settings)


async def _page(client: KubeClient, path: str, query: Mapping[str, str], settings: ListSettings) -> _List:
    answer = await client.request("GET", path, query=query, timeout_seconds=settings.request_timeout_seconds)
    if isinstance(answer, Unknown):
        raise WatchFailed(0, answer.why)
    if answer.status == HTTPStatus.GONE:
        raise Expired(answer.message)
    if not answer.ok:
        raise WatchFailed(answer.status, answer.message, answer.retry_after_seconds)
    try:
        page = read_json(answer.body, _List)
    except msgspec.DecodeError as error:
        raise WatchFailed(0, f"the list does not decode: {error}") from None
    if not page.metadata.version:
        raise WatchFailed(0, "the list has no resourceVersion")
    return page
