"""HAMi's node lock: at most one pod per node between bind and the device plugin's last Allocate.

Why it exists: the plugin finds the pod that it serves by this annotation. It must not know cards. Invariants: pods that
wait for a node get it in the order in which they came and hold nothing meanwhile; a lock is removed only if its text is
exactly ours; a lock that this process took for a pod that did not get on the node is removed, however often that must
be tried. `lockowner` decides whether another's lock still counts.

A lock costs one PATCH: the node's version is known from the watch or from the answer to our last write.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from extender.convert import NODE_LOCK
from extender.kube.client import MERGE_PATCH, Answer, KubeClient, Unknown
from extender.kube.paths import NODES, api_path
from extender.live.locks.fair_queue import FairQueue
from extender.live.locks.lockowner import EXPIRY, LockOwner, LockOwners, OwnerState
from extender.live.watching import Facts, NodeFacts, node_facts
from extender.logs import logger
from extender.wire import core_v1
from extender.wire.shallow import read_json

#: A node that stays locked is read again after this time, in case the watch has stopped sending.
_LOOK_AGAIN_SECONDS = 2.0
#: How long a bind waits for the release of its lock before it answers; the release then goes on without it.
_RELEASE_WAIT_SECONDS = 0.5
_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = (0.1, 5.0)


@dataclass(frozen=True, slots=True)
class Contended:
    """The lock was not free in time."""

    why: str


@dataclass(frozen=True, slots=True)
class Held:
    """The lock is ours, as its text proves. `version`: the node's resourceVersion with it, "" if unknown."""

    node: str
    text: str
    version: str


class _Node(msgspec.Struct):
    metadata: core_v1.ObjectMeta


