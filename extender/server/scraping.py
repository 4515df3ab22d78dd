"""GET /metrics: the registry's metrics, and the longer series that are turned on.

Why it exists: the registry's metrics are few and are made in one go; series per card or pod are made in turns, so that
kube-scheduler does not wait for a scrape. It must not know what is measured. Invariant: only the leader of several
replicas shows usage.
"""

from collections.abc import Callable, Iterator
from itertools import chain

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from extender.server.turns import Turns

Series = Callable[[], Iterator[bytes]]


class Scraping:
    """The handler of /metrics."""

    def __init__(self, registry: CollectorRegistry, turns: Turns, series: Series | None) -> None:
        """`series`: text in the plain format, in steps; None for none."""
        self._registry = registry
        self._turns = turns
        self._series = series
        self._short = make_aiohttp_handler(registry)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Answer a scrape."""
        if self._series is None:
            return await self._short(request)
        texts = chain((generate_latest(self._registry),), self._series())
        return await self._turns.stream(request, texts, {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
