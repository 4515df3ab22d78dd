"""Binding pods on a live cluster: the only writer of cards.

Why it exists: many binds run at once, outlive the requests that asked for them, and must be settled before this process
ends. It must not know HTTP servers, nor how one bind works; that is in `attempt`. Invariants: at most one bind of a pod
runs at a time; a pod whose bind has failed has no claim; a bind counts as settled only if it can no longer take effect.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.kube.client import KubeClient
from extender.live.binding.attempt import BindAttempts, BindSettings, Recheck
from extender.live.binding.reader import PodReader
from extender.live.binding.rereading import Rereading
from extender.live.binding.settling import Settling
from extender.live.binding.writer import BindingWriter
from extender.live.lanes import Lanes
from extender.live.leading import Leadership
from extender.live.locks import FairQueue, NodeLocks
from extender.live.watching import PodInformer
from extender.logs import logger
from extender.wire.extender_v1 import BindingArgs

#: Limit of one request beside the Binding.
_REQUEST_SECONDS = 5.0


@dataclass(slots=True)
class BindCounts:
    """Numbers of outcomes so far, for metrics."""

    outcomes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    in_flight: int = 0


class Binder:
    """Binds pods of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        informer: PodInformer,
        client: KubeClient,
        locks: NodeLocks,
        leadership: Leadership,
        settings: BindSettings,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.counts = BindCounts()
        self.lanes = Lanes()
        """Maintenance that gives way to binds."""
        self._cluster = cluster
        self._locks = locks
        self.reader = PodReader(client, cluster, informer)
        pauses, request_seconds = settings.resolve_seconds, min(_REQUEST_SECONDS, settings.write_seconds)
        self._settling = Settling(cluster, self.reader, locks, leadership, pauses, request_seconds)
        writer = BindingWriter(cluster, client, leadership, unix_time, lock_mode=settings.lock_mode)
        self._attempts = BindAttempts(cluster, self.reader, writer, locks, leadership, self._settling, settings)
        self._rereading = Rereading(cluster, self.reader, pauses, request_seconds)
        self._queue = FairQueue()  # by pod UID
        self._tasks: set[asyncio.Task[str]] = set()

    async def bind(self, args: BindingArgs) -> str:
        """Bind a pod; returns "" when it is on that node with its cards, else why not.

        The work goes on after the client disconnects, so that nothing stays half done.
        """
        task = asyncio.get_running_loop().create_task(self._bind(args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def drain(self, seconds: float) -> bool:
        """Wait for the binds in flight before this process ends, and cancel what is left.

        Returns whether all are settled: then nothing that this process wrote can still take effect.
        """
        end = asyncio.get_running_loop().time() + seconds
        while (pending := [*self._tasks, *self._settling.tasks]) and (left := _until(end)) > 0:
            await asyncio.wait(pending, timeout=left)
        unlocked = await self._locks.drain(max(0.0, _until(end)))
        for task in (*pending, *self._rereading.tasks):
            task.cancel()
        if pending or not unlocked:
            logger().error("binds are not settled", binds=len(pending), locks_released=unlocked)
        return not pending and unlocked

    def recheck_by(self, recheck: Recheck) -> None:
        """Let each bind look at something before it chooses cards."""
        self._attempts.recheck = recheck

    def claim_given(self, uid: str) -> None:
        """Note that DRA has given devices to a claim of a pod, whose status may name it now."""
        record, pod = self._cluster.cache.pods.get(uid), self._cluster.registry.kept_pod(uid)
        # A pod whose cards are known by its annotation was not served by a claim.
        if record is not None and pod is not None and (record.blocks is not None or pod.raw):
            self._rereading.begin(uid)

    @property
    def unanswered(self) -> int:
        """Bindings so far that got no answer."""
        return self._attempts.unanswered

    def seen(self, uid: str) -> None:
        """Note that the watch showed a pod, or that a list did not name it."""
        self._settling.look(uid)
        self._read_unlisted(uid)
        if not self._cluster.knows(uid):
            self._locks.look_again()

    def _read_unlisted(self, uid: str) -> None:
        """Read a bound pod that a list did not name: it is gone, or newer than the list."""
        entry = self._cluster.registry.entry(uid)
        if entry is not None and entry.unlisted and self._cluster.cache.state(uid) is PodState.BOUND:
            self._rereading.begin(uid)

    def contradicted(self, uid: str) -> None:
        """Note that a list shows a bound pod without a node: it is older than the Binding, or the Binding is lost."""
        self._rereading.begin(uid)

    async def _bind(self, args: BindingArgs) -> str:
        self.counts.in_flight += 1
        try:
            with self.lanes.bind():
                async with self._queue.wait(args.PodUID):
                    error = await self._attempts.bind(args)
        finally:
            self.counts.in_flight -= 1
        self._read_unlisted(args.PodUID)
        if error:
            self._end_claim(args.PodUID)
        self.counts.outcomes["bound" if not error else error.partition(":")[0]] += 1
        return error

    def _end_claim(self, uid: str) -> None:
        """End the claim of a pod whose bind has failed: kube-scheduler will ask filter again first."""
        if self._cluster.cache.state(uid) is None:
            self._cluster.registry.end_claim(uid)


def _until(end: float) -> float:
    return end - asyncio.get_running_loop().time()
