"""One seeded run of two replicas under faults, in virtual time: pods must be placed while everything goes wrong.

It exists because nobody writes a story of several faults at once. It must not look into a replica except for what it
counts at the end. Invariants: everything follows from the seed; it causes no fault that a lease cannot fence (a write
that is delivered after its deadline), so any over-committed card is a bug.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

import aiohttp

from extender.convert.annotations import NODE_LOCK
from extender.journal.journal import FileJournal
from extender.live.binding.attempt import BindSettings
from extender.live.leading.lease import LeaseSettings
from extender.live.settings import LiveSettings
from extender.live.waking import waker
from tests.apiserver.beside import Beside
from tests.apiserver.kubelets import Kubelets
from tests.apiserver.node_actor import NodeActor
from tests.apiserver.resources import NODES
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json, node, pod
from tests.live.fault_preemption import FILLERS, PREEMPTOR, evict, fillers, preemptor, victims_of, wrong_victims
from tests.live.harness import Extender, Kube, eventually
from tests.live.harness_audit import Audit
from tests.live.harness_scheduler import Scheduler
from tests.live.leader_harness import delete_lease, lease_of, write_lease
from tests.virtual_time import VirtualTimeLoop, passes, stall

PODS, CARDS, MEMORY = 4, 2, 1000
HOSTS = ("n1", "n2", "n3")
#: Virtual seconds: twice the sum of the longest waits in a row, for a lease, a write's deadline and a stale node lock.
PATIENCE_SECONDS = 1200.0
_TARGETS = ("pods/binding", "pods", "nodes", "leases", "*")
_CODES = (403, 409, 410, 429, 500, 503)
_ASKED_AGAIN_SECONDS = 1.0
_FULL_SHARE = 0.1
_PREEMPT_SHARE = 0.5
_BIND_SECONDS = 10.0
#: A new leader rules late Bindings out, or waits until none can come.
_LEASES = tuple(
    LeaseSettings(duration_seconds=15.0, retry_seconds=5.0, write_deadline_seconds=deadline)
    for deadline in (0.0, _BIND_SECONDS)
)
#: How often a replica checks whether it leads decides only how long a run takes.
_LOOKS = mock.patch.object(waker, "_LOOK_SECONDS", (1.0, 5.0))
#: Kubelets suffer no faults: nothing could make up for steps that they never do.
_KUBELETS, _REPLICAS = "kubelets", "gpu-extender"


class Violation(AssertionError):
    """Something was lost, or given out twice."""


@dataclass
class Outcome:
    """What a run saw."""

    seed: int
    harms: Counter[str] = field(default_factory=Counter)
    binds: Counter[str] = field(default_factory=Counter)
    activities: Counter[str] = field(default_factory=Counter)
    """What the run did beside binding and watching, and how many victims went."""
    hits: int = 0
    """How many requests and events a rule has harmed."""
    seconds: float = 0.0
    """Seconds of virtual time."""


async def run(seed: int) -> Outcome:
    """Run once. Raises Violation."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.is_alone = True
    with _LOOKS:
        return await _run(seed)


async def _run(seed: int) -> Outcome:
    async with ApiServer(seed=seed, history_limit=200) as api:
        api.load([node(name, CARDS, memory=MEMORY) for name in HOSTS])
        trial = _Trial(api, seed)
        async with AsyncExitStack() as stack:
            await trial.begin(stack)
            await trial.play()
            await trial.settle()
        return trial.outcome


