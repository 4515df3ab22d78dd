"""Listing and watching a resource that an API server may not have.

Why it exists: DRA's and KubeVirt's objects exist on some clusters only, and an API may be switched on, or a CRD
installed, at any time; versions are found by asking, never by parsing that of the server. It must not know what the
objects mean. Invariants: what is not served or not allowed is looked for again and stops nothing; nothing is said to be
absent before the API server has said so; what was known of a resource that vanishes or may not be read any more stays
as it was, and the state says so.

    ask (unknown) -> absent: ask again after a while
                  -> listed and watched -> forbidden: try again, seldom
                       ^    |______________ the version is not served any more: ask
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from random import Random
from typing import NamedTuple

import msgspec

from extender.kube.client import Answer, KubeClient, WatchFailed
from extender.kube.paths import Resource, api_path, group_path
from extender.kube.reflector import Reflector, ReflectorSettings, Sink
from extender.logs import logger

_REQUEST_SECONDS = 10.0
#: Between two looks for what is not there. What is installed later is found within two minutes.
_AGAIN_SECONDS = 60.0, 120.0
#: Between two questions that were not answered.
_RETRY_SECONDS = 0.5, 5.0
#: A permission that is missing is seldom given soon. The pause doubles up to the second number.
_FORBIDDEN_SECONDS = 2.0, 300.0


class OptionalResource(NamedTuple):
    """A resource of a group in the versions that can be read, the preferred one first."""

    group: str
    versions: tuple[str, ...]
    plural: str

    @property
    def name(self) -> str:
        """Plural and group, as kubectl takes them."""
        return f"{self.plural}.{self.group}"

    def path(self, version: str) -> str:
        """Return the path of all objects in a version."""
        return api_path(Resource(group_path(self.group, version), self.plural))


class Presence(StrEnum):
    """What is known of a resource."""

    UNKNOWN = "unknown"
    """The API server has not said yet whether it has it."""
    ABSENT = "absent"
    """It has it in no version that can be read."""
    FORBIDDEN = "forbidden"
    """It may not be listed or watched."""
    UNSYNCED = "unsynced"
    """It is being listed for the first time."""
    SYNCED = "synced"
    """It was listed, and changes are watched."""


class _Entry(msgspec.Struct):
    name: str = ""


class _ResourceList(msgspec.Struct):
    resources: list[_Entry] | None = None


def _nothing() -> set[str]:
    return set()


@dataclass(slots=True)
class OptionalReflector:
    """One such resource and its sink. `known`: as of a `Reflector`."""

    client: KubeClient
    wanted: OptionalResource
    sink: Sink
    settings: ReflectorSettings = field(default_factory=ReflectorSettings)
    known: Callable[[], AbstractSet[str]] = _nothing
    chance: Random = field(default_factory=Random)
    reflector: Reflector | None = None
    """The one that lists and watches, while the resource is served."""
    _presence: Presence = Presence.UNKNOWN
    _was_synced: bool = False
    _pause_seconds: float = 0.0
    _gone: asyncio.Event = field(default_factory=asyncio.Event)

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def presence(self) -> Presence:
        """What is known of the resource now."""
        return self._presence

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be waited for: it was listed, or cannot be."""
        return self._presence not in (Presence.UNKNOWN, Presence.UNSYNCED)

    @property
    def unseen(self) -> str:
        """Why objects that may exist are not seen; empty if all are."""
        if not self.is_settled:
            return "are not listed yet"
        if self._presence is Presence.FORBIDDEN:
            why = "may not be listed or watched"
        elif self._presence is Presence.ABSENT and self._was_synced:
            why = "are not served any more"
        else:
            return ""
        counted = "only what was known before counts" if self._was_synced else "none of them counts"
        return f"{why}: {counted}"

    def failing_seconds(self) -> float:
        """How long nothing has worked, a missing permission aside."""
        if self.reflector is None or self._presence is Presence.FORBIDDEN:
            return 0.0
        return self.reflector.failing_seconds()

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look for the resource, and list and watch it while it is there, until cancelled."""
        while True:
            version = await self._find()
            if version is None:
                await asyncio.sleep(self.chance.uniform(*_AGAIN_SECONDS))
            else:
                await self._follow(version)

    async def _follow(self, version: str) -> None:
        """List and watch one version until it is not served any more."""
        path = self.wanted.path(version)
        self._gone.clear()
        self.reflector = Reflector(
            self.client,
            path,
            self.sink,
            self.settings,
            known=self.known,
            on_list=self._listed,
            on_failure=self._failed,
        )
        running = asyncio.create_task(self.reflector.run())
        gone = asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            for task in (running, gone):
                task.cancel()
            await asyncio.gather(running, gone, return_exceptions=True)
            self.reflector = None

    def _listed(self) -> None:
        if self._presence is not Presence.SYNCED:
            logger().info("resource listed", resource=self.wanted.name)
        self._presence, self._was_synced, self._pause_seconds = Presence.SYNCED, True, 0.0

    def _failed(self, failure: WatchFailed) -> float:
        """Note a failure; returns how long to wait at least."""
        if failure.status == HTTPStatus.NOT_FOUND:
            self._gone.set()
        if failure.status != HTTPStatus.FORBIDDEN:
            return 0.0
        if self._presence is not Presence.FORBIDDEN:
            self._presence = Presence.FORBIDDEN
            logger().warning("resource may not be read", resource=self.wanted.name, why=str(failure))
        low, high = _FORBIDDEN_SECONDS
        self._pause_seconds = min(high, max(low, self._pause_seconds * 2))
        return self._pause_seconds

    # -- discovery ------------------------------------------------------------------------------------------------

    async def _find(self) -> str | None:
        """Return the version to read, None if there is none. Asks until the API server has answered."""
        while True:
            found = await served_version(self.client, self.wanted)
            if found:
                self._is_there()
                return found
            if found is not None:
                self._is_absent()
                return None
            await asyncio.sleep(self.chance.uniform(*_RETRY_SECONDS))

    def _is_there(self) -> None:
        if self._presence in (Presence.UNKNOWN, Presence.ABSENT):
            self._presence = Presence.UNSYNCED

    def _is_absent(self) -> None:
        if self._presence in (Presence.SYNCED, Presence.FORBIDDEN):
            logger().warning("resource not served any more", resource=self.wanted.name)
        self._presence = Presence.ABSENT


async def served_version(client: KubeClient, wanted: OptionalResource) -> str | None:
    """Return the preferred version in which the API server has a resource, "" if in none; None if it did not say."""
    answers = [await _serves(client, wanted, version) for version in wanted.versions]
    for version, served in zip(wanted.versions, answers, strict=True):
        if served:
            return version
    return None if None in answers else ""


async def _serves(client: KubeClient, wanted: OptionalResource, version: str) -> bool | None:
    """Return whether the API server has the resource in this version; None if it did not say."""
    path = group_path(wanted.group, version)
    answer = await client.request("GET", path, timeout_seconds=_REQUEST_SECONDS)
    if answer.status == HTTPStatus.NOT_FOUND:
        return False
    if not isinstance(answer, Answer) or not answer.ok:
        return None
    try:
        listed = msgspec.json.decode(answer.body, type=_ResourceList)
    except msgspec.DecodeError:
        return None
    return any(entry.name == wanted.plural for entry in listed.resources or ())