class NodeLocks:
    """The locks of all nodes."""

    def __init__(
        self,
        client: KubeClient,
        facts: Facts,
        owner_state: Callable[[str, str, str], OwnerState],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._facts = facts
        self._now = now
        self._owners = LockOwners(client, owner_state, now)
        self._queue = FairQueue()
        self._changed: dict[str, asyncio.Event] = {}  # node -> set when its lock annotation changed
        self._releasing: dict[Held, asyncio.Task[None]] = {}

    def turn(self, node: str, deadline: float) -> AbstractAsyncContextManager[bool]:
        """Wait for the node's turn, at most until `deadline` (loop time); the block gets False if it did not come."""
        return self._queue.wait(node, deadline)

    def notify(self, node: str) -> None:
        """Note that a node's lock annotation changed, or that the node is gone."""
        changed = self._changed.get(node)
        if changed is not None:
            changed.set()

    def look_again(self) -> None:
        """Note that a pod is gone: binds that wait for a lock check whether the pod owned it."""
        for changed in self._changed.values():
            changed.set()

    async def take(self, node: str, namespace: str, name: str, deadline: float) -> Held | Contended:
        """Take the lock for a pod, waiting until `deadline` (loop time). The caller has the node's turn."""
        text = f"{self._now().strftime('%Y-%m-%dT%H:%M:%SZ')},{namespace},{name}"
        self._changed[node] = asyncio.Event()
        self._stop_releasing(node, text)
        try:
            return await self._take(node, LockOwner(self._now(), namespace, name), text, deadline)
        finally:
            del self._changed[node]

    async def release(self, held: Held) -> None:
        """Remove our lock from a node if it is still ours. This goes on in the background if it takes long."""
        if held in self._releasing:
            return
        task = asyncio.get_running_loop().create_task(self._release(held))
        self._releasing[held] = task
        task.add_done_callback(lambda _: self._releasing.pop(held, None))
        await asyncio.wait({task}, timeout=_RELEASE_WAIT_SECONDS)

    async def drain(self, seconds: float) -> bool:
        """Wait for releases under way, and cancel what is left; returns whether nothing was left."""
        pending = set(self._releasing.values())
        if pending:
            _, pending = await asyncio.wait(pending, timeout=seconds)
        for task in pending:
            task.cancel()
        return not pending

    def _stop_releasing(self, node: str, text: str) -> None:
        """End the release of an earlier bind that wrote the same text in the same second, so that ours stays."""
        for held, task in list(self._releasing.items()):
            if (held.node, held.text) == (node, text):
                task.cancel()

    # -- taking ---------------------------------------------------------------------------------------------------

    async def _take(self, node: str, owner: LockOwner, text: str, deadline: float) -> Held | Contended:
        why, unsure, pause = "no time was left to lock the node", False, 0.0
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            self._changed[node].clear()
            facts = self._facts.nodes.get(node)
            if facts is None:
                return Contended("the node is gone")
            if unsure and facts.lock == text:
                return Held(node, text, facts.resource_version)
            blocking = await self._owners.blocking(node, facts.lock, owner, deadline)
            if blocking is not None:
                why = f"the node is locked by {blocking} until HAMi's device plugin has given it its cards"
                await self._wait(node, left)
                continue
            answer = await self._write(node, facts.resource_version, text, left)
            if isinstance(answer, NodeFacts):
                return Held(node, text, answer.resource_version)
            why = f"the node cannot be locked: {answer.message}"
            if _is_refusal(answer):
                break
            unsure |= answer.sent if isinstance(answer, Unknown) else answer.status != HTTPStatus.CONFLICT
            await asyncio.sleep(min(left, pause))
            pause = min(1.0, 2 * pause or _PAUSE_SECONDS[0])
            await self._read(node, left)
        if unsure:
            await self.release(Held(node, text, ""))
        return Contended(why)

    async def _wait(self, node: str, left: float) -> None:
        """Wait until the lock changes; a node that does not change for long is read."""
        try:
            async with asyncio.timeout(min(left, _LOOK_AGAIN_SECONDS)):
                await self._changed[node].wait()
        except TimeoutError:
            if left > _LOOK_AGAIN_SECONDS:
                await self._read(node, left - _LOOK_AGAIN_SECONDS)

    # -- writing --------------------------------------------------------------------------------------------------

    async def _release(self, held: Held) -> None:
        pause, longest = _PAUSE_SECONDS
        end = asyncio.get_running_loop().time() + EXPIRY.total_seconds()
        version = held.version
        while asyncio.get_running_loop().time() < end:
            if version:
                answer = await self._write(held.node, version, None, _REQUEST_SECONDS)
                if isinstance(answer, NodeFacts) or answer.status == HTTPStatus.NOT_FOUND:
                    return
            facts = await self._read(held.node, _REQUEST_SECONDS)
            if facts is None:
                return
            version_was, version = version, ""
            if isinstance(facts, NodeFacts):
                version = facts.resource_version if facts.lock == held.text else ""
                # A lock whose write got no answer may still appear, for a while.
                if not version and (held.version or pause >= 1):
                    return
            if version in ("", version_was):
                await asyncio.sleep(pause)
                pause = min(longest, 2 * pause)
        logger().error("node lock cannot be released", node=held.node, lock=held.text)

    async def _write(
        self, node: str, version: str, text: str | None, timeout_seconds: float
    ) -> NodeFacts | Answer | Unknown:
        """Set or remove the annotation on exactly that version of the node; returns the node's facts on success."""
        metadata: dict[str, object] = {"annotations": {NODE_LOCK: text}, "resourceVersion": version}
        body = json.dumps({"metadata": metadata}).encode()
        answer = await self._client.request(
            "PATCH", api_path(NODES, node), body=body, content_type=MERGE_PATCH, timeout_seconds=timeout_seconds
        )
        return self._note(node, answer) if isinstance(answer, Answer) and answer.ok else answer

    async def _read(self, node: str, timeout_seconds: float) -> NodeFacts | Unknown | None:
        """Read a node and remember what it says; None if it is gone."""
        answer = await self._client.request("GET", api_path(NODES, node), timeout_seconds=max(0.1, timeout_seconds))
        if isinstance(answer, Unknown):
            return answer
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return self._note(node, answer) if answer.ok else Unknown(f"{answer.status} {answer.message}")

    def _note(self, node: str, answer: Answer) -> NodeFacts:
        facts = node_facts(read_json(answer.body, _Node).metadata)
        if node in self._facts.nodes:
            self._facts.nodes[node] = facts
        self.notify(node)
        return facts


def _is_refusal(answer: Answer | Unknown) -> bool:
    """Whether a write certainly did not happen, and would not happen at another try."""
    return (
        isinstance(answer, Answer)
        and answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
        and answer.status != HTTPStatus.CONFLICT
    )
