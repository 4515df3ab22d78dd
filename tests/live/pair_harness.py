"""Two replicas, each with a network of its own, one clock for both, and the audit that judges them.

It exists so that tests of leader changes say which replica stops when. It must not let replicas judge themselves.
Invariants: a question without an answer is asked again, as kube-scheduler does; time passes only while the awaited
replica does nothing but wait.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from extender.kube.listing import ListSettings
from extender.kube.reflector import ReflectorSettings
from extender.live.binding.attempt import BindSettings
from extender.live.leading.election import LeaderElector
from extender.live.leading.lease import LeaseSettings
from extender.live.settings import LiveSettings
from tests.apiserver.resources import LEASES
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json, node, pod
from tests.live.harness import Kube, eventually
from tests.live.harness_audit import Audit
from tests.live.replica_harness import Network, Replica, Time, network, replica
from tests.virtual_time import until

#: A lease that is never missed, and one that is now and then.
LEASE = LeaseSettings(duration_seconds=600.0, retry_seconds=0.1, write_deadline_seconds=10.0)
SHORT = LeaseSettings(duration_seconds=1.0, retry_seconds=0.1, write_deadline_seconds=0.5)
NODES = ("n1", "n2", "n3", "n4", "n5", "n6")


def settings(identity: str, lease: LeaseSettings) -> LiveSettings:
    return LiveSettings(
        lease=lease,
        bind=BindSettings(lease.write_deadline_seconds, lock_mode=False, resolve_seconds=(0.02, 0.2)),
        reflector=replace(ReflectorSettings(), lists=ListSettings(page_size=20), backoff_seconds=(0.02, 0.2)),
        identity=identity,
    )


@dataclass
class Pair:
    """Two replicas, each with a network of its own, and the audit."""

    api: ApiServer
    kube: Kube
    audit: Audit
    replicas: list[Replica]
    networks: list[Network]
    time: Time
    outcomes: Counter[str] = field(default_factory=Counter)
    made: int = 0

    def new_pod(self, memory: int) -> Json:
        """Create a pod that no replica has seen."""
        self.made += 1
        return self.kube.create(pod(f"p{self.made}", memory=memory))

    async def bind(self, one: Replica, asked: Json, node_name: str) -> str:
        """Ask one replica to bind."""
        error = await one.bind(asked, node_name)
        self.outcomes[error.partition(":")[0] or "bound"] += 1
        return error

    async def asked(self, one: Replica, asked: Json, node_name: str) -> str:
        """Ask one replica to bind, as kube-scheduler does: again, until it has an answer."""
        errors: list[str] = []

        async def has_an_answer() -> bool:
            errors.append(await self.bind(one, asked, node_name))
            return not _knows_nothing(errors[-1])

        await until(has_an_answer)
        return errors[-1]

    async def leader(self) -> Replica:
        """Return the replica that answers."""
        found: list[Replica] = []

        def answers() -> bool:
            found[:] = [one for one in self.replicas if one.answers]
            return bool(found)

        await eventually(answers, "a replica answers")
        return found[0]

    async def leads(self, one: Replica) -> None:
        """Let time pass until a replica leads. The other one stands still."""

        def answers() -> bool:
            self.time.passes(self._waits_for_seconds(one))
            return one.answers

        await eventually(answers, "the standby leads")

    def _waits_for_seconds(self, one: Replica) -> float:
        """Return how long it only waits: for the end of the Lease, or for writes that may still come."""
        holder, now = one.live.leadership, self.time.seconds()
        assert isinstance(holder, LeaderElector)
        rows, seen = self.api.store.tables[LEASES].rows, holder._seen
        if holder._preparing is not None:
            return max(0.0, holder._others_end - now)
        if not rows or seen is None or seen.version != str(rows[0].version):
            return 0.0
        return max(0.0, holder._unchanged_since + LEASE.duration_seconds - now)

    def other(self, one: Replica) -> Replica:
        return next(each for each in self.replicas if each is not one)


@asynccontextmanager
async def pair(cards: int = 2, memory: int = 1000, lease: LeaseSettings = LEASE, seed: int = 0) -> AsyncIterator[Pair]:
    async with ApiServer(seed=seed) as api:
        api.load([node(name, cards, memory=memory) for name in NODES])
        audit, port, time = Audit(api), int(api.url.rpartition(":")[2]), Time()
        async with (
            network(port) as first,
            network(port) as second,
            replica(first.url, settings("a", lease), time) as a,
            replica(second.url, settings("b", lease), time) as b,
        ):
            yield Pair(api, Kube(api), audit, [a, b], [first, second], time)
        audit.close()


def _knows_nothing(error: str) -> bool:
    """Whether the answer makes kube-scheduler ask again."""
    return error.startswith(("not ready", "Unknown")) or error.endswith("it is tried again")