class _Trial:
    def __init__(self, api: ApiServer, seed: int) -> None:
        self.outcome = Outcome(seed)
        self._api = api
        self._chance, self._choice_of_node = Random(seed), Random(seed)
        # Draws of its own, so that which activities a run has does not move its other choices.
        self._preempts = Random(f"{seed} preemption").random() < _PREEMPT_SHARE
        self._kube = Kube(api)
        self._locking = self._chance.random() < 0.5
        self._lease = self._chance.choice(_LEASES)
        self._audit = Audit(api)
        self._replicas: dict[str, Extender] = {}
        self._began = asyncio.get_running_loop().time()
        self._harms: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (
            self._refuse,
            self._refuse,
            self._lose_answers,
            self._hang,
            self._delay,
            self._spoil_watches,
            self._cut_watches,
            self._compact,
            self._kill,
            self._cut_off,
            self._stop_the_world,
            self._take_the_lease,
            self._delete_the_lease,
        )

    async def begin(self, stack: AsyncExitStack) -> None:
        """Start both replicas and all kubelets."""
        stack.callback(self._audit.close)
        stack.push_async_callback(self._end)
        for name in ("a", "b"):
            await self._boot(name)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(self._api.url, headers={"User-Agent": _KUBELETS}, read_bufsize=2**22)
        )
        beside = await stack.enter_async_context(Beside())
        beside.start(Kubelets(NodeActor(session)).follow())

    async def play(self) -> None:
        """Create, place and end pods while faults go on."""
        for number in range(PODS):
            made = self._kube.create(pod(f"p{number}", memory=self._chance.choice((200, 300, 500))))
            placing = asyncio.create_task(self._place_once(made))
            await asyncio.sleep(0)
            await self._chance.choice(self._harms)()
            await placing
            if number % 3 == 2:
                self._kube.delete_pod(f"p{number - 2}")
            await passes(self._chance.choice((0.0, 0.1, 3.0, 8.0)))
        if self._preempts:
            await self._preempt()

    async def settle(self) -> None:
        """End all faults; check that every pod gets its cards, and that all agree on who holds what."""
        self.outcome.hits = sum(rule.hits for rule in self._api.faults)
        self._api.faults.clear()
        # The next list finds what a watch has lost.
        self._api.compact()
        self._api.cut()
        await self._leader()
        if self._preempts:
            await self._end_preemption()
        for made in self._kube.pods():
            await self._place(made)
        leader = await self._leader()
        await self._unlocked(leader)
        cluster = leader.live.cluster
        await self._holds(
            lambda: self._audit.difference(cluster) is None, lambda: f"counted: {self._audit.difference(cluster)}"
        )
        found = await leader.live.compare()
        # A pod that was only asked about may be gone already: it holds nothing.
        wrong = [each for each in found.as_json()["differences"] if each["cache"] is None or each["cache"]["node"]]
        self._must(not wrong, f"compare: {wrong}")
        self._must(not leader.live.cluster.problems(), f"verify: {leader.live.cluster.problems()}")
        self.outcome.seconds = asyncio.get_running_loop().time() - self._began

    async def _unlocked(self, leader: Extender) -> None:
        """Whether no pod holds the lock of its own node; a lock left by a bind to another node keeps no pod away."""
        await self._holds(lambda: not self._held_locks(), lambda: "a node stays locked by a pod on it")
        for name in self._locks():
            made = self._kube.create(pod(f"after-{name}", memory=1))
            uid = made["metadata"]["uid"]
            await self._holds(
                lambda uid=uid: leader.live.cluster.pod(uid) is not None,  # type: ignore[misc]
                lambda: "the watch of pods",
            )
            said = await self._place_once(made, name)
            self._must(not said, f"a lock that was left keeps others away: {said}")
        await self._holds(lambda: not self._locks(), lambda: "a node stays locked")

    async def _preempt(self) -> None:
        """Fill the cards, and let a pod of high priority arrive while something goes wrong."""
        self.outcome.activities["preemption"] += 1
        for each in fillers(HOSTS, CARDS, MEMORY):
            made = self._kube.create(each)
            await self._place_once(made)
            if self._kube.node_of(made["metadata"]["name"]) is None:
                self._kube.delete_pod(made["metadata"]["name"])
        made = self._kube.create(preemptor(MEMORY))
        cycle = asyncio.create_task(self._preempt_once(made))
        await asyncio.sleep(0)
        await self._chance.choice(self._harms)()
        await cycle

    async def _end_preemption(self) -> None:
        """Get the preemptor bound while all cards are taken; then let the pods that fill them go."""
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while self._kube.node_of(PREEMPTOR) is None:
            await self._preempt_once(self._kube.pod(PREEMPTOR))
            self._must(asyncio.get_running_loop().time() < end, "the preemptor is never bound")
            await passes(_ASKED_AGAIN_SECONDS)
        for name in [each["metadata"]["name"] for each in self._kube.pods()]:
            if name.startswith(FILLERS):
                self._kube.delete_pod(name)

    async def _preempt_once(self, made: Json) -> None:
        """Run one cycle of the preemptor; if no node takes it, let its victims go."""
        if not await self._place_once(made):
            return
        for one in list(self._replicas.values()):
            try:
                victims = await victims_of(one, self._kube, made, HOSTS)
            except (aiohttp.ClientError, RuntimeError):
                # It was killed meanwhile.
                continue
            wrong = wrong_victims(victims, self._kube.pods())
            self._must(not wrong, f"victims: {wrong}")
            if victims:
                name = min(victims)
                self.outcome.activities["victims"] += evict(self._kube, name, victims[name])
                break
        await self._place_once(self._kube.pod(made["metadata"]["name"]))

    # -- scheduling ---------------------------------------------------------------------------------------------------

    async def _place(self, made: Json) -> None:
        """Place a pod as kube-scheduler does, again until it is bound."""
        name = made["metadata"]["name"]
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while self._kube.node_of(name) is None:
            said = await self._place_once(self._kube.pod(name))
            self._must(asyncio.get_running_loop().time() < end, f"{name} is never bound: {said}")
            await passes(_ASKED_AGAIN_SECONDS)
        self._check()

    async def _place_once(self, made: Json, *nodes: str) -> str:
        """Run one cycle with whichever replica answers; return why it ended without a bind, "" if it bound."""
        said = "nobody is ready"
        for one in list(self._replicas.values()):
            scheduler = Scheduler(one.session, self._kube, self.outcome.seed)
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
        self.outcome.binds[said.partition(":")[0] or "bound"] += 1
        self._check()
        return said

    async def _leader(self) -> Extender:
        await self._holds(
            lambda: any(one.live.is_ready() for one in self._replicas.values()), lambda: "no replica gets ready"
        )
        return next(one for one in self._replicas.values() if one.live.is_ready())

    # -- harm ---------------------------------------------------------------------------------------------------------

    def _rule(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - the fields of a Rule
        self.outcome.harms[kind] += 1
        self._api.faults.add(
            times=self._chance.randint(1, 4), resource=self._chance.choice(_TARGETS), client=_REPLICAS, **fields
        )

    async def _refuse(self) -> None:
        code = self._chance.choice(_CODES)
        self._rule(f"status {code}", fault="status", code=code, after=self._chance.random() < 0.3)

    async def _lose_answers(self) -> None:
        self._rule("reset", fault="reset", after=self._chance.random() < 0.7)

    async def _hang(self) -> None:
        self._rule("hang", fault="hang", after=self._chance.random() < 0.5)

    async def _delay(self) -> None:
        # No lease can fence what comes later than a write's deadline.
        seconds = self._chance.uniform(0.01, 0.6) * _BIND_SECONDS
        self._rule("latency", fault="latency", seconds=seconds, after=self._chance.random() < 0.5)

    async def _spoil_watches(self) -> None:
        kind = self._chance.choice(("drop", "duplicate", "truncate", "garbage", "expire"))
        self.outcome.harms[kind] += 1
        self._api.faults.add(
            fault=kind, resource="pods", verb="watch", client=_REPLICAS, times=self._chance.randint(1, 3)
        )

    async def _cut_watches(self) -> None:
        self.outcome.harms["watches cut"] += 1
        self._api.cut()

    async def _compact(self) -> None:
        self.outcome.harms["compaction"] += 1
        self._api.compact()
        self._api.cut()

    async def _kill(self) -> None:
        self.outcome.harms["kill"] += 1
        name = self._chance.choice(sorted(self._replicas))
        await self._replicas.pop(name).kill()
        await passes(self._chance.choice((0.0, 1.0, 30.0)))
        await self._boot(name)

    async def _cut_off(self) -> None:
        """Answer no requests for a while; each takes effect or not."""
        self.outcome.harms["partition"] += 1
        rule = self._api.faults.add(fault="hang", client=_REPLICAS, after=self._chance.random() < 0.5)
        self._api.cut()
        await passes(self._chance.choice((1.0, 8.0, 20.0, 60.0)))
        self._api.faults.remove(rule.id)

    async def _stop_the_world(self) -> None:
        """Stop the machine, or let the clocks jump."""
        self.outcome.harms["clock jump"] += 1
        stall(self._chance.choice((1.0, 9.0, 16.0, 300.0)))

    async def _take_the_lease(self) -> None:
        self.outcome.harms["lease lost"] += 1
        write_lease(self._api, "another", 2)

    async def _delete_the_lease(self) -> None:
        if lease_of(self._api) is not None:
            self.outcome.harms["lease deleted"] += 1
            delete_lease(self._api)

    # -- checking -----------------------------------------------------------------------------------------------------

    def _locks(self) -> dict[str, str]:
        """Return the name of the pod that holds the lock, by node."""
        metas = [row.decode()["metadata"] for row in self._api.store.tables[NODES].rows]
        texts = {each["name"]: (each.get("annotations") or {}).get(NODE_LOCK) for each in metas}
        return {name: text.split(",")[-1] for name, text in texts.items() if text}

    def _held_locks(self) -> list[str]:
        bound = self._audit.bound()
        return [name for name, owner in self._locks().items() if bound.get(owner) == name]

    def _check(self) -> None:
        self._must(not self._audit.overcommitted, f"over-committed: {self._audit.overcommitted[:3]}")

    async def _holds(self, fact: Callable[[], bool], what: Callable[[], str]) -> None:
        try:
            await eventually(fact, seconds=PATIENCE_SECONDS)
        except AssertionError:
            raise Violation(f"seed {self.outcome.seed}: not within {PATIENCE_SECONDS} s: {what()}") from None
        self._check()

    def _must(self, holds: bool, why: str) -> None:
        if not holds:
            raise Violation(f"seed {self.outcome.seed}: {why}; {dict(self.outcome.harms)}")

    # -- replicas -----------------------------------------------------------------------------------------------------

    async def _boot(self, name: str) -> None:
        settings = LiveSettings(
            identity=name,
            lease=self._lease,
            bind=BindSettings(_BIND_SECONDS, self._lease.duration_seconds / 2, lock_mode=self._locking),
        )
        # A disk that is full from the first byte on, or a journal that is never written.
        is_full = self._chance.random() < _FULL_SHARE
        self.outcome.harms["disk full"] += is_full
        journal = FileJournal("/dev/full") if is_full else None
        self._replicas[name] = await Extender.boot(self._api.url, settings, journal=journal)

    async def _end(self) -> None:
        for one in self._replicas.values():
            await one.kill()
