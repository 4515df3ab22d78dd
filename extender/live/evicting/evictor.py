"""Evicting pods for others: who wants it, who is next, and what becomes of it.

Why it exists: where a pod's count of cards fits and only memory or cores of a card lack, kube-scheduler looks for
victims by its own counts, finds none, and never asks. It must not judge. Invariants: only the leader evicts; one
preemption at a time per pod; a pod that kube-scheduler helps by itself is left to it; what an earlier process began is
taken up from the pod's annotation, and what was given up is taken off it.

    filter refuses a pod on every node -> a moment later: who would have to go, on which of these nodes?
        nobody can: look again, each time later      waiting is enough: look again soon
        else: an attempt of its own, which ends with a node, or is given up and tried again later
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from accounting.answers.preemption import Chosen, NoVictims, choose
from accounting.pod import Pod
from extender.cluster import Cluster
from extender.kube.client import KubeClient
from extender.kube.events import EventRecorder
from extender.live.binding import PodReader
from extender.live.evicting.attempt import Attempt, Parts
from extender.live.evicting.counts import Counts, End
from extender.live.evicting.limits import Limits
from extender.live.evicting.settings import EvictSettings
from extender.live.evicting.table_keeper import TableKeeper
from extender.live.evicting.telling import Teller
from extender.live.evicting.wanting import Want, Wanting
from extender.live.evicting.writer import EvictionWriter
from extender.live.leading import Leadership
from extender.logs import logger
from extender.verbs import preemptor_of

#: Ends after which nothing is written on the pod any more.
_NOTHING_LEFT = (End.BOUND, End.GONE)


class Evictor:
    """The preemptions of one process."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        leadership: Leadership,
        reader: PodReader,
        events: EventRecorder,
        is_ready: Callable[[], bool],
        settings: EvictSettings | None = None,
    ) -> None:
        """`is_ready`: whether this replica answers filter, and so may evict."""
        self.counts = Counts()
        self._settings = settings or EvictSettings()
        self._cluster = cluster
        self._is_ready = is_ready
        self._limits = Limits(self._settings.per_minute, self._settings.stop_file)
        writer = EvictionWriter(client, leadership, reader, self._settings.request_seconds)
        self._parts = Parts(cluster, writer, Teller(events), self._limits, self.counts, self._settings)
        self._keeper = TableKeeper(cluster)
        self._wants = Wanting(self._settings.remembered)
        self._attempts: dict[str, Attempt] = {}  # pod UID -> the preemption for it
        self._tasks: asyncio.TaskGroup

    @property
    def under_way(self) -> int:
        """Preemptions under way."""
        return len(self._attempts)

    @property
    def is_stopped(self) -> bool:
        """Whether the file says that nobody is evicted."""
        return self._limits.is_stopped

    # -- what it is told ------------------------------------------------------------------------------------------

    def refused(self, pod: Pod, nodes: Sequence[str]) -> None:
        """Filter refused a pod on every node that it was asked about."""
        if not self._settings.evicts or pod.invalid or pod.info.never or not pod.asks:
            return
        now = asyncio.get_running_loop().time()
        snapshot = self._cluster.cache.snapshot()
        self._wants.put(pod, nodes, snapshot, now, now + self._settings.settle_seconds)
        if pod.uid in self._attempts:
            self._attempts[pod.uid].asked(nodes)

    def forget(self, uid: str) -> None:
        """Filter found a node for a pod, or the pod is bound or gone."""
        self._wants.drop(uid)
        if uid in self._attempts:
            self._attempts[uid].look()

    def helped(self, uid: str) -> None:
        """kube-scheduler evicts others for a pod by itself."""
        want = self._wants.get(uid)
        if want is not None:
            want.due_at = asyncio.get_running_loop().time() + self._settings.timeout_seconds

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Evict until cancelled; what was started meanwhile ends with it."""
        if not self._settings.evicts:
            await asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    await asyncio.sleep(self._settings.look_seconds)
                    if self._is_ready():
                        self._adopt()
                        await self._begin_some()
        finally:
            self._attempts.clear()

    def _adopt(self) -> None:
        """Take up what an earlier process began, and take off what it left."""
        now = self._parts.writer.unix_seconds()
        for pod in self._cluster.nominations.preempting():
            if pod.uid not in self._attempts and pod.preempting is not None:
                left = min(pod.preempting.until - now, self._settings.timeout_seconds)
                self._start(pod, pod.preempting.node, left, is_adopted=True)

    async def _begin_some(self) -> None:
        """Begin preemptions for the pods that are due, in order."""
        loop = asyncio.get_running_loop()
        for want in self._wants.due(loop.time()):
            room = len(self._attempts) < self._settings.at_once and self._limits.has_room(loop.time())
            if not room or self._limits.is_stopped or not self._is_ready():
                return
            await self._begin(want)

    async def _begin(self, want: Want) -> None:
        loop, settings = asyncio.get_running_loop(), self._settings
        pod = self._cluster.pod_without_rows(want.uid)
        if want.uid in self._attempts or pod is None or self._cluster.cache.state(want.uid) is not None:
            want.due_at = loop.time() + settings.wait_seconds
            return
        if pod.nominated:
            # kube-scheduler has chosen a node, and evicts there.
            want.due_at = loop.time() + settings.wait_seconds
            return
        found = await self._chosen(pod, want.nodes())
        if found is NoVictims.WAIT:
            want.due_at = loop.time() + settings.wait_seconds
        elif isinstance(found, Chosen):
            self._start(pod, found.node, settings.timeout_seconds)
        else:
            # Nobody needs to ask for 10,000 pods of one deployment.
            for each in self._wants.alike(want):
                self._again_later(each)

    async def _chosen(self, pod: Pod, nodes: list[str]) -> Chosen | NoVictims:
        """Choose among all of these nodes, giving the loop to others again and again."""
        cluster, loop, keeper = self._cluster, asyncio.get_running_loop(), self._keeper
        snapshot = await keeper.refresh()
        preemptor = preemptor_of(cluster, pod, plain=False)
        rows = snapshot.rows_of(nodes)
        look = partial(keeper.look, preemptor=preemptor)
        steps = choose(snapshot, preemptor, rows[rows >= 0], keeper.table, look, cluster.residents.budgets.allowed)
        while True:
            started = loop.time()
            try:
                next(steps)
            except StopIteration as end:
                found: Chosen | NoVictims = end.value
                return found
            await asyncio.sleep((loop.time() - started) * (1 / self._settings.share_of_loop - 1))

    def _start(self, pod: Pod, node: str, seconds: float, *, is_adopted: bool = False) -> None:
        until = asyncio.get_running_loop().time() + seconds
        attempt = self._attempts[pod.uid] = Attempt(self._parts, pod, node, until, is_adopted=is_adopted)
        want = self._wants.get(pod.uid)
        since = until - seconds if want is None else want.refused_at
        self._tasks.create_task(self._logged(pod, self._go_through(pod, attempt, since)))

    async def _go_through(self, pod: Pod, attempt: Attempt, refused_at: float) -> None:
        loop = asyncio.get_running_loop()
        end = await attempt.run()
        if end is None:
            return
        self.counts.ends[end] += 1
        if end is End.BOUND:
            self.counts.bound(loop.time() - refused_at)
        if end in _NOTHING_LEFT:
            return
        self._parts.teller.given_up(pod, attempt.node, attempt.why)
        want = self._wants.get(pod.uid)
        if want is not None:
            self._again_later(want)
        await self._parts.writer.keep(pod, None)

    async def _logged(self, pod: Pod, work: Coroutine[Any, Any, None]) -> None:
        """Do some work; a bug in it is logged, and the rest goes on."""
        try:
            await work
        except Exception:  # noqa: BLE001 - it must not end the others
            logger().exception("preemption failed", pod=pod.key)
        finally:
            self._attempts.pop(pod.uid, None)

    def _again_later(self, want: Want) -> None:
        first, longest = self._settings.again_seconds
        want.due_at = asyncio.get_running_loop().time() + min(longest, first * 2**want.in_vain)
        want.in_vain += 1
