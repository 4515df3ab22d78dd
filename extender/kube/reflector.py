"""Listing and watching one resource, for ever.

Why it exists: the cache of a live cluster stays correct only if a watch that ends, falls behind or goes silent is
handled well. It must not know what the objects mean. Invariants: the sink sees every object of a list, and every change
after it, in order; objects that vanished without a watch are reported as gone, but only if they were known before that
list began (what the extender itself learned or wrote since is newer than the list); an object or line that does not
decode stops nothing; the event loop is never blocked for more than a few milliseconds.

    LIST (pages of one version) -> replaced -> WATCH from that version
      ^                                          |  ended, failed, silent: WATCH again from the last version seen
      |__ 410 in any form, a broken line, _______|
          `list_again`
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple, Protocol

import msgspec

from extender.kube.client import KubeClient, WatchFailed
from extender.kube.listing import Expired, ListSettings, list_pages
from extender.kube.pace import Pace
from extender.kube.watch_event import is_about_version, read_event, version_of
from extender.logs import logger


class Change(Enum):
    """What happened to an object."""

    PUT = "put"
    LISTED = "listed"
    """A list shows it so: what it shows is never late."""
    DELETED = "deleted"


class Taken(NamedTuple):
    """What a sink read of an object: its identity and its version, each None if there is none."""

    identity: str | None
    version: str | None = None


class Sink(Protocol):
    """Receives objects. It is called without an await, so it must be quick."""

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one object as it is now, or as it was if deleted; the bytes may not decode."""

    def replaced(self, identities: set[str]) -> None:
        """Note that a whole list was read; all other known objects are gone."""


@dataclass(frozen=True, slots=True)
class ReflectorSettings:
    """Times of lists and watches in seconds, with their reasons."""

    lists: ListSettings = field(default_factory=ListSettings)
    inactivity_seconds: float = 70.0
    """A watch that is silent for longer is dead: API servers send bookmarks about once a minute."""
    watch_seconds: tuple[int, int] = (300, 600)
    """The server ends a watch after a random time in this range, as with client-go."""
    backoff_seconds: tuple[float, float] = (0.2, 10.0)
    retry_after_limit_seconds: float = 60.0
    short_watch_seconds: float = 5.0
    """After a watch that lived longer than this, the next one starts at once."""


@dataclass(slots=True)
class ReflectorState:
    """The health of a reflector. Times are the event loop's."""

    synced: bool = False
    """Whether a whole list has been read."""
    lists: int = 0
    watches: int = 0
    undecodable: int = 0
    failures: int = 0
    last_event_at: float | None = None
    failing_since: float | None = None
    """Time of the first failure since the last success; None while all is well."""
    open_since: float | None = None
    """When the open watch was accepted."""


def _nothing() -> set[str]:
    return set()


def _tell_nobody() -> None:
    return None


def _wait_no_longer(_: WatchFailed) -> float:
    return 0.0


