"""kube-scheduler in a run under faults: one cycle after another, with whichever replica answers.

It exists because every activity places pods. It must not know what goes wrong. Invariant: after each cycle no card is
over-committed.
"""

from random import Random

import aiohttp

from tests.extender.objects import Json, pod
from tests.live.fault_locks import locks
from tests.live.fault_world import PATIENCE_SECONDS, World, now
from tests.live.harness import Extender
from tests.live.harness_scheduler import Scheduler
from tests.virtual_time import passes

_ASKED_AGAIN_SECONDS = 1.0
#: A Lease is renewed at such intervals.
_RENEWAL_SECONDS = 15.0
_NOBODY_LEADS = ("NotLeader", "not ready")


class Cycles:
    """The scheduler of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Draws of its own, because how often it is asked depends on the moments.
        self._choice_of_node = Random(world.outcome.seed)

    async def place(self, made: Json) -> None:
        """Place a pod as kube-scheduler does, again until it is bound."""
        name = made["metadata"]["name"]
        end = now() + PATIENCE_SECONDS
        while self._world.kube.node_of(name) is None:
            said = await self.once(self._world.kube.pod(name))
            self._world.must(now() < end, f"{name} is never bound: {said}")
            await passes(_ASKED_AGAIN_SECONDS)
        self._world.check()

    async def once(self, made: Json, *nodes: str) -> str:
        """Run one cycle; return why it ended without a bind, "" if it bound."""
        said = "nobody is ready"
        for one in list(self._world.replicas.values()):
            scheduler = Scheduler(one.session, self._world.kube, self._world.outcome.seed)
            try:
                filtered = await scheduler.filter(made, *nodes)
                said = filtered.error or str(filtered.failed)
                if filtered.passed:
                    said = await scheduler.bind(made, self._choice_of_node.choice(sorted(filtered.passed)))
            except (aiohttp.ClientError, RuntimeError) as error:
                # It was killed meanwhile.
                said = str(error) or type(error).__name__
                continue
            if not filtered.error:
                break
        self._world.outcome.binds[said.partition(":")[0] or "bound"] += 1
        self._world.check()
        return said

    async def unlocked(self, leader: Extender) -> None:
        """Whether a lock that was left by a bind to another node keeps no pod away, and goes with the next one."""
        world = self._world
        for name in locks(world.api):
            made = world.kube.create(pod(f"after-{name}", memory=1))
            uid = made["metadata"]["uid"]
            await world.holds(
                lambda uid=uid: leader.live.cluster.pod(uid) is not None,  # type: ignore[misc]
                lambda: "the watch of pods",
            )
            end = now() + _RENEWAL_SECONDS
            # The leader may be between two renewals of its Lease; a lock would keep the pod away for much longer.
            while (said := await self.once(made, name)).startswith(_NOBODY_LEADS) and now() < end:
                await passes(_ASKED_AGAIN_SECONDS)
            world.must(not said, f"a lock that was left keeps others away: {said}")
        await world.holds(lambda: not locks(world.api), lambda: "a node stays locked")
