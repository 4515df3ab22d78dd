"""Listing ResourceClaims afresh for binds.

Why it exists: a claim that takes a card between filter and bind shows on the watch a moment later, and bind must refuse
then (REQ-DRA9). It must not judge. Invariants: what a bind is told of was listed after it asked, and binds that ask at
the same time share a list; a list never undoes what the watch has told since; where DRA has no devices of the node, or
claims may not be seen at all, nothing is asked.
"""

import asyncio
from http import HTTPStatus

import msgspec

from extender.cluster import ResourceClaims, is_older
from extender.kube.client import KubeClient, WatchFailed
from extender.kube.discovery import OptionalReflector
from extender.kube.listing import Expired, ListSettings, list_pages
from extender.kube.pace import Pace
from extender.kube.reflector import Change, Sink
from extender.live.watching.claim_sinks import ResourceClaimSink
from extender.live.watching.naming import name_of

_LISTS = ListSettings(tries=2)


class FreshClaims:
    """Lists the claims of one cluster. `told`: what the watch's objects go to; `known`: the last of it."""

    def __init__(
        self, client: KubeClient, claims: ResourceClaims, claims_of: OptionalReflector, known: ResourceClaimSink
    ) -> None:
        self.lists = 0
        """How many lists began so far."""
        self._client = client
        self._claims = claims
        self._of = claims_of
        self._told: Sink = claims_of.sink
        self._known = known
        self._next: asyncio.Future[str] | None = None
        self._task: asyncio.Task[None] | None = None

    async def look(self, node: str, seconds: float) -> str:
        """Return "" once every claim was listed after this call, if some may be on the node; else why not."""
        if self._of.reflector is None or not self._claims.has_devices(node):
            return ""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        asked = self._next
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._list_until_nobody_asks())
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await asyncio.shield(asked)
        except TimeoutError:
            return f"Unknown: the claims on node {node} were not listed in time"

    async def _list_until_nobody_asks(self) -> None:
        while self._next is not None:
            asked, self._next = self._next, None
            try:
                why = await self._list()
            except Exception:
                asked.set_result("Unknown: the claims cannot be listed")
                raise
            asked.set_result(why)

    async def _list(self) -> str:
        """List all claims once; returns why that was not possible."""
        reflector, pace = self._of.reflector, Pace()
        if reflector is None:
            return ""
        self.lists += 1
        with self._known.deletions_noted() as gone:
            try:
                async for page in list_pages(self._client, reflector.path, {}, _LISTS):
                    for raw in page.items:
                        self._take(raw, gone)
                        await pace.breathe()
            except Expired as error:
                return f"Unknown: the claims cannot be listed: {error}"
            except WatchFailed as error:
                # Without the permission nothing of claims counts, which readiness and verify say.
                if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                    return ""
                return f"Unknown: the claims cannot be listed: {error}"
        return ""

    def _take(self, raw: msgspec.Raw, gone: set[str]) -> None:
        """Take a claim that is newer than what the watch has told of it."""
        meta = name_of(raw)
        uid, version = meta.uid or "", meta.resourceVersion or ""
        known = self._known.versions.get(uid)
        if uid not in gone and known != version and not (known is not None and is_older(version, known)):
            self._told.change(Change.PUT, raw)
