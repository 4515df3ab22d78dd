"""One seeded run of two replicas under faults, in virtual time: pods must be placed while everything goes wrong.

It exists because nobody writes a story of several faults at once. It must not look into a replica except for what it
counts at the end. Invariants: what happens follows from the seed, its moments may differ between plays; no harm is one
that a lease cannot fence (see `fault_harms`), so any over-committed card is a bug.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

import aiohttp

from extender.live.waking import waker
from tests.apiserver.beside import Beside
from tests.apiserver.kubelets import Kubelets
from tests.apiserver.node_actor import NodeActor
from tests.apiserver.server import ApiServer
from tests.extender.objects import pod
from tests.live.fault_admission import Team
from tests.live.fault_certificates import CertificateChange, Webhooks
from tests.live.fault_cycles import Cycles
from tests.live.fault_harms import Harms
from tests.live.fault_preemption import Preemption
from tests.live.fault_world import Activity, Outcome, Violation, World, now
from tests.virtual_time import VirtualTimeLoop, passes

__all__ = ["ACTIVITIES", "Outcome", "Violation", "run"]

#: What some runs do beside binding and watching, each in such a share of them.
ACTIVITIES = ("admission", "preemption", "certificate change")
_SHARE = 0.25
_PODS = 4
#: How often a replica checks whether it leads decides only how long a run takes.
_LOOKS = mock.patch.object(waker, "_LOOK_SECONDS", (1.0, 5.0))


async def run(seed: int) -> Outcome:
    """Run once. Raises Violation."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.is_alone = True
    with _LOOKS:
        return await _run(seed)


async def _run(seed: int) -> Outcome:
    async with ApiServer(seed=seed, history_limit=200) as api:
        trial = _Trial(World(api, seed))
        async with AsyncExitStack() as stack:
            await trial.begin(stack)
            await trial.play()
            await trial.settle()
        return trial.world.outcome


class _Trial:
    def __init__(self, world: World) -> None:
        self.world = world
        self._harms, self._cycles = Harms(world), Cycles(world)
        self._webhooks: Webhooks | None = None
        self._activities: list[Activity] = []
        self._began = now()

    async def begin(self, stack: AsyncExitStack) -> None:
        """Start both replicas and all kubelets."""
        world = self.world
        stack.callback(world.audit.close)
        stack.push_async_callback(world.end)
        await self._prepare(stack)
        for name in ("a", "b"):
            await world.boot(name)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(world.api.url, headers={"User-Agent": "kubelets"}, read_bufsize=2**22)
        )
        beside = await stack.enter_async_context(Beside())
        beside.start(Kubelets(NodeActor(session)).follow())
        for name in world.volumes:
            assert self._webhooks is not None
            beside.start(self._webhooks.follow(name))

    async def _prepare(self, stack: AsyncExitStack) -> None:
        """Choose what the run does beside binding and watching, and make what that needs."""
        # Draws of their own, so that which activities a run has does not move its other choices.
        seed = self.world.outcome.seed
        chosen = {name for name in ACTIVITIES if Random(f"{seed} {name}").random() < _SHARE}
        if chosen & {"admission", "certificate change"}:
            folder = stack.enter_context(TemporaryDirectory(prefix="gpu-extender-run-"))
            self._webhooks = Webhooks(self.world, Path(folder))
            await self._webhooks.begin()
            if "admission" in chosen:
                self._activities.append(Team(self.world, self._webhooks, self._cycles, self._harms))
            if "certificate change" in chosen:
                self._activities.append(CertificateChange(self.world, self._webhooks, self._harms))
        if "preemption" in chosen:
            self._activities.append(Preemption(self.world, self._cycles, self._harms))
        for each in self._activities:
            await each.begin()

    async def play(self) -> None:
        """Create, place and end pods while faults go on."""
        kube, chance = self.world.kube, self.world.chance
        for number in range(_PODS):
            made = kube.create(pod(f"p{number}", memory=chance.choice((200, 300, 500))))
            placing = asyncio.create_task(self._cycles.once(made))
            await asyncio.sleep(0)
            await self._harms.any()
            await placing
            if number % 3 == 2:
                kube.delete_pod(f"p{number - 2}")
            await passes(chance.choice((0.0, 0.1, 3.0, 8.0)))
        for each in self._activities:
            await each.play()

    async def settle(self) -> None:
        """End all faults; check that every pod gets its cards, and that all agree on who holds what."""
        world = self.world
        world.outcome.hits = sum(rule.hits for rule in world.api.faults)
        world.api.faults.clear()
        world.list_again()
        await world.leader()
        # Whoever has filled all cards lets them go first.
        for each in reversed(self._activities):
            await each.settle()
        for made in world.kube.pods():
            await self._cycles.place(made)
        leader = await world.leader()
        await self._cycles.unlocked(leader)
        await world.agrees(leader)
        world.outcome.seconds = now() - self._began
