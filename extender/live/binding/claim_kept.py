"""The claim of a pod whose bind waits for its node's lock.

Why it exists: a claim ends by age, because kube-scheduler may have chosen another node, or given up. Of a bind that
waits it is known where the pod goes, and with HAMi's lock it may wait for many seconds. Without its claim filter sends
more pods to the node than fit there, and each of them waits for the lock only to be refused. It must not book anything.
Invariant: while a bind waits, its pod has a claim on that node if it would fit there, and as before one at most.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from accounting.answers import claim_on
from accounting.pod import Pod
from extender.cluster import Cluster


@asynccontextmanager
async def claim_kept(cluster: Cluster, pod: Pod, node: str) -> AsyncIterator[None]:
    """Keep a pod's claim on a node young."""
    renewing = asyncio.get_running_loop().create_task(_renew(cluster, pod, node))
    try:
        yield
    finally:
        renewing.cancel()


async def _renew(cluster: Cluster, pod: Pod, node: str) -> None:
    while cluster.registry.claims is not None and cluster.cache.state(pod.uid) is None:
        known = cluster.registry.claims.get(pod.uid)
        claim = (
            known
            if known is not None and known.node == node
            else (claim_on(cluster.cache, cluster.cache.snapshot(), pod, node, cluster.registry.claims))
        )
        if claim is not None:
            cluster.registry.claim(pod.uid, claim, asyncio.get_running_loop().time())
        await asyncio.sleep(cluster.registry.claims.max_age_seconds / 2)
