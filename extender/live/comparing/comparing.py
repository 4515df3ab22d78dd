"""Comparing the cache with the objects of the API server.

Why it exists: a lost watch event or a bug would show nowhere else until a card is given out twice. It must not change
anything. Invariants: only what still differs after the watch had time to catch up is a difference; a comparison takes a
bounded time, and says so if it could not finish; the event loop is never blocked for more than a few milliseconds.

    LIST everything, compare each object -> where they differ: wait, GET it, compare again (three times) -> difference
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from extender.kube.client import Answer, KubeClient, WatchFailed
from extender.kube.listing import Expired, ListSettings, list_pages
from extender.kube.pace import Pace
from extender.live.comparing.views import Seen, View

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """Bounds of a comparison, with their reasons."""

    lists: ListSettings = field(default_factory=ListSettings)
    limit_seconds: float = 60.0
    """Limit of a whole comparison. 100,000 pods take about 15 s, and a person waits for the answer."""
    waits_seconds: tuple[float, ...] = (0.2, 0.5, 1.0)
    """Pause before each further look at what differed. A watch lags by milliseconds."""
    request_seconds: float = 5.0
    most: int = 100
    """How many objects are read again and shown. With more differences the cache must be listed again anyway."""


@dataclass(slots=True)
class Comparison:
    """What a comparison found."""

    differences: list[Json] = field(default_factory=list)
    objects: int = 0
    differing: int = 0
    """Number of objects that differ; it may exceed the number shown."""
    why_incomplete: str = ""
    paths: set[str] = field(default_factory=set)
    """The lists in which something differs."""

    def as_json(self) -> Json:
        """Return what /api/v1/verify adds to its report."""
        return {
            "differences": sorted(self.differences, key=lambda entry: str(entry["object"])),
            "comparison": {
                "objects": self.objects,
                "differing": self.differing,
                "complete": not self.why_incomplete,
                "why": self.why_incomplete,
            },
        }


class Comparer:
    """Compares all views of one cluster. Callers that ask at the same time share one comparison."""

    def __init__(
        self,
        client: KubeClient,
        views: Sequence[View],
        settings: CompareSettings | None = None,
        further: Callable[[], Sequence[View]] = tuple,
    ) -> None:
        """`further`: returns the views of what is served and may be read now."""
        self._client = client
        self._views = views
        self._further = further
        self._settings = settings or CompareSettings()
        self._running: asyncio.Task[Comparison] | None = None

    async def compare(self) -> Comparison:
        """Compare now. A caller that gives up does not end it for the others."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._compare())
        return await asyncio.shield(self._running)

    def stop(self) -> None:
        """End a comparison that is running."""
        if self._running is not None:
            self._running.cancel()

    async def _compare(self) -> Comparison:
        found = Comparison()
        try:
            async with asyncio.timeout(self._settings.limit_seconds):
                for view in (*self._views, *self._further()):
                    await self._compare_view(view, found)
        except TimeoutError:
            found.why_incomplete = f"not ended within {self._settings.limit_seconds:g} s"
        except Expired as error:
            found.why_incomplete = f"the list expired: {error}"
        except WatchFailed as error:
            found.why_incomplete = f"{error.status} {error}" if error.status else str(error)
        return found

    async def _compare_view(self, view: View, found: Comparison) -> None:
        suspects = await self._suspects(view, found)
        looked_at = dict(list(suspects.items())[: self._settings.most])
        for seconds in self._settings.waits_seconds:
            if not looked_at:
                break
            await asyncio.sleep(seconds)
            for identity in list(looked_at):
                looked_at[identity] = value = await self._read_again(view, identity, looked_at[identity])
                if not _differs(view, identity, value):
                    del looked_at[identity]
        found.differences += [
            view.shown(identity, view.cached(identity), value) for identity, value in looked_at.items()
        ]
        beyond = max(0, len(suspects) - self._settings.most)
        found.differing += len(looked_at) + beyond
        if looked_at or beyond:
            found.paths.add(view.path)

    async def _suspects(self, view: View, found: Comparison) -> dict[str, Any]:
        """List everything; return the objects that look different, as the API server has them."""
        # Of a set of 100,000 texts the garbage collector looks at each, of a dictionary without other values at none.
        before, listed, suspects, pace = view.known(), dict[str, None](), dict[str, Any](), Pace()

        def look(seen: Seen) -> None:
            listed[seen.identity] = None
            if _differs(view, seen.identity, seen.value):
                suspects[seen.identity] = seen.value

        async with aclosing(list_pages(self._client, view.path, view.query, self._settings.lists)) as pages:
            async for page in pages:
                for raw in page.items:
                    found.objects += 1
                    seen = view.read(raw)
                    if seen is not None:
                        look(seen)
                    await pace.breathe()
        for seen in view.rest():
            look(seen)
            await pace.breathe()
        unlisted = []
        for identity in before:
            if identity not in listed:
                unlisted.append(identity)
            await pace.breathe()
        for identity in sorted(unlisted):
            look(Seen(identity, None))
            await pace.breathe()
        return suspects

    async def _read_again(self, view: View, identity: str, value: Any) -> Any:  # noqa: ANN401 - a value of the view
        """Return one object as the API server has it now; unchanged if it cannot be read."""
        path = view.path_of(identity, value)
        if path is None:
            return value
        query, seconds = view.query_of(identity, value), self._settings.request_seconds
        answer = await self._client.request("GET", path, query=query, timeout_seconds=seconds)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return view.read_again(identity, answer.body) if isinstance(answer, Answer) and answer.ok else value


def _differs(view: View, identity: str, value: Any) -> bool:  # noqa: ANN401 - a value of the view
    return not view.is_open(identity) and not view.agrees(identity, value)
