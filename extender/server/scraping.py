"""GET /metrics: the registry's metrics, and the longer series that are turned on.

Why it exists: Prometheus scrapes every quarter of a minute, and kube-scheduler must not wait for it, so everything is
made in turns: one metric of the registry, or a part of the series per card or pod, is a step. It must not know what is
measured. Invariant: only the leader of several replicas shows usage.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
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

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Answer a scrape."""
        if self._series is None and "name[]" in request.query:
            # The client library makes nothing but the named metrics.
            return await make_aiohttp_handler(self._registry)(request)
        made = _Collected([each async for batch in self._turns.taken(self._registry.collect()) for each in batch])
        if self._series is None:
            return await make_aiohttp_handler(made)(request)
        texts = chain((generate_latest(made),), self._series())
        return await self._turns.stream(request, texts, {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _Collected(CollectorRegistry):
    """A registry whose metrics are collected already."""

    def __init__(self, made: list[Metric]) -> None:
        super().__init__()
        self._made = made

    def collect(self) -> Iterable[Metric]:
        return self._made
