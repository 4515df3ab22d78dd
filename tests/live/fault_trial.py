"""One seeded run of two replicas under faults, in virtual time: pods must be placed while everything goes wrong.

It exists because nobody writes a story of several faults at once. It must not look into a replica except for what it
counts at the end. Invariants: what happens follows from the seed, its moments may differ between plays; no harm is one
that a lease cannot fence (see `fault_harms`), so any over-committed card is a bug.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
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
from tests.live.fault_admission import QUOTA_MIB, TEAM, charged, over_quota, reviewed, team_pod, team_quota
from tests.live.fault_harms import BIND_SECONDS, Harms
from tests.live.fault_preemption import FILLERS, PREEMPTOR, evict, fillers, preemptor, victims_of, wrong_victims
from tests.live.harness import Extender, Kube, eventually
from tests.live.harness_audit import Audit
from tests.live.harness_scheduler import Scheduler
from tests.virtual_time import VirtualTimeLoop, passes

PODS, CARDS, MEMORY = 4, 2, 1000
HOSTS = ("n1", "n2", "n3")
#: Virtual seconds: twice the sum of the longest waits in a row, for a lease, a write's deadline and a stale node lock.
PATIENCE_SECONDS = 1200.0
_ASKED_AGAIN_SECONDS = 1.0
_FULL_SHARE = 0.1
_PREEMPT_SHARE = _ADMIT_SHARE = 0.25
#: A new leader rules late Bindings out, or waits until none can come.
_LEASES = tuple(
    LeaseSettings(duration_seconds=15.0, retry_seconds=5.0, write_deadline_seconds=deadline)
    for deadline in (0.0, BIND_SECONDS)
)
#: How often a replica checks whether it leads decides only how long a run takes.
_LOOKS = mock.patch.object(waker, "_LOOK_SECONDS", (1.0, 5.0))
_KUBELETS = "kubelets"


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
        self._admits = Random(f"{seed} admission").random() < _ADMIT_SHARE
        self._kube = Kube(api)
        self._locking = self._chance.random() < 0.5
        self._lease = self._chance.choice(_LEASES)
        self._audit = Audit(api)
        self._replicas: dict[str, Extender] = {}
        self._began = asyncio.get_running_loop().time()
        self._harms = Harms(api, self._chance, self.outcome.harms, self._replicas, self._boot)

    async def begin(self, stack: AsyncExitStack) -> None:
        """Start both replicas and all kubelets."""
        stack.callback(self._audit.close)
        stack.push_async_callback(self._end)
        if self._admits:
            self._kube.create(team_quota())
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
            await self._harms.any()
            await placing
            if number % 3 == 2:
                self._kube.delete_pod(f"p{number - 2}")
            await passes(self._chance.choice((0.0, 0.1, 3.0, 8.0)))
        if self._admits:
            await self._admit()
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
        if self._admits:
            await self._end_admission()
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

    async def _admit(self) -> None:
        """Let a team create pods through the webhooks while something goes wrong; they want more than it may."""
        self.outcome.activities["admission"] += 1
        for number in range(3):
            made = team_pod(number)
            asking = asyncio.create_task(self._create_reviewed(made))
            await asyncio.sleep(0)
            await self._harms.any()
            await asking

    async def _create_reviewed(self, made: Json) -> None:
        """Create and place a pod if a replica's webhooks admit it, as under failurePolicy Fail."""
        said = "unavailable"
        for one in list(self._replicas.values()):
            said = reviewed(one.live, made)
            if said != "unavailable":
                break
        self.outcome.activities[f"reviews {said.partition(':')[0]}"] += 1
        if said == "allowed":
            await self._place_once(self._kube.create(made))

    async def _end_admission(self) -> None:
        """Every replica judges by the quota again; let the team's pods go that have no room under it."""
        for one in self._replicas.values():
            await self._holds(
                lambda one=one: reviewed(one.live, team_pod(9, QUOTA_MIB + 1)).startswith("denied"),  # type: ignore[misc]
                lambda: "too much is admitted",
            )
        for made in [each for each in self._kube.pods() if each["metadata"]["name"].startswith(TEAM)]:
            name = made["metadata"]["name"]
            if self._kube.node_of(name) is not None:
                continue
            if over_quota(self._kube.pods(), made):
                self.outcome.activities["over quota"] += 1
                self._kube.delete_pod(name)
            else:
                # It takes the room that the next one then lacks.
                await self._place(made)

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
        await self._harms.any()
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
        if self._admits:
            held = charged(self._kube.pods())
            self._must(held <= QUOTA_MIB, f"the team holds {held} MiB of {QUOTA_MIB}")

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
            bind=BindSettings(BIND_SECONDS, self._lease.duration_seconds / 2, lock_mode=self._locking),
        )
        # A disk that is full from the first byte on, or a journal that is never written.
        is_full = self._chance.random() < _FULL_SHARE
        self.outcome.harms["disk full"] += is_full
        journal = FileJournal("/dev/full") if is_full else None
        self._replicas[name] = await Extender.boot(self._api.url, settings, journal=journal)

    async def _end(self) -> None:
        for one in self._replicas.values():
            await one.kill()
