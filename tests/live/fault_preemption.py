"""A pod of high priority that arrives when all cards are taken, as kube-scheduler treats it.

It exists because a preemption is several steps, and a fault can come between any two. It must not choose victims.
Invariant: what is deleted was named by an answer to /preempt, and had a lower priority.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

import aiohttp

from tests.extender.objects import Json, pod
from tests.live.fault_cycles import Cycles
from tests.live.fault_harms import Harms
from tests.live.fault_world import CARDS, HOSTS, MEMORY, PATIENCE_SECONDS, World, now
from tests.live.harness import Kube
from tests.live.harness_scheduler import Scheduler
from tests.virtual_time import passes

HIGH, PREEMPTOR, FILLERS = 1000, "preemptor", "filler"


class Preemption:
    """One pod of high priority."""

    def __init__(self, world: World, cycles: Cycles, harms: Harms) -> None:
        self._world, self._cycles, self._harms = world, cycles, harms

    async def begin(self) -> None:
        """Nothing: the cards are filled when it arrives."""

    async def play(self) -> None:
        """Fill the cards, and let the pod arrive while something goes wrong."""
        kube = self._world.kube
        self._world.outcome.activities["preemption"] += 1
        for each in fillers(HOSTS, CARDS, MEMORY):
            made = kube.create(each)
            await self._cycles.once(made)
            if kube.node_of(made["metadata"]["name"]) is None:
                kube.delete_pod(made["metadata"]["name"])
        cycle = asyncio.create_task(self._once(kube.create(preemptor(MEMORY))))
        await asyncio.sleep(0)
        await self._harms.any()
        await cycle

    async def settle(self) -> None:
        """Get the pod bound while all cards are taken; then let the pods that fill them go."""
        kube, end = self._world.kube, now() + PATIENCE_SECONDS
        while kube.node_of(PREEMPTOR) is None:
            await self._once(kube.pod(PREEMPTOR))
            self._world.must(now() < end, "the preemptor is never bound")
            await passes(1.0)
        for name in [each["metadata"]["name"] for each in kube.pods()]:
            if name.startswith(FILLERS):
                kube.delete_pod(name)

    async def _once(self, made: Json) -> None:
        """Run one cycle; if no node takes the pod, let its victims go."""
        world = self._world
        if not await self._cycles.once(made):
            return
        for one in list(world.replicas.values()):
            try:
                victims = await victims_of(one, world.kube, made, HOSTS)
            except (aiohttp.ClientError, RuntimeError):
                # It was killed meanwhile.
                continue
            wrong = wrong_victims(victims, world.kube.pods())
            world.must(not wrong, f"victims: {wrong}")
            if victims:
                name = min(victims)
                world.outcome.activities["victims"] += evict(world.kube, name, victims[name])
                break
        await self._cycles.once(world.kube.pod(made["metadata"]["name"]))


class Replica(Protocol):
    """Whoever answers the verbs."""

    session: aiohttp.ClientSession


def fillers(hosts: Iterable[str], cards: int, memory: int) -> list[Json]:
    """Pods that take every card that is free as a whole."""
    return [pod(f"{FILLERS}-{host}-{card}", memory=memory) for host in hosts for card in range(cards)]


def preemptor(memory: int) -> Json:
    """The pod of high priority."""
    made = pod(PREEMPTOR, memory=memory)
    made["spec"]["priority"] = HIGH
    return made


async def victims_of(replica: Replica, kube: Kube, made: Json, hosts: Iterable[str]) -> dict[str, list[str]]:
    """Ask a replica whom to evict; return the UIDs of its victims by node, none if it cannot answer."""
    answer = await Scheduler(replica.session, kube).preempt(made, {name: [] for name in hosts})
    return {name: [each["UID"] for each in found["Pods"]] for name, found in (answer or {}).items()}


def wrong_victims(victims: Mapping[str, Iterable[str]], pods: Iterable[Json]) -> list[str]:
    """Return what is wrong with victims: one of the same or a higher priority, or on another node; none at all."""
    known = {each["metadata"]["uid"]: each for each in pods}
    wrong = [f"{name}: nobody" for name, uids in victims.items() if not list(uids)]
    for name, uids in victims.items():
        # A pod that is gone already frees what it held.
        for each in (known[uid] for uid in uids if uid in known):
            spec, text = each["spec"], each["metadata"]["name"]
            if spec.get("priority", 0) >= HIGH:
                wrong.append(f"{name}: {text} has priority {spec['priority']}")
            if spec.get("nodeName") != name:
                wrong.append(f"{name}: {text} is on {spec.get('nodeName')}")
    return wrong


def evict(kube: Kube, name: str, uids: Iterable[str]) -> int:
    """Delete victims and nominate the node, as kube-scheduler does; return how many pods went."""
    gone = set(uids)
    names = [each["metadata"]["name"] for each in kube.pods() if each["metadata"]["uid"] in gone]
    for each in names:
        kube.delete_pod(each)
    kube.set_status(PREEMPTOR, {"nominatedNodeName": name})
    return len(names)
