"""What became of a Binding that got no answer.

Why it exists: a write whose answer is lost, late or a 5xx may have happened, may still happen, or never will, and until
that is known its cards belong to the pod. It must not choose cards. Invariants: the booking stays until a read or the
watch shows what happened, or until it can no longer happen; a Binding is given up only when the pod's version has moved
on, because every Binding names the version that it was made for.

    read the pod:  on a node -> as its annotation says | gone -> released
                   no node, another version than the Binding named -> it can no longer be accepted: forgotten
                   no node, the same version -> it may still come: move the version on by an annotation, read again
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from accounting.pod import Pod
from accounting.pod_record import PodRecord
from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.kube.client import MERGE_PATCH, Answer, KubeClient, Unknown
from extender.live.annotations import RETRY_AT
from extender.live.leadership import Leadership
from extender.live.nodelock import Held, NodeLocks
from extender.live.podtable import PodTable
from extender.logs import logger
from extender.wire import core_v1

_NOT_FOUND = 404
_REQUEST_SECONDS = 5.0


@dataclass(slots=True)
class Unsettled:
    """A bind whose outcome is not known. `version`: the one that its Binding named; "" if it was accepted."""

    uid: str
    namespace: str
    name: str
    node: str
    version: str = ""
    lock: Held | None = None
    look: asyncio.Event = field(default_factory=asyncio.Event)


class PodReader:
    """Reads single pods and records what they say. What it records goes into the journal as if the watch had told."""

    def __init__(self, client: KubeClient, cluster: Cluster, table: PodTable) -> None:
        self._client = client
        self._cluster = cluster
        self._table = table

    def version(self, uid: str) -> str:
        """Return the newest version that is known of a pod."""
        return self._table.version(uid)

    async def read(self, namespace: str, name: str, uid: str, timeout_seconds: float) -> Pod | Unknown | None:
        """Return a pod as it is now, None if it is gone."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        answer = await self._client.request("GET", path, timeout_seconds=max(0.1, timeout_seconds))
        if isinstance(answer, Unknown):
            return answer
        if answer.status == _NOT_FOUND:
            self._gone(uid)
            return None
        if not answer.ok:
            return Unknown(f"{answer.status} {answer.message}")
        return self.note(answer.body, uid)

    def note(self, body: bytes, uid: str) -> Pod | Unknown | None:
        """Record a pod that the API server has just answered."""
        try:
            wire = msgspec.json.decode(body, type=core_v1.Pod)
        except msgspec.DecodeError as error:
            return Unknown(f"the pod does not decode: {error}")
        if wire.metadata is None or wire.metadata.uid != uid:
            # Another pod of the same name; the watch will tell of it.
            self._gone(uid)
            return None
        self._journal("put", body.decode())
        before = self._cluster.cache.pods.get(uid)
        pod = self._table.told(wire, by_read=True)
        self._tell_freed(before, uid)
        return pod

    def _gone(self, uid: str) -> None:
        self._journal("deleted", json.dumps({"metadata": {"uid": uid}}))
        before = self._cluster.cache.pods.get(uid)
        self._table.gone(uid)
        self._tell_freed(before, uid)

    def _tell_freed(self, before: PodRecord | None, uid: str) -> None:
        """Tell of what a read has freed: the watch event that comes later changes nothing more."""
        after = self._cluster.cache.pods.get(uid)
        if before is None or before is after or self._cluster.on_freed is None:
            return
        if after is None or after.node != before.node or after.held != before.held:
            self._cluster.on_freed(str(before.node))

    def _journal(self, change: str, text: str) -> None:
        if self._cluster.on_booking is not None:
            self._cluster.on_booking({"op": "change", "kind": "Pod", "change": change, "object": text})


class Settling:
    """All binds whose outcome is not known."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        reader: PodReader,
        locks: NodeLocks,
        leadership: Leadership,
        pauses: tuple[float, float],
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._reader = reader
        self._locks = locks
        self._leadership = leadership
        self._pauses = pauses
        self._utc_now = utc_now
        self._tasks: dict[str, asyncio.Task[None]] = {}  # pod UID -> the reading of it
        self._open: dict[str, Unsettled] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is under way."""
        return list(self._tasks.values())

    def begin(self, bind: Unsettled) -> None:
        """Find out what became of a bind, until it is known."""
        if bind.uid not in self._open:
            self._open[bind.uid] = bind
            task = asyncio.get_running_loop().create_task(self._settle(bind))
            self._tasks[bind.uid] = task
            task.add_done_callback(lambda done: self._ended(bind.uid, done))

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        # Meanwhile another bind of the pod may be under way.
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
        """The watch told of a pod."""
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
        """Whether the watch has told already."""
        return self._cluster.cache.state(bind.uid) in (None, PodState.ADDED)

    async def _look_at(self, bind: Unsettled) -> bool:
        """Read the pod once; returns whether the bind is settled now."""
        read = await self._reader.read(bind.namespace, bind.name, bind.uid, _REQUEST_SECONDS)
        if isinstance(read, Unknown):
            return False
        if read is not None and bind.version and not self._is_known(bind):
            # Without a version it was accepted; then a pod without a node can only be an old answer.
            moved_on = self._reader.version(bind.uid) != bind.version or await self._move_on(bind)
            if moved_on and not self._is_known(bind):
                self._cluster.forget(bind.uid)
        return self._is_known(bind)

    async def _move_on(self, bind: Unsettled) -> bool:
        """Give the pod another version, so that the Binding is refused if it comes; returns whether that is done."""
        if not self._leadership.may_write(_REQUEST_SECONDS):
            return False
        metadata = {
            "uid": bind.uid,
            "resourceVersion": bind.version,
            "annotations": {RETRY_AT: self._utc_now().isoformat()},
        }
        answer = await self._client.request(
            "PATCH",
            f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}",
            body=json.dumps({"metadata": metadata}).encode(),
            content_type=MERGE_PATCH,
            timeout_seconds=_REQUEST_SECONDS,
        )
        if not (isinstance(answer, Answer) and answer.ok):
            return False
        self._reader.note(answer.body, bind.uid)
        return self._reader.version(bind.uid) != bind.version
