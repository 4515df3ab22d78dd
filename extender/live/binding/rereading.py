"""Bound pods that a list contradicts.

Why it exists: a list may be older than a bind, so it proves nothing about a bound pod. But an API server that was
restored from a backup has lost Bindings that it had accepted, and their cards would stay booked for ever. It must not
end a booking because of a list or a watch. Invariant: a booking ends only by a read that began after the Binding was
accepted, since such a read shows the Binding if it still exists.
"""

import asyncio

from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.kube.client import Unknown
from extender.live.binding.reader import PodReader
from extender.logs import logger

_ACCEPTED = (PodState.BOUND, PodState.ADDED)


class Rereading:
    """The reads that are under way."""

    def __init__(
        self, cluster: Cluster, reader: PodReader, pauses: tuple[float, float], request_seconds: float
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._pauses = pauses
        self._request_seconds = request_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}  # pod UID -> the task that reads it

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks under way."""
        return list(self._tasks.values())

    def begin(self, uid: str) -> None:
        """Read a bound pod until the API server answers."""
        if uid not in self._tasks and self._cluster.cache.state(uid) in _ACCEPTED:
            self._tasks[uid] = task = asyncio.get_running_loop().create_task(self._reread(uid))
            task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    async def _reread(self, uid: str) -> None:
        record, (pause, longest) = self._cluster.cache.pods[uid], self._pauses
        while self._cluster.cache.pods.get(uid) is record:
            read = await self._reader.read(record.namespace, record.name, uid, self._request_seconds)
            if not isinstance(read, Unknown):
                if read is not None and read.node is None and self._cluster.cache.pods.get(uid) is record:
                    logger().error("an accepted Binding has vanished", pod=record.key, node=record.node)
                    self._cluster.registry.lose_binding(uid)
                return
            await asyncio.sleep(pause)
            pause = min(longest, 2 * pause)
