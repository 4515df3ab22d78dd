"""What a run under faults has in common: the API server, both replicas, and what must hold at any moment.

It exists so that activities and harms are written apart from each other. It must not do anything to a pod. Invariants:
what is drawn here follows from the seed; a `Violation` names the seed that finds it again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from kubernetes_asyncio.client import Configuration

from extender.journal.journal import FileJournal
from extender.live.binding.attempt import BindSettings
from extender.live.leading.lease import LeaseSettings
from extender.live.settings import LiveSettings
from tests.apiserver.server import ApiServer
from tests.extender.objects import node
from tests.live.fault_locks import held_locks
from tests.live.fault_volume import Volume
from tests.live.harness import Extender, Kube, eventually
from tests.live.harness_audit import Audit

CARDS, MEMORY = 2, 1000
HOSTS = ("n1", "n2", "n3")
#: Virtual seconds: twice the sum of the longest waits in a row, for a lease, a write's deadline and a stale node lock.
PATIENCE_SECONDS = 1200.0
#: A write's deadline at the extender, in seconds.
BIND_SECONDS = 10.0
#: The bearer tokens of all replicas and of whatever belongs to one, for a rule of `faults`.
REPLICAS = "replica-*"
_FULL_SHARE = 0.1
#: A new leader rules late Bindings out, or waits until none can come.
_LEASES = tuple(
    LeaseSettings(duration_seconds=15.0, retry_seconds=5.0, write_deadline_seconds=deadline)
    for deadline in (0.0, BIND_SECONDS)
)


class Violation(AssertionError):
    """Something was lost, or given out twice."""


class Activity(Protocol):
    """What some runs do beside binding and watching."""

    async def begin(self) -> None:
        """Make what must be there before anything goes wrong."""

    async def play(self) -> None:
        """Do it while something goes wrong."""

    async def settle(self) -> None:
        """Finish it when nothing goes wrong any more, and check what must hold then."""


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


class World:
    """One API server and the replicas on it."""

    def __init__(self, api: ApiServer, seed: int) -> None:
        api.load([node(name, CARDS, memory=MEMORY) for name in HOSTS])
        self.api, self.kube, self.audit = api, Kube(api), Audit(api)
        self.outcome, self.chance = Outcome(seed), Random(seed)
        self.replicas: dict[str, Extender] = {}
        self.volumes: dict[str, Volume] = {}
        """The certificate that each replica serves its webhooks by; none: it serves none."""
        self.locking = self.chance.random() < 0.5
        self._lease = self.chance.choice(_LEASES)

    async def boot(self, name: str) -> None:
        """Start the replica of a name."""
        settings = LiveSettings(
            identity=name,
            lease=self._lease,
            bind=BindSettings(BIND_SECONDS, self._lease.duration_seconds / 2, lock_mode=self.locking),
        )
        # A disk that is full from the first byte on, or a journal that is never written.
        is_full = self.chance.random() < _FULL_SHARE
        self.outcome.harms["disk full"] += is_full
        journal = FileJournal("/dev/full") if is_full else None
        volume = self.volumes.get(name)
        certificate = None if volume is None else volume.certificate()
        self.replicas[name] = await Extender.boot(
            self.as_client(name), settings, journal=journal, certificate=certificate
        )

    def as_client(self, name: str) -> Configuration:
        """Return how a replica, or what belongs to it, reaches the API server."""
        configuration = Configuration()
        configuration.host = self.api.url
        # The API server for tests tells clients apart by their tokens.
        configuration.api_key = {"BearerToken": token_of(name)}
        configuration.api_key_prefix = {"BearerToken": "Bearer"}
        return configuration

    def list_again(self) -> None:
        """End all watches so that none can go on: only a list finds what a watch has lost."""
        # A watch that has seen the newest version would go on from there, whatever it has lost before.
        self.kube.send("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"generateName": "newer-"}})
        self.api.compact()
        self.api.cut()

    async def end(self) -> None:
        """Kill all replicas."""
        for one in self.replicas.values():
            await one.kill()

    async def leader(self) -> Extender:
        """Wait for a replica that answers."""
        await self.holds(
            lambda: any(one.live.is_ready() for one in self.replicas.values()), lambda: "no replica gets ready"
        )
        return next(one for one in self.replicas.values() if one.live.is_ready())

    # -- checking -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Whether no card was over-committed after any write so far."""
        self.must(not self.audit.overcommitted, f"over-committed: {self.audit.overcommitted[:3]}")

    async def holds(self, fact: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until a fact holds."""
        try:
            await eventually(fact, seconds=PATIENCE_SECONDS)
        except AssertionError:
            raise Violation(f"seed {self.outcome.seed}: not within {PATIENCE_SECONDS} s: {what()}") from None
        self.check()

    async def agrees(self, leader: Extender) -> None:
        """Whether a leader counts what the objects say, finds no difference, and has no node that stays locked."""
        await self.holds(lambda: not held_locks(self.api, self.audit), lambda: "a node stays locked by a pod on it")
        cluster = leader.live.cluster
        await self.holds(
            lambda: self.audit.difference(cluster) is None, lambda: f"counted: {self.audit.difference(cluster)}"
        )
        found = await leader.live.compare()
        # A pod that was only asked about may be gone already: it holds nothing.
        wrong = [each for each in found.as_json()["differences"] if each["cache"] is None or each["cache"]["node"]]
        self.must(not wrong, f"compare: {wrong}")
        self.must(not cluster.problems(), f"verify: {cluster.problems()}")

    def must(self, holds: bool, why: str) -> None:
        """Raise a Violation unless something holds."""
        if not holds:
            raise Violation(f"seed {self.outcome.seed}: {why}; {dict(self.outcome.harms)}")


def token_of(name: str) -> str:
    """The bearer token of a replica, which `REPLICAS` matches."""
    return f"replica-{name}"


def now() -> float:
    """Seconds of virtual time."""
    return asyncio.get_running_loop().time()
