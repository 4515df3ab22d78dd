"""Finding out what became of a Binding that got no answer.

Why it exists: a write whose answer is lost, late or a 5xx may have happened, may still happen or may never happen, and
until that is known the cards belong to the pod. It must not choose cards. Invariants: the booking stays until a read or
the watch shows what happened, or until the Binding can no longer happen; a Binding is given up only when the pod has
another version, because every Binding names the version that it was made for.

    read the pod:  on a node -> as its annotation says | gone -> released
                   no node, another version than the Binding named -> it can no longer be accepted: forgotten
                   no node, the same version -> it may still come: move the version on by an annotation, read again
"""

import asyncio
from dataclasses import dataclass, field

from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.kube.client import Unknown
from extender.kube.events import PodRef
from extender.live.binding.reader import PodReader
from extender.live.leading import Leadership
from extender.live.locks import Held, NodeLocks
from extender.logs import logger


@dataclass(slots=True)
class Unsettled:
    """A bind whose outcome is not known. `version`: the pod's version that its Binding named."""

    uid: str
    namespace: str
    name: str
    node: str
    version: str
    lock: Held | None = None
    look: asyncio.Event = field(default_factory=asyncio.Event)


class Settling:
    """All binds whose outcome is not known."""

    def __init__(
        self,
        cluster: Cluster,
        reader: PodReader,
        locks: NodeLocks,
        leadership: Leadership,
        pauses: tuple[float, float],
        request_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._locks = locks
        self._leadership = leadership
        self._pauses = pauses
        self._request_seconds = request_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}  # pod UID -> the task that reads it
        self._open: dict[str, Unsettled] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks under way."""
        return list(self._tasks.values())

    def begin(self, bind: Unsettled) -> None:
        """Start to find out what became of a bind; this goes on until it is known."""
        if bind.uid not in self._open:
            self._open[bind.uid] = bind
            task = asyncio.get_running_loop().create_task(self._settle(bind))
            self._tasks[bind.uid] = task
            task.add_done_callback(lambda done: self._ended(bind.uid, done))

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        # By now another bind of the pod may be under way.
        if self._tasks.get(uid) is task:
            del self._tasks[uid]

    async def wait(self, uid: str, deadline: float) -> bool:
        """Wait until a pod's bind is settled, at most until `deadline` (loop time)."""
        task = self._tasks.get(uid)
        if task is None:
            return True
        self.look(uid)
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait({task}, timeout=max(0.0, left))
        return task.done()

    def look(self, uid: str) -> None:
        """Note that the watch showed a pod."""
        if uid in self._open:
            self._open[uid].look.set()

    async def _settle(self, bind: Unsettled) -> None:
        pause, longest = self._pauses
        try:
            while not (self._is_known(bind) or await self._look_at(bind)):
                try:
                    async with asyncio.timeout(pause):
                        await bind.look.wait()
                except TimeoutError:
                    pause = min(longest, 2 * pause)
                bind.look.clear()
        finally:
            del self._open[bind.uid]
        booked = self._cluster.cache.pods.get(bind.uid)
        where = None if booked is None else booked.node
        logger().info("bind without an answer is settled", pod=f"{bind.namespace}/{bind.name}", node=where)
        if bind.lock is not None and where != bind.node:
            await self._locks.release(bind.lock)

    def _is_known(self, bind: Unsettled) -> bool:
        """Whether the watch has already shown what happened."""
        return self._cluster.cache.state(bind.uid) in (None, PodState.ADDED)

    async def _look_at(self, bind: Unsettled) -> bool:
        """Read the pod once; returns whether the bind is settled now."""
        read = await self._reader.read(bind.namespace, bind.name, bind.uid, self._request_seconds)
        if isinstance(read, Unknown):
            return False
        if read is not None and bind.version and not self._is_known(bind):
            moved_on = self._reader.version(bind.uid) != bind.version or await self._move_on(bind)
            if moved_on and not self._is_known(bind):
                self._cluster.registry.forget_binding(bind.uid)
        return self._is_known(bind)

    async def _move_on(self, bind: Unsettled) -> bool:
        """Give the pod another version, so that the Binding is refused if it arrives; returns whether that is done."""
        if not self._leadership.may_write(self._request_seconds):
            return False
        return await self._reader.move_on(
            PodRef(bind.namespace, bind.name, bind.uid), bind.version, self._request_seconds
        )
