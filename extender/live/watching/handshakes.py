"""Asking device plugins whether they run, and taking their cards as unhealthy if they do not answer.

It must not know cards. Invariants: only a leader writes; nodes that register no cards of a vendor are left alone;
whatever a node says, running pods are not touched: nothing new is placed on cards of a silent plugin. Times in the
annotation are UTC, so that replicas in different time zones agree. Source: HAMi's handshake, `Requesting_<time>`
answered by `Reported_<time>`.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from accounting.handshake import REQUESTING, judge
from accounting.vendor import Vendor
from extender.cluster import Cluster
from extender.kube.client import MERGE_PATCH, Answer, KubeClient
from extender.kube.paths import NODES, api_path
from extender.live.watching.facts import Facts
from extender.logs import logger

#: The interval that HAMi uses.
PASS_SECONDS = 15.0
#: The lease must outlast it, so it is well below half of one.
_REQUEST_SECONDS = 2.0
#: At most this many writes per second, so that a large cluster's first pass does not crowd out binds.
_WRITES_PER_SECOND = 20.0
_TIME = "%Y-%m-%d %H:%M:%S"


class Leadership(Protocol):
    """Says whether this replica may write."""

    def may_write(self, seconds: float) -> bool:
        """Whether a write that ends within this time is allowed."""


class _Asked(NamedTuple):
    node: str
    vendor: Vendor
    healthy: bool
    ask: bool


class HandshakeKeeper:
    """Judges every node's handshakes at intervals."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        client: KubeClient,
        leadership: Leadership,
        unix_time: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._client = client
        self._leadership = leadership
        self._unix_time = unix_time
        self._vendors = [vendor for vendor in cluster.settings.vendors if vendor.handshake_annotation]
        self.written = 0

    async def run(self) -> None:
        """Judge until cancelled. Returns at once if no vendor has a handshake."""
        if not self._vendors:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(PASS_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Judge once, and ask the plugins that are due."""
        for found in list(self._judged()):
            if self._cluster.plugins.note(found.node, found.vendor.key, alive=found.healthy):
                logger().warning("device plugin", node=found.node, vendor=found.vendor.key, answers=found.healthy)
            if found.ask and self._leadership.may_write(_REQUEST_SECONDS):
                await self._ask(found.node, found.vendor)
                await asyncio.sleep(1 / _WRITES_PER_SECOND)

    def _judged(self) -> Iterator[_Asked]:
        now = int(self._unix_time())
        for name, node in self._cluster.cache.nodes.items():
            facts = self._facts.nodes.get(name)
            if facts is None:
                continue
            texts = dict(facts.handshakes)
            keys = {device.vendor for device in node.devices}
            limits = dict(node.further_allocatable) | {self._cluster.settings.vendor.key: node.count_allocatable}
            for vendor in self._vendors:
                text = texts.get(vendor.handshake_annotation, "")
                if vendor.key not in keys:
                    continue
                was = not self._cluster.plugins.is_gone(name, vendor.key)
                found = judge(text, requested_at(text), now, limits[vendor.key], was_healthy=was)
                yield _Asked(name, vendor, found.healthy, found.ask)

    async def _ask(self, node: str, vendor: Vendor) -> None:
        moment = datetime.fromtimestamp(int(self._unix_time()), UTC).strftime(_TIME)
        body = {"metadata": {"annotations": {vendor.handshake_annotation: f"{REQUESTING}_{moment}"}}}
        answer = await self._client.request(
            "PATCH",
            api_path(NODES, node),
            body=json.dumps(body).encode(),
            content_type=MERGE_PATCH,
            timeout_seconds=_REQUEST_SECONDS,
        )
        if isinstance(answer, Answer) and answer.ok:
            self.written += 1
        else:
            logger().warning("handshake not written", node=node, vendor=vendor.key, why=answer.message)


def requested_at(text: str) -> int | None:
    """Return the time in `Requesting_<time>` in Unix seconds; None if it cannot be read."""
    _, found, moment = text.partition("_")
    if not found:
        return None
    try:
        return int(datetime.strptime(moment.strip(), _TIME).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
