"""Bindings that a process before this one had sent when it died.

Why it exists: such a Binding may be carried out after this process has listed everything, and would then take cards
that were given to somebody else meanwhile. Where no lease tells when that is over, this does. It must not know cards.
Invariant: when it says that they are ruled out, every pod that was without a node has a newer version than any Binding
of an earlier process can name, or is seen on its node, so none of them can be accepted unseen.

A process reads a pod's version before it binds it, so no Binding of a process that was dead when a list began names a
newer version than that list shows. One PATCH per waiting pod moves it on. With very many waiting pods that takes
longer, and wakes more of them, than waiting as long as a write may take.
"""

import asyncio

from extender.cluster import Cluster
from extender.kube.events import PodRef
from extender.live.binding.reader import PodReader
from extender.logs import logger

#: Above that, waiting is better.
_MOST_PODS = 500
_AT_ONCE = 20
_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class LateBindings:
    """Of pods that were told of without a node."""

    def __init__(self, cluster: Cluster, reader: PodReader) -> None:
        self._cluster = cluster
        self._reader = reader

    async def rule_out(self, seconds: float) -> bool:
        """Move every waiting pod on, right after a list; returns whether that was done within the time."""
        versions = self._waiting()
        if len(versions) > _MOST_PODS:
            return False
        turns = asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for uid, version in versions.items():
                    group.create_task(self._move_on(uid, version, turns))
        except TimeoutError:
            return False
        logger().info("earlier Bindings are ruled out", pods=len(versions))
        return True

    def _waiting(self) -> dict[str, str]:
        """Return pod UID -> the version that the list showed."""
        unbound = self._cluster.registry.unbound()
        return {uid: facts.resource_version for uid, facts in unbound if not facts.deleting}

    async def _move_on(self, uid: str, version: str, turns: asyncio.Semaphore) -> None:
        """Try until the pod has another version, is bound or gone. Each of these shows in its version."""
        async with turns:
            while self._reader.version(uid) == version:
                pod = self._cluster.pod(uid)
                if pod is None:
                    return
                ref = PodRef(pod.namespace, pod.name, uid)
                if not await self._reader.move_on(ref, version, _REQUEST_SECONDS):
                    await asyncio.sleep(_PAUSE_SECONDS)
