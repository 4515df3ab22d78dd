"""What the verbs of scenarios share: the cluster, the clock of a step, and waiting.

It exists so that verbs that do and verbs that expect stand apart. It must not have verbs. Invariant: an expectation has
at most `within` seconds of its step; a failure says what was found instead.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import aiohttp

from tests.e2e.audit import condition
from tests.e2e.language import Given, Scenario, card_uuid
from tests.e2e.processes import Child
from tests.e2e.world import NAMESPACE, Kube, World

Json = dict[str, Any]
_T = TypeVar("_T")
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUOTAS: Final = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
BUDGETS: Final = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
PRIORITIES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
WITHIN_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1


class Telling:
    """A scenario while it runs."""

    def __init__(self, scenario: Scenario, world: World) -> None:
        self._scenario = scenario
        self._world = world
        self._seconds = WITHIN_SECONDS
        self._step_began = 0.0
        self._created_at: dict[str, float] = {}
        self._uids: dict[str, str] = {}  # name -> UID of the pod that a step made last under it
        self._figures: Json = {}
        self._applied: list[Json] = []
        self._measuring: tuple[float, Json] = (0.0, {})
        self._deleted: set[str] = set()  # UIDs of pods that a step deleted before anybody else did
        self._victims: list[str] | None = None  # names of those that others should have had deleted so far

    @property
    def _kube(self) -> Kube:
        return self._world.kube

    def _child(self, what: str) -> Child:
        """One of the processes, as scenarios call them."""
        if what == "api server":
            return self._world.plane.api_server
        if what == "scheduler":
            assert self._world.plane.scheduler is not None
            return self._world.plane.scheduler
        word, _, number = what.partition(" ")
        assert word == "extender", what
        return self._world.extenders[int(number or 0)].child

    async def _create_pod(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        self._created_at[name] = time.monotonic()
        made = await self._kube.send("POST", PODS, pod)
        self._uids[name] = made["metadata"]["uid"]

    def _pod(self, name: str) -> Json:
        """Return the pod that a step made last under a name, else the pod that has it."""
        audit = self._world.audit
        found = audit.pods.get(self._uids[name]) if name in self._uids else audit.pod(name)
        return found or {"spec": {}, "metadata": {}}

    def _have_gone(self) -> list[str]:
        """Return the names of the pods that were deleted so far, but not by a step, sorted."""
        return sorted(name for uid, name in self._world.audit.went.items() if uid not in self._deleted)

    def _node(self, name: str) -> str | None:
        node: str | None = self._pod(name)["spec"].get("nodeName")
        return node

    async def _until(self, holds: Callable[[], object], what: str, found: Callable[[], object] = lambda: "") -> None:
        """Wait until something holds of the objects. Raises AssertionError."""
        try:
            await self._world.audit.until(holds, what, self._seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; {found()}") from None

    async def _poll(self, read: Callable[[], Awaitable[_T]], differs: Callable[[_T], str]) -> None:
        """Read until nothing differs. Raises AssertionError."""
        end, why = time.monotonic() + self._seconds, ""
        while True:
            try:
                why = differs(await read())
            except (aiohttp.ClientError, OSError) as error:
                why = f"nothing can be read: {error}"
            if not why:
                return
            assert time.monotonic() < end, f"not within {self._seconds:g} s: {why}"
            await asyncio.sleep(_POLL_SECONDS)

    async def _meters(self) -> Json:
        """What has been counted so far."""
        extender = self._world.extender
        calls = await extender.metric("gpu_extender_request_duration_seconds_count")
        remembered = await extender.metric("gpu_extender_answers_from_memory_total")
        return {
            "extender cpu seconds": extender.child.cpu_seconds(),
            "scheduler cpu seconds": self._child("scheduler").cpu_seconds(),
            "filter calls": sum(count for labels, count in calls.items() if 'verb="filter"' in labels),
            "answers from memory": sum(remembered.values()),
        }

    async def _condition(self, name: str, reason: str, text: str) -> None:
        def holds() -> bool:
            found = condition(self._pod(name))
            return found.get("reason") == reason and text in found.get("message", "")

        await self._until(holds, f"pod {name} is {reason} with {text!r}", lambda: condition(self._pod(name)))


def as_list(given: Given) -> list[Any]:
    """One or several."""
    return list(given) if isinstance(given, list | tuple) else [given]


def by_node(given: Given) -> dict[str, list[str]]:
    """UUIDs of cards by their node."""
    found: dict[str, list[str]] = {}
    for name, uuid in map(card_uuid, as_list(given)):
        found.setdefault(name, []).append(uuid)
    return found


def without(given: Mapping[str, Any], keys: Iterable[str]) -> Json:
    """A mapping without what is not the pod's."""
    return {key: value for key, value in given.items() if key not in set(keys)}
