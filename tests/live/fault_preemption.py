"""A pod of high priority that arrives when all cards are taken, as kube-scheduler treats it.

It exists because a preemption is several steps, and a fault can come between any two. It must not choose victims.
Invariant: what is deleted was named by an answer to /preempt, and had a lower priority.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import aiohttp

from tests.extender.objects import Json, pod
from tests.live.harness import Kube
from tests.live.harness_scheduler import Scheduler

HIGH, PREEMPTOR, FILLERS = 1000, "preemptor", "filler"


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