@dataclass(slots=True)
class Reflector:
    """One resource. `known` returns the objects that the sink would drop if a list did not name them."""

    client: KubeClient
    path: str
    sink: Sink
    settings: ReflectorSettings = field(default_factory=ReflectorSettings)
    query: dict[str, str] = field(default_factory=dict)
    known: Callable[[], AbstractSet[str]] = _nothing
    state: ReflectorState = field(default_factory=ReflectorState)
    chance: Random = field(default_factory=Random)
    on_list: Callable[[], None] = _tell_nobody
    """Called when a whole list was taken."""
    on_failure: Callable[[WatchFailed], float] = _wait_no_longer
    """Called when a list or watch failed; returns how many seconds to wait at least before the next try."""
    _version: str | None = None
    _delay: float = 0.0
    _turn: asyncio.Timeout | None = None
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def run(self) -> None:
        """List and watch until cancelled."""
        try:
            while True:
                try:
                    async with asyncio.timeout(None) as self._turn:
                        await self._follow()
                except TimeoutError:
                    if self._turn is None or not self._turn.expired():
                        raise
                    self._lived()
        finally:
            self._turn = None

    async def list_again(self) -> None:
        """Drop the watch, and return when a list that began after this call has been read.

        A caller that gives up leaves the reflector running as before.
        """
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append(done)
        if self._turn is not None and not self._turn.expired():
            # Ends what `run` awaits now; it then starts with a list.
            self._turn.reschedule(loop.time())
        try:
            await done
        finally:
            if done in self._waiting:
                self._waiting.remove(done)

    def failing_seconds(self) -> float:
        """How long nothing has worked. A watch that has been open for a while works, even without events."""
        state, now = self.state, asyncio.get_running_loop().time()
        stands = state.open_since is not None and now - state.open_since > self.settings.short_watch_seconds
        return 0.0 if state.failing_since is None or stands else now - state.failing_since

    # -- the loop -------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            failure = None
            try:
                if self._version is None or self._waiting:
                    await self._list()
                await self._watch()
            except Expired as error:
                logger().info("listing again", path=self.path, why=str(error))
                self._version = None
            except WatchFailed as error:
                failure = error
            if not self._lived() or failure is not None or self._version is None:
                await self._back_off(failure)

    def _lived(self) -> bool:
        """Note that no watch is open; returns whether the last one was open for long enough."""
        opened, self.state.open_since = self.state.open_since, None
        lived = opened is not None and asyncio.get_running_loop().time() - opened > self.settings.short_watch_seconds
        if lived:
            self._delay, self.state.failing_since = 0.0, None
        return lived

    async def _back_off(self, failure: WatchFailed | None) -> None:
        """Wait before the next try: with decorrelated jitter, or as long as the server asked for."""
        low, high = self.settings.backoff_seconds
        self._delay = min(high, self.chance.uniform(low, max(low, self._delay * 3)))
        wait = self._delay
        if failure is not None:
            self.state.failures += 1
            if self.state.failing_since is None:
                self.state.failing_since = asyncio.get_running_loop().time()
            wait = max(wait, min(failure.retry_after_seconds or 0.0, self.settings.retry_after_limit_seconds))
            wait = max(wait, self.on_failure(failure))
            logger().warning(
                "list or watch failed", path=self.path, status=failure.status, why=str(failure), wait=round(wait, 3)
            )
        await asyncio.sleep(wait)

    # -- list -----------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Read a whole list, and report what is gone."""
        waiting, self._waiting = self._waiting, []
        try:
            self._version = None
            self._version = await self._take_list()
        except BaseException:
            self._waiting = waiting + self._waiting
            raise
        self.state.lists += 1
        self.state.synced = True
        self._heard()
        self.on_list()
        for done in waiting:
            if not done.done():
                done.set_result(None)

    async def _take_list(self) -> str:
        before, listed, version, nameless, pace = set(self.known()), set[str](), "", 0, Pace()
        async with aclosing(list_pages(self.client, self.path, self.query, self.settings.lists)) as pages:
            async for page in pages:
                version = page.version
                for raw in page.items:
                    identity = self._take(Change.LISTED, raw).identity
                    if identity is None:
                        nameless += 1
                    else:
                        listed.add(identity)
                    await pace.breathe()
        if nameless:
            # An unreadable object may be any of the known ones, so nothing is reported as gone.
            logger().error("objects of a list do not decode", path=self.path, count=nameless)
        else:
            listed |= self.known() - before
            self.sink.replaced(listed)
        return version

    # -- watch ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        self.state.watches += 1
        low, high = self.settings.watch_seconds
        query = dict(self.query) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(self.chance.randint(low, high)),
        }
        pace = Pace()
        try:
            watching = self.client.watch(self.path, query, self.settings.inactivity_seconds, self._opened)
            async with aclosing(watching) as lines:
                async for line in lines:
                    self._event(line)
                    await pace.breathe()
        except WatchFailed as error:
            if is_about_version(error):
                raise Expired(str(error)) from None
            raise

    def _event(self, line: bytes) -> None:
        event = read_event(line)
        version = None
        if event.type in ("ADDED", "MODIFIED"):
            version = self._take(Change.PUT, event.raw).version
        elif event.type == "DELETED":
            version = self._take(Change.DELETED, event.raw).version
        elif event.type != "BOOKMARK":
            logger().error("event of an unknown type", path=self.path, type=event.type)
        # A sink that could read an object has also read its version; reading it again would cost as much as all the
        # rest.
        self._version = version or version_of(event) or self._version
        self._delay = 0.0
        self._heard()

    def _opened(self) -> None:
        self.state.open_since = asyncio.get_running_loop().time()

    def _heard(self) -> None:
        """Note that something valid came from the API server."""
        self.state.last_event_at = asyncio.get_running_loop().time()
        self.state.failing_since = None

    def _take(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Pass one object to the sink. A bug in its handling does not stop the others."""
        try:
            taken = self.sink.change(change, raw)
        except Exception:  # noqa: BLE001 - whatever it was, the next object is not concerned
            logger().exception("object cannot be taken", path=self.path)
            taken = Taken(None)
        self.state.undecodable += taken.identity is None
        return taken
