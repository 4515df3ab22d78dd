"""Ruling out Bindings that an earlier process had sent when it died.

Why it exists: such a Binding may be carried out after this process has listed everything, and would then take cards
that another pod got meanwhile. This rules it out where no lease shows when that is no longer possible. It must not know
cards. Invariant: once it reports success, every pod that was without a node is on its node, or has a newer version than
any Binding of an earlier process can name; so no such Binding can be accepted unseen.

A process reads a pod's version before it binds it, so no Binding of a process that was dead when a list began names a
newer version than that list shows. One PATCH per waiting pod changes its version. With very many waiting pods it is
faster, and wakes fewer of them, to wait for as long as a write may take.
"""

import asyncio

from extender.cluster import Cluster
from extender.kube.events import PodRef
from extender.live.binding.reader import PodReader
from extender.logs import logger

#: With more waiting pods than this, waiting is better.
_MOST_PODS = 500
_AT_ONCE = 20
_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class LateBindings:
    """Rules out late Bindings of pods without a node."""

    def __init__(self, cluster: Cluster, reader: PodReader) -> None:
        self._cluster = cluster
        self._reader = reader

    async def rule_out(self, seconds: float) -> bool:
        """Change the version of every waiting pod, right after a list; returns whether that was done in time."""
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
        """Try until the pod has another version, is bound or is gone; its version shows each of these."""
        async with turns:
            while self._reader.version(uid) == version:
                pod = self._cluster.pod(uid)
                if pod is None:
                    return
                ref = PodRef(pod.namespace, pod.name, uid)
                if not await self._reader.move_on(ref, version, _REQUEST_SECONDS):
                    await asyncio.sleep(_PAUSE_SECONDS)
