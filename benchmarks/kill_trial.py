"""One kill -9 run: hundreds of pods come, run, shrink, end and are deleted while the extender dies again and again.

It exists because what a restart must not lose is spread over the objects of the API server, and only a whole cluster in
motion puts it there. It must not look inside the extender. Invariant: the API server, the kubelets and kube-scheduler
outlive every kill; only while a state is compared does the world stand still.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from accounting.reference import fit as reference
from accounting.status import Code
from benchmarks import kill_workload as workload
from benchmarks.kill_checks import check_everybody_placed, check_locks, check_state, check_unlocked, locks
from benchmarks.kill_moments import Moment, Moments, await_moment, disarm
from benchmarks.kill_process import Extender, Gate
from benchmarks.kill_scheduler import Scheduler
from benchmarks.kill_watcher import Violation, Watcher
from benchmarks.processes import running
from tests.apiserver.kubelets import Kubelets
from tests.apiserver.node_actor import NodeActor

Json = dict[str, Any]

_MOMENT_SECONDS = 2.0
_POD_SECONDS = 0.004  # between two pods of a burst
_DELETE_SECONDS = 0.05
_DELETED_SHARE = 0.25
_RUN_SECONDS = 1.0
_LEASE = ("--leader-elect", "--lease-duration", "2", "--lease-retry", "0.3")
_HTTP_TIMEOUT_SECONDS = 1.0
_LOGGED_FAILURES = ("Traceback", "verb failed", "cannot be taken", "reflector failed", "over-committed")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run."""

    seed: str
    points: int = 10
    pods: int = 500
    nodes: int = 20
    locking: bool = True
    elect_every: int = 3
    """One process in this many elects a leader, beginning with the second."""
    journal: Path | None = None


@dataclass(slots=True)
class Outcome:
    """What a run has seen, so far or in the end."""

    events: int = 0
    bound: int = 0
    deleted: int = 0
    unschedulable: int = 0
    filters: int = 0
    failed_binds: int = 0
    unanswered_calls: int = 0
    locks_left_by_kills: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    moments: dict[str, int] = field(default_factory=dict)
    missed_moments: int = 0
    """Moments that did not come in time; the kill came all the same."""
    restart_seconds: list[float] = field(default_factory=list)
    violation: str | None = None
    where: str = ""
    """The point at which the violation happened."""


def run(settings: Settings, directory: Path, on_point: Callable[[], None] = lambda: None) -> Outcome:
    """Run once. `directory` gets the kubeconfig and the log."""
    kubeconfig = directory / "kubeconfig"
    with running(["tests.apiserver", "--port", "0", "--kubeconfig", str(kubeconfig)]) as server:
        url = f"http://{server.address.host}:{server.address.port}"
        return asyncio.run(_Trial(settings, directory, on_point).run(url))


