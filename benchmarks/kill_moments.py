"""The moments at which the extender is killed.

It exists because a moment between two steps of a bind is not hit by chance: the API server holds the step back, and
says when it does. It must not kill. Invariant: whatever was armed is disarmed before the next process asks.
"""

import asyncio
from random import Random
from typing import Any, NamedTuple

import aiohttp

Json = dict[str, Any]

_EXTENDER = "gpu-extender"
_POLL_SECONDS = 0.01


class Moment(NamedTuple):
    """A name, and the API server's rule that creates the moment; without a rule it is a random time."""

    name: str
    rule: Json | None = None
    only_locking: bool = False


_LOCK: Json = {"method": "PATCH", "resource": "nodes", "client": _EXTENDER}
_BINDING: Json = {"method": "POST", "resource": "pods/binding", "client": _EXTENDER}
_STATUS: Json = {"method": "PATCH", "resource": "pods/status"}
_DELETE: Json = {"method": "DELETE", "resource": "pods"}
_WATCH: Json = {"verb": "watch", "resource": "pods", "client": _EXTENDER}

MOMENTS = (
    Moment("any time"),
    Moment("assumed, lock never written", _LOCK | {"fault": "hang"}, only_locking=True),
    Moment("assumed, lock written later", _LOCK | {"fault": "latency", "seconds": 0.2}, only_locking=True),
    Moment("locked, Binding not sent", _LOCK | {"fault": "latency", "seconds": 0.3, "after": True}, only_locking=True),
    Moment("Binding never carried out", _BINDING | {"fault": "hang"}),
    Moment("Binding carried out later", _BINDING | {"fault": "latency", "seconds": 0.2}),
    Moment("Binding carried out much later", _BINDING | {"fault": "latency", "seconds": 1.5}),
    Moment("Binding accepted, not answered", _BINDING | {"fault": "latency", "seconds": 0.3, "after": True}),
    Moment("Binding answered 500 though accepted", _BINDING | {"fault": "status", "code": 500, "after": True}),
    Moment("Binding refused with 409", _BINDING | {"fault": "status", "code": 409}),
    Moment("bound, watch event late", _WATCH | {"fault": "delay", "event": "MODIFIED", "seconds": 0.5}),
    Moment("shrink", _STATUS | {"fault": "latency", "seconds": 0.02, "after": True}),
    Moment("delete", _DELETE | {"fault": "latency", "seconds": 0.02, "after": True}),
)

#: What an API server and a network do to one call in several dozen.
_NOW_AND_THEN: tuple[Json, ...] = (
    _BINDING | {"fault": "status", "code": 409, "probability": 0.03},
    _BINDING | {"fault": "status", "code": 500, "probability": 0.01, "after": True},
    _BINDING | {"fault": "reset", "probability": 0.01, "after": True},
    _LOCK | {"fault": "status", "code": 409, "probability": 0.02},
    _LOCK | {"fault": "reset", "probability": 0.01, "after": True},
)
_SLOW_LIST: Json = {
    "verb": "list",
    "resource": "pods",
    "client": _EXTENDER,
    "fault": "latency",
    "seconds": 1.0,
    "times": 1,
}


class Moments:
    """Chooses among the possible moments, each in turn, in a random order."""

    def __init__(self, rng: Random, *, locking: bool) -> None:
        self._rng = rng
        self._all = [moment for moment in MOMENTS if locking or not moment.only_locking]
        self._left: list[Moment] = []

    def next(self) -> Moment:
        """Return the next moment."""
        if not self._left:
            self._left = self._rng.sample(self._all, len(self._all))
        return self._left.pop()


async def await_moment(moment: Moment, api: aiohttp.ClientSession, rng: Random, longest_seconds: float) -> bool:
    """Wait for a moment, at most that long; returns whether it came. `disarm` must follow once the process is dead."""
    loop = asyncio.get_running_loop()
    if moment.rule is None:
        await asyncio.sleep(rng.uniform(0.0, longest_seconds / 4))
        return True
    rule = moment.rule | {"skip": rng.randrange(12), "times": rng.randint(1, 3)}
    async with api.post("/_test/faults", json=rule) as response:
        number = (await response.json())[0]["id"]
    end, hit = loop.time() + longest_seconds, False
    while loop.time() < end and not hit:
        await asyncio.sleep(_POLL_SECONDS)
        async with api.get("/_test/faults") as response:
            hit = any(known["hits"] > 0 and known["id"] == number for known in await response.json())
    # Sometimes the kill comes a little later, when more than one step is held back.
    await asyncio.sleep(rng.choice((0.0, 0.0, 0.02, 0.1)))
    return hit


async def disarm(api: aiohttp.ClientSession, *, slow_list: bool) -> None:
    """Remove what was armed; the faults of now and then stay.

    `slow_list`: the next process waits for its list of pods.
    """
    async with api.delete("/_test/faults") as response:
        response.raise_for_status()
    async with api.post("/_test/faults", json=[*_NOW_AND_THEN, *([_SLOW_LIST] if slow_list else ())]) as response:
        response.raise_for_status()
