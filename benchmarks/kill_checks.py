"""What must hold after a restart and at the end of a kill -9 run.

It exists because only a comparison with the API objects can show that nothing went wrong. It must not change anything.
Invariant: every failed check is a `Violation` with the values that differ.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import aiohttp

from accounting.reference import fit as reference
from accounting.reference import state as reference_state
from accounting.status import Code
from benchmarks.kill_watcher import Violation, Watcher, read_node, read_pod

Json = dict[str, Any]

LOCK = "hami.io/mutex.lock"
_PAUSE_SECONDS = 0.05
_SETTLE_SECONDS = 10.0
_PLACED_SECONDS = 40.0
_LONGEST_TEXT = 800


async def check_state(extender: aiohttp.ClientSession, api: aiohttp.ClientSession) -> None:
    """Compare /api/v1/nodes with the state rebuilt from the API objects, once the last watch event has arrived."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _SETTLE_SECONDS
    while True:
        version = await _version(api)
        wanted, found = await _rebuilt(api), await _told(extender)
        if wanted == found:
            return
        if loop.time() > end and version == await _version(api):
            raise Violation(f"after a restart: {_difference(wanted, found)}")
        await asyncio.sleep(_PAUSE_SECONDS)


async def check_everybody_placed(watcher: Watcher, created: set[str], deleted: set[str]) -> int:
    """Wait until every pod is on a node or fits nowhere; returns how many fit nowhere."""
    lost = created - deleted - watcher.objects.keys()
    if lost:
        raise Violation(f"pods are lost: {sorted(lost)}")
    loop = asyncio.get_running_loop()
    end = loop.time() + _PLACED_SECONDS
    while True:
        fitting = [watcher.pod(uid).key for uid in watcher.waiting() if _fits_somewhere(watcher, uid)]
        if not fitting:
            return len(watcher.waiting())
        if loop.time() > end:
            raise Violation(f"pods that fit are not scheduled: {fitting}")
        await asyncio.sleep(0.2)


async def check_locks(
    api: aiohttp.ClientSession, watcher: Watcher, kills: list[float], longest_bind_seconds: float, *, quiet: bool
) -> int:
    """Check that only a killed process left locks of pods that are not on the node; returns how many there are.

    `quiet`: the device plugins have nothing to do, so no running pod may hold a lock. A fault counts only if it stays:
    a bind may be under way.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _SETTLE_SECONDS
    while True:
        left, wrong = 0, ""
        for name, text in (await locks(api)).items():
            since, namespace, owner = text.split(",")
            pod = next((obj for obj in watcher.objects.values() if obj["metadata"]["name"] == owner), None)
            if pod is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue  # stale at once: no bind waits for it
            moment = datetime.fromisoformat(since).timestamp()
            if pod["spec"].get("nodeName") == name:
                wrong = f"node {name} is still locked by {namespace}/{owner}, which runs there" if quiet else wrong
            elif any(-1 <= kill - moment <= longest_bind_seconds + 1 for kill in kills):
                left += 1
            else:
                wrong = f"node {name} is locked by {namespace}/{owner}, and no process was killed: {text}"
        if not wrong:
            return left
        if loop.time() > end:
            raise Violation(wrong)
        await asyncio.sleep(_PAUSE_SECONDS)


async def check_unlocked(api: aiohttp.ClientSession, node: str) -> None:
    """Wait until a node's device plugin has given the lock back."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _SETTLE_SECONDS
    while node in await locks(api):
        if loop.time() > end:
            raise Violation(f"node {node} is not unlocked")
        await asyncio.sleep(_PAUSE_SECONDS)


async def locks(api: aiohttp.ClientSession) -> dict[str, str]:
    """Return node -> its lock."""
    annotations = {
        node["metadata"]["name"]: node["metadata"].get("annotations") or {} for node in await _list(api, "nodes")
    }
    return {name: found[LOCK] for name, found in annotations.items() if found.get(LOCK)}


def _fits_somewhere(watcher: Watcher, uid: str) -> bool:
    pod = watcher.pod(uid)
    return any(not isinstance(reference.fit(state, pod), Code) for state in watcher.state().values())


async def _rebuilt(api: aiohttp.ClientSession) -> dict[str, dict[str, Json]]:
    nodes, pods = await _list(api, "nodes"), await _list(api, "pods")
    states = reference_state.cluster_state(map(read_node, nodes), map(read_pod, pods))
    return {
        name: {
            uuid: {
                "capacity": card.capacity._asdict(),
                "requested": card.requested._asdict(),
                "overcommitted": card.overcommitted,
                "exclusive": card.exclusive,
                "blocked": card.blocked,
            }
            for uuid, card in state.cards.items()
        }
        for name, state in states.items()
    }


async def _told(extender: aiohttp.ClientSession) -> dict[str, dict[str, Json]]:
    async with extender.get("/api/v1/nodes") as response:
        nodes = await response.json()
    keys = ("capacity", "requested", "overcommitted", "exclusive")
    return {
        node["node"]: {
            card["uuid"]: {key: card[key] for key in keys} | {"blocked": bool(card["blocked"])}
            for card in node["devices"]
        }
        for node in nodes
    }


def _difference(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    for name in sorted({*wanted, *found}):
        one, other = wanted.get(name), found.get(name)
        if one != other:
            if isinstance(one, dict) and isinstance(other, dict) and not name.startswith("GPU"):
                return f"{name}: {_difference(one, other)}"
            return f"{name}: {str(one)[:_LONGEST_TEXT]} by the API objects, {str(other)[:_LONGEST_TEXT]} in the cache"
    return "nothing"


async def _list(api: aiohttp.ClientSession, resource: str) -> list[Json]:
    async with api.get(f"/api/v1/{resource}") as response:
        items: list[Json] = (await response.json())["items"]
        return items


async def _version(api: aiohttp.ClientSession) -> int:
    async with api.get("/_test/state") as response:
        version: int = (await response.json())["version"]
        return version
