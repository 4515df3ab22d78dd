"""The claim of a pod whose bind waits for its node's lock.

Why it exists: a claim ends by age, because kube-scheduler may have chosen another node or given up. While a bind waits,
which with HAMi's lock may take many seconds, it is known where the pod goes. Without the claim filter would send more
pods to the node than fit there, and each would wait for the lock only to be refused. It must not book anything.
Invariant: while a bind waits, its pod has a claim on that node if it would fit there, and never more than one claim.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from accounting.answers import claim_on
from accounting.pod import Pod
from extender.cluster import Cluster


@asynccontextmanager
async def claim_kept(cluster: Cluster, pod: Pod, node: str) -> AsyncIterator[None]:
    """Renew a pod's claim on a node until the block ends."""
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
