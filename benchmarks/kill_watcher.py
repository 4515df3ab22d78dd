"""An independent watcher of pods, which judges every event by the reference.

It exists because a card that is over-committed for a moment leaves no trace afterwards. It must not ask the extender.
Invariant: after every event it has the pods exactly as the API server had them at that version, so a finding is neither
early nor late.
"""

import asyncio
from collections import defaultdict
from typing import Any

import aiohttp
import msgspec
import orjson

from accounting.node import Node
from accounting.pod import Pod
from accounting.reference import state as reference_state
from extender.config import Settings
from extender.convert.node import convert_node
from extender.convert.pod import convert_pod
from extender.wire import core_v1

Json = dict[str, Any]

_SETTINGS = Settings()
ALLOCATED = _SETTINGS.vendor.devices_allocated_annotation


class Violation(Exception):
    """Something that must never happen."""


def read_pod(obj: Json) -> Pod:
    """Return a pod as accounting sees it."""
    return convert_pod(msgspec.convert(obj, core_v1.Pod, strict=False), _SETTINGS)


def read_node(obj: Json) -> Node:
    """Return a node as accounting sees it."""
    return convert_node(msgspec.convert(obj, core_v1.Node, strict=False), _SETTINGS)


class Watcher:
    """All pods as the API server has them."""

    def __init__(self, session: aiohttp.ClientSession, nodes: list[Json]) -> None:
        self.events = 0
        self.objects: dict[str, Json] = {}  # pod UID -> object
        self.nodes = {node.name: node for node in map(read_node, nodes)}
        self.bound: dict[str, tuple[str, str]] = {}  # pod UID -> node, allocation; kept after the pod's end
        self.changed = asyncio.Event()
        """Set at every event; the waiter clears it."""
        self._session = session
        self._pods: dict[str, Pod] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)  # node -> UIDs

    async def follow(self) -> None:
        """Watch until cancelled. Raises `Violation`."""
        query, unlimited = {"watch": "1", "resourceVersion": "0"}, aiohttp.ClientTimeout(total=None)
        async with self._session.get("/api/v1/pods", params=query, timeout=unlimited) as response:
            async for line in response.content:
                event = orjson.loads(line)
                if event["type"] != "BOOKMARK":
                    self._take(event["type"], event["object"])
                    self.events += 1
                    self.changed.set()
        raise Violation("the independent watch ended")

    async def has_seen(self, uid: str) -> None:
        """Wait until a pod that was just created is known here."""
        while uid not in self.objects:
            self.changed.clear()
            await self.changed.wait()

    def state(self) -> dict[str, reference_state.NodeState]:
        """Return every node as the present pods leave it."""
        return reference_state.cluster_state(self.nodes.values(), self._pods.values())

    def pod(self, uid: str) -> Pod:
        """Return a pod as accounting sees it."""
        return self._pods[uid]

    def waiting(self) -> list[str]:
        """Return the UIDs of pods that are to be scheduled."""
        return [uid for uid, obj in self.objects.items() if is_waiting(obj)]

    def placed_alive(self) -> list[str]:
        """Return the UIDs of pods on nodes that neither end nor are being deleted."""
        return [
            uid
            for uid, obj in self.objects.items()
            if obj["spec"].get("nodeName") and not obj["metadata"].get("deletionTimestamp")
        ]

    def _take(self, kind: str, obj: Json) -> None:
        if kind == "ERROR":
            raise Violation(f"the independent watch failed: {obj}")
        uid = obj["metadata"]["uid"]
        node = obj["spec"].get("nodeName")
        if kind == "DELETED":
            self.objects.pop(uid, None)
            self._pods.pop(uid, None)
            for uids in self._on.values():
                uids.discard(uid)
            return
        self.objects[uid], self._pods[uid] = obj, read_pod(obj)
        if node:
            self._on[node].add(uid)
            self._check_binding(uid, node, obj)
            self._check_node(node)
        elif uid in self.bound:
            raise Violation(f"pod {uid} left its node {self.bound[uid][0]}")

    def _check_binding(self, uid: str, node: str, obj: Json) -> None:
        """Check that a pod is bound once, with the cards that it asked for, and keeps them."""
        now = node, (obj["metadata"].get("annotations") or {}).get(ALLOCATED, "")
        before = self.bound.setdefault(uid, now)
        if before != now:
            raise Violation(f"pod {uid} was bound as {before} and is now {now}")
        pod, node_cards = self._pods[uid], {device.uuid for device in self.nodes[node].devices}
        if not isinstance(pod.allocation, tuple):
            raise Violation(f"pod {pod.key} is on node {node} without readable cards: {now[1]!r}")
        for container, rows in zip(pod.containers, pod.allocation, strict=True):
            asked = container.request
            wanted = [] if asked is None else [(asked.memory, asked.cores)] * asked.count
            uuids = {row.uuid for row in rows}
            if [(row.memory, row.cores) for row in rows] != wanted or len(uuids) != len(rows) or uuids - node_cards:
                raise Violation(f"pod {pod.key} container {container.name} on {node} holds {rows} for {asked}")

    def _check_node(self, name: str) -> None:
        pods = [pod for uid in self._on[name] if not (pod := self._pods[uid]).terminal]
        state = reference_state.node_state(self.nodes[name], pods)
        over = {uuid: (card.requested, card.capacity) for uuid, card in state.cards.items() if card.overcommitted}
        if over:
            raise Violation(f"node {name} is over-committed: {over}")
        limit = self.nodes[name].count_allocatable
        if limit is not None and state.requested_count > limit:
            raise Violation(f"node {name} has {state.requested_count} of {limit} cards requested by count")


def is_waiting(obj: Json) -> bool:
    """Whether kube-scheduler has to find a node for a pod."""
    ended = obj.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not (obj["spec"].get("nodeName") or obj["metadata"].get("deletionTimestamp") or ended)
