"""What goes wrong in a run under faults: answers, watches, clocks, leases, processes.

It exists so that a run says what it does and this file what is done to it. It must not know what must hold. Invariants:
what is drawn follows from the run's chance; it causes no fault that a lease cannot fence (a write that is delivered
after its deadline), and gives no answer that no API server would give; kubelets suffer none, because nothing could make
up for steps that they never do.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.live.fault_world import BIND_SECONDS, REPLICAS, World, now, token_of
from tests.live.leader_harness import delete_lease, holder_of, lease_of, write_lease
from tests.virtual_time import passes, stall

_TARGETS = ("pods/binding", "pods", "nodes", "leases", "*")
_CODES = (403, 409, 410, 429, 500, 503)
_AFTER = (500, 503)
#: How long a leader that has lost its Lease may go on to believe in it; see `LeaseSettings`.
_BELIEF_SECONDS = 15.0


class Harms:
    """Harm to one API server and the replicas on it."""

    def __init__(self, world: World) -> None:
        self.harms = world.outcome.harms
        self.targets: tuple[str, ...] = _TARGETS
        """The resources whose requests may suffer; `*`: all."""
        self._api, self._chance, self._replicas, self._boot = world.api, world.chance, world.replicas, world.boot
        self._kinds: tuple[Callable[[], Awaitable[None]], ...] = (
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
            self._make_two_leaders,
        )

    async def any(self) -> None:
        """Do one of them."""
        await self._chance.choice(self._kinds)()

    def _rule(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - the fields of a Rule
        self.harms[kind] += 1
        self._api.faults.add(
            times=self._chance.randint(1, 4), resource=self._chance.choice(self.targets), client=REPLICAS, **fields
        )

    async def _refuse(self) -> None:
        code = self._chance.choice(_CODES)
        is_after = self._chance.random() < 0.3
        # What an API server has refused it has not done; an error of its own says nothing.
        self._rule(f"status {code}", fault="status", code=code, after=is_after and code in _AFTER)

    async def _lose_answers(self) -> None:
        self._rule("reset", fault="reset", after=self._chance.random() < 0.7)

    async def _hang(self) -> None:
        self._rule("hang", fault="hang", after=self._chance.random() < 0.5)

    async def _delay(self) -> None:
        # No lease can fence what comes later than a write's deadline.
        seconds = self._chance.uniform(0.01, 0.6) * BIND_SECONDS
        self._rule("latency", fault="latency", seconds=seconds, after=self._chance.random() < 0.5)

    async def _spoil_watches(self) -> None:
        kind = self._chance.choice(("drop", "duplicate", "truncate", "garbage", "expire"))
        self.harms[kind] += 1
        self._api.faults.add(
            fault=kind, resource="pods", verb="watch", client=REPLICAS, times=self._chance.randint(1, 3)
        )

    async def _cut_watches(self) -> None:
        self.harms["watches cut"] += 1
        self._api.cut()

    async def _compact(self) -> None:
        self.harms["compaction"] += 1
        self._api.compact()
        self._api.cut()

    async def _kill(self) -> None:
        self.harms["kill"] += 1
        name = self._chance.choice(sorted(self._replicas))
        await self._replicas.pop(name).kill()
        await passes(self._chance.choice((0.0, 1.0, 30.0)))
        await self._boot(name)

    async def _cut_off(self) -> None:
        """Answer no requests for a while, of one replica or all; each takes effect or not."""
        self.harms["partition"] += 1
        whom = self._chance.choice((REPLICAS, REPLICAS, *map(_all_of, sorted(self._replicas))))
        with self._unanswered(whom):
            await passes(self._chance.choice((1.0, 8.0, 20.0, 60.0)))

    @contextmanager
    def _unanswered(self, client: str) -> Iterator[None]:
        rule = self._api.faults.add(fault="hang", client=client, after=self._chance.random() < 0.5)
        self._api.cut(client=client)
        yield
        self._api.faults.remove(rule.id)

    async def _stop_the_world(self) -> None:
        """Stop the machine, or let the clocks jump."""
        self.harms["clock jump"] += 1
        stall(self._chance.choice((1.0, 9.0, 16.0, 300.0)))

    async def _take_the_lease(self) -> None:
        self.harms["lease lost"] += 1
        write_lease(self._api, "another", 2)

    async def _delete_the_lease(self) -> None:
        if lease_of(self._api) is not None:
            self.harms["lease deleted"] += 1
            delete_lease(self._api)

    async def _make_two_leaders(self) -> None:
        """Delete the Lease while its holder hears nothing, so that another takes it in the holder's time."""
        holder = holder_of(self._api)
        if holder not in self._replicas:
            return
        self.harms["leader cut off, lease deleted"] += 1
        with self._unanswered(_all_of(holder)):
            delete_lease(self._api)
            end = now() + 2 * _BELIEF_SECONDS
            while now() < end and self._leaders() != 2:
                await passes(1.0)
            self.harms["two leaders"] += self._leaders() == 2

    def _leaders(self) -> int:
        return sum(one.live.leadership.is_leader() for one in self._replicas.values())


def _all_of(name: str) -> str:
    """A pattern of the tokens of one replica and of what belongs to it."""
    return f"{token_of(name)}*"
