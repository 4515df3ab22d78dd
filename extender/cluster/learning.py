"""Learning what workload to expect, in the background.

Why it exists: building tables takes seconds, and kube-scheduler waits for milliseconds only. It must not place
anything. Invariants: the event loop only decides that learning is due, and takes the finished workload in one step; a
given workload is kept, and built again only for other kinds of cards. The journal says from when on each workload
applied, so a replay needs no clock.

The mix is learned again after 20, 40, 80, ... pods, then after every 1,500. Measured on the openb traces: starting to
look ahead only after hundreds of pods loses points for good, because the first pods fill the nodes with few CPUs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from accounting.packing.mix import Mix, expected
from accounting.packing.shape import Shape, shape_of
from accounting.packing.workload import Plan, Workload, build_workload, plan_of
from accounting.pod import Pod
from extender.cluster.cluster import Cluster
from extender.logs import logger

FIRST_AFTER, EVERY = 20, 1500
_LOOK_SECONDS = 1.0


class Learner:
    """Learns one cluster's expected workload. `given`: pods that show what to expect; None: learn from arrivals."""

    def __init__(self, cluster: Cluster, given: Sequence[Pod] | None = None) -> None:
        self._cluster = cluster
        self._given = None if given is None else [shape_of(pod) for pod in given if not pod.invalid]
        self._due_at = FIRST_AFTER
        self._plan = Plan()
        self._plan_of: int | None = None  # the generation of the nodes for which the plan was made

    def learn_now(self) -> None:
        """Build and use a workload now, however long that takes."""
        self._cluster.expect(build_workload(*self._wanted()))
        self._took()

    def is_due(self) -> bool:
        """Whether to build a workload: a policy that looks ahead is in use, and there is none or an outdated one."""
        if not (self._cluster.settings.policies.node.looks_ahead or self._cluster.packing.asked):
            return False
        known = self._cluster.packing.workload
        if known is None:
            return self._given is not None or self._cluster.arrivals.count >= self._due_at
        is_stale = self._given is None and self._cluster.arrivals.count >= self._due_at
        return is_stale or known.plan != self._current_plan()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Learn in the background until cancelled."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if self.is_due():
                    await self._learn()
            except Exception:  # noqa: BLE001 - what was learned before stays in use; the next attempt may succeed
                logger().exception("expected workload not learned")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _learn(self) -> None:
        started = time.monotonic()
        mix, plan = self._wanted()
        workload: Workload = await asyncio.to_thread(build_workload, mix, plan)
        self._cluster.expect(workload)
        self._took()
        logger().info("expected workload learned", shapes=len(mix), seconds=round(time.monotonic() - started, 2))

    def _took(self) -> None:
        arrivals = self._cluster.arrivals.count
        while self._due_at <= arrivals:
            self._due_at += min(self._due_at, EVERY)

    def _wanted(self) -> tuple[Mix, Plan]:
        plan = self._current_plan()
        return expected(self._shapes(), plan.usual_memory), plan

    def _shapes(self) -> list[Shape]:
        return self._given if self._given is not None else [shape_of(asked) for asked in self._cluster.arrivals.last]

    def _current_plan(self) -> Plan:
        snapshot = self._cluster.cache.snapshot()
        if self._plan_of != snapshot.node_generation:
            self._plan, self._plan_of = plan_of(snapshot), snapshot.node_generation
        return self._plan