class _Trial:
    def __init__(self, settings: Settings, directory: Path, on_point: Callable[[], None]) -> None:
        self._settings = settings
        self._rng = Random(settings.seed)
        self._outcome = Outcome()
        self._on_point = on_point
        self._log = directory / "extender.log"
        mode = ["--lock-mode", "hami" if settings.locking else "none", "--http-timeout", str(_HTTP_TIMEOUT_SECONDS)]
        journal = [] if settings.journal is None else ["--journal", str(settings.journal)]
        self._extender = Extender(directory / "kubeconfig", self._log, [*mode, *journal])
        self._moments = Moments(Random(self._rng.random()), locking=settings.locking)
        self._gate = Gate()
        self._created: set[str] = set()
        self._deleted: set[str] = set()
        self._number = self._starts = 0

    async def run(self, url: str) -> Outcome:
        """Run; returns the outcome, which names the first violation."""
        async with contextlib.AsyncExitStack() as stack:
            self._api = await stack.enter_async_context(self._gate.session(url))
            self._control = await stack.enter_async_context(aiohttp.ClientSession(url, read_bufsize=2**22))
            self._verbs = await stack.enter_async_context(self._gate.session(self._extender.url, _HTTP_TIMEOUT_SECONDS))
            self._asking = await stack.enter_async_context(aiohttp.ClientSession(self._extender.url))
            stack.push_async_callback(self._extender.kill)
            nodes = [workload.node(number) for number in range(self._settings.nodes)]
            for node in nodes:
                await _post(self._api, "/api/v1/nodes", node)
            self._watcher = Watcher(self._control, nodes)
            self._scheduler = Scheduler(self._verbs, self._control, self._watcher, Random(self._rng.random()))
            try:
                await self._live()
            except* (Violation, RuntimeError) as group:
                self._outcome.violation = "; ".join(dict.fromkeys(map(str, _leaves(group))))
        self._sum_up()
        return self._outcome

    async def _live(self) -> None:
        self._outcome.where = "the first start"
        async with asyncio.TaskGroup() as world:
            scheduling = world.create_task(self._scheduler.run())
            others = [
                world.create_task(self._watcher.follow()),
                world.create_task(Kubelets(NodeActor(self._api), _RUN_SECONDS).follow()),
            ]
            await disarm(self._control, slow_list=False)
            await self._start()
            await self._extender.ready(self._asking)
            deleting = world.create_task(self._delete())
            bursts = self._bursts()
            creating = world.create_task(self._create(next(bursts)))
            for point, burst in enumerate(bursts, 1):
                await self._point(point)
                await creating
                creating = world.create_task(self._create(burst))
                self._on_point()
            await creating
            deleting.cancel()
            await self._end(scheduling)
            for task in (scheduling, *others):
                task.cancel()

    def _bursts(self) -> Iterator[int]:
        """Yield how many pods come in each burst, in equal parts: one burst at the start and one after each kill."""
        parts = self._settings.points + 1
        for part in range(parts):
            yield self._settings.pods * (part + 1) // parts - self._settings.pods * part // parts

    # -- one kill -------------------------------------------------------------------------------------------------

    async def _point(self, point: int) -> None:
        moment = self._moments.next()
        self._outcome.where = f"point {point} ({moment.name})"
        await self._kill_at(moment)
        await self._start()
        await self._extender.ready(self._asking)
        # What it does next shows whether it was right to be ready.
        await asyncio.sleep(self._rng.choice((0.0, 0.4)))
        async with self._gate.closed():
            await check_state(self._asking, self._control)
            kills = self._extender.kills
            await check_locks(self._control, self._watcher, kills, _HTTP_TIMEOUT_SECONDS, quiet=False)

    async def _kill_at(self, moment: Moment) -> None:
        hit = await await_moment(moment, self._control, self._rng, _MOMENT_SECONDS)
        await self._extender.kill()
        await disarm(self._control, slow_list=self._rng.random() < 0.4)
        self._outcome.moments[moment.name] = self._outcome.moments.get(moment.name, 0) + 1
        self._outcome.missed_moments += not hit

    async def _start(self) -> None:
        election = _LEASE if self._next_elects() else ("--no-leader-elect",)
        claims = () if self._rng.random() < 0.8 else ("--no-claims",)
        self._starts += 1
        await self._extender.start(*election, *claims)

    def _next_elects(self) -> bool:
        return (self._starts - 1) % self._settings.elect_every == 0

    # -- the world ------------------------------------------------------------------------------------------------

    async def _create(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            await self._create_pod(workload.pod(self._rng, self._number))
            await asyncio.sleep(self._rng.expovariate(1 / _POD_SECONDS))

    async def _create_pod(self, pod: Json) -> Json:
        made = await _post(self._api, f"/api/v1/namespaces/{workload.NAMESPACE}/pods", pod)
        self._created.add(made["metadata"]["uid"])
        return made

    async def _delete(self) -> None:
        """Delete pods here and there: mostly placed ones, some waiting ones."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / _DELETE_SECONDS))
            waits = self._rng.random() < 0.2
            uids = self._watcher.waiting() if waits else self._watcher.placed_alive()
            if uids and len(self._deleted) < _DELETED_SHARE * len(self._created):
                uid = self._rng.choice(uids)
                self._deleted.add(uid)
                meta = self._watcher.objects[uid]["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                async with self._api.delete(path, json={"preconditions": {"uid": uid}}) as response:
                    if response.status not in (200, 202, 404, 409):
                        raise Violation(f"pod {meta['name']} cannot be deleted: {await response.text()}")

    # -- the end --------------------------------------------------------------------------------------------------

    async def _end(self, scheduling: asyncio.Task[None]) -> None:
        self._outcome.where = "the end"
        await self._world_is_quiet()
        watcher, kills = self._watcher, self._extender.kills
        self._outcome.locks_left_by_kills = await check_locks(
            self._control, watcher, kills, _HTTP_TIMEOUT_SECONDS, quiet=True
        )
        self._outcome.unschedulable = await check_everybody_placed(watcher, self._created, self._deleted)
        await self._world_is_quiet()
        async with self._gate.closed():
            await check_state(self._asking, self._control)
        scheduling.cancel()
        await self._probe()
        await self._check_log()

    async def _world_is_quiet(self) -> None:
        """Wait until neither kubelets nor kube-scheduler have anything to do."""
        seen = -1
        while seen != self._watcher.events:
            seen = self._watcher.events
            await asyncio.sleep(_RUN_SECONDS / 2)

    async def _probe(self) -> None:
        """Check that a node that a killed process left locked takes a pod, if it has room, and is then unlocked."""
        for name in await locks(self._control):
            made = await self._create_pod(workload.small_pod(f"probe-{name}"))
            await self._watcher.has_seen(made["metadata"]["uid"])
            if isinstance(reference.fit(self._watcher.state()[name], self._watcher.pod(made["metadata"]["uid"])), Code):
                continue
            error = await self._scheduler.bind(made, name)
            if error:
                raise Violation(f"node {name} stays locked: {error}")
            await check_unlocked(self._control, name)

    async def _check_log(self) -> None:
        lines = self._log.read_text(errors="replace").splitlines()
        for line in lines:
            if any(text in line for text in _LOGGED_FAILURES):
                raise Violation(f"logged: {line[:2000]}")

    def _sum_up(self) -> None:
        outcome, scheduler = self._outcome, self._scheduler
        outcome.events, outcome.deleted = self._watcher.events, len(self._deleted)
        outcome.bound = len(self._watcher.bound)
        outcome.filters, outcome.failed_binds = scheduler.filtered, scheduler.failed_binds
        outcome.unanswered_calls, outcome.errors = scheduler.unanswered, scheduler.errors
        outcome.restart_seconds = self._extender.restart_seconds


async def _post(api: aiohttp.ClientSession, path: str, body: Json) -> Json:
    async with api.post(path, json=body) as response:
        made: Json = await response.json()
        if response.status != 201:
            raise RuntimeError(f"POST {path}: {made}")
        return made


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for error in group.exceptions:
        yield from _leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)
