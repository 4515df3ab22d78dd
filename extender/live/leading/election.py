"""Leader election among the extender's replicas, by a Lease of their own.

It must not know what leading means. Invariants: of two candidates that write, only one gets the Lease, since each write
names the version that was read; a Lease is taken from its holder only after it has not changed for its whole duration,
or if the holder is proven to have ended, and what that holder had sent is then ruled out as for any process; the Lease
is given up only when nothing that this process wrote, or had to wait for, can still take effect. A Lease that was given
up says nothing of the time after that, so a process that starts later must rule out writes of processes without
election.
"""

from http import HTTPStatus

from extender.kube.client import KubeClient
from extender.live.leading.leadership import NEVER, Clock, LeaseHolder, OnElected, steady_seconds
from extender.live.leading.lease import Failed, Lease, LeaseSettings, Missing, Term
from extender.logs import logger

_RELEASE_TRIES = 3
_SHORTEST_PAUSE_SECONDS = 0.01
#: Rounds in which a process that gave the Lease up lets others try.
_REST_ROUNDS = 3


class LeaderElector(LeaseHolder):
    """One candidate for the Lease of the extender's replicas."""

    def __init__(
        self,
        client: KubeClient,
        identity: str,
        settings: LeaseSettings,
        on_elected: OnElected,
        clock: Clock = steady_seconds,
        gone: frozenset[str] = frozenset(),
    ) -> None:
        """`gone`: identities of processes that are proven to have ended."""
        super().__init__(client, settings, on_elected, clock)
        self._identity = identity
        self._gone = gone - {identity}
        self._mine: Lease | None = None  # as this process wrote it last
        self._seen: Lease | None = None  # as it was last read
        self._unchanged_since = NEVER
        self._others_end = NEVER  # until then, writes of earlier leaders may arrive
        self._resting_until = NEVER
        self._others_unknown = False  # whether processes that no Lease names may have left writes
        self._attended: Term | None = None  # the last term in which this process has seen a holder

    async def release(self, *, settled: bool) -> None:
        """Stop leading for good and give the Lease up, so that another replica need not wait for its end.

        A replica that finds the Lease given up waits for no writes, neither ours nor those of an earlier leader.
        """
        known = self._ready or not self._others_unknown
        held = settled and self._term is not None and known and self._clock() >= self._others_end
        await super().release(settled=settled)
        for _ in range(_RELEASE_TRIES if held else 0):
            # Read it again: a cancelled renewal may have been carried out.
            lease = await self._lease.read()
            if not isinstance(lease, Lease) or lease.holder != self._identity:
                return
            freed = await self._lease.free(lease)
            if not (isinstance(freed, Failed) and freed.status == HTTPStatus.CONFLICT):
                return

    async def _round(self) -> None:
        if self._clock() < self._resting_until:
            return
        if self._preparing is not None and self._mine is not None and self._clock() > self._prepared_by:
            await self._give_up(self._mine)
            return
        if self._mine is not None and await self._renewed(self._mine):
            return
        lease = await self._lease.read()
        if isinstance(lease, Missing):
            await self._create()
        elif isinstance(lease, Lease):
            await self._look(lease)
        else:
            logger().warning("Lease cannot be read", status=lease.status, why=lease.why)

    async def _give_up(self, mine: Lease) -> None:
        """Let another replica lead, because this one could not prepare.

        This process has written nothing in its term, and the term has lasted longer than a write of an unknown process
        may take.
        """
        self._step_down("the cluster cannot be listed")
        self._resting_until = self._clock() + _REST_ROUNDS * self._settings.retry_seconds
        await self._lease.free(mine)

    async def _renewed(self, mine: Lease) -> bool:
        """Renew the lease as it was last written; returns False if another process has written it since."""
        started = self._clock()
        written = await self._lease.hold(self._identity, mine)
        if isinstance(written, Lease):
            # No other process wrote it since `mine`, or the version would not have matched.
            self._mine, self._attended = written, written.term
            self._hold(written.term, started + self._settings.duration_seconds, started)
            return True
        if isinstance(written, Failed) and written.status != HTTPStatus.CONFLICT:
            logger().warning("Lease cannot be renewed", status=written.status, why=written.why)
            return True
        self._mine = None
        return False

    async def _look(self, lease: Lease) -> None:
        """Decide whether this process can get the Lease."""
        if self._seen is None or self._seen.version != lease.version:
            self._seen, self._unchanged_since = lease, self._clock()
        if lease.holder:
            self._attended = lease.term
        duration, deadline = self._settings.duration_seconds, self._settings.write_deadline_seconds
        if lease.holder == self._identity:
            # We hold it by a write that got no answer; what that write had to wait for is known.
            await self._take(lease, others_seconds=0.0, others_unknown=self._others_unknown)
        elif lease.is_settled:
            # Unless this process has watched all along, one without election may have run since.
            await self._take(lease, others_seconds=0.0, others_unknown=lease.term != self._attended)
        elif not lease.holder:
            # Somebody emptied the holder's name, and the holder may not know yet.
            await self._take(lease, others_seconds=duration + deadline, others_unknown=not deadline)
        elif lease.holder in self._gone:
            # All that this holder sent had left before it ended, so a list from now on shows the versions named there.
            await self._take(lease, others_seconds=0.0, others_unknown=True)
        elif self._is_over(lease):
            await self._take(lease, others_seconds=deadline, others_unknown=not deadline)
        elif self._term is not None:
            self._step_down(f"{lease.holder} holds the Lease")

    def _pause_seconds(self) -> float:
        """Return how long to wait: a standby looks twice per renewal, and at the moment when the Lease would end."""
        usual = super()._pause_seconds()
        if self._mine is not None or self._seen is None:
            return usual
        return max(_SHORTEST_PAUSE_SECONDS, min(usual / 2, self._over_at(self._seen) - self._clock()))

    def _is_over(self, lease: Lease) -> bool:
        """Whether a Lease has not changed for its whole duration since its present state was first seen."""
        return self._clock() >= self._over_at(lease)

    def _over_at(self, lease: Lease) -> float:
        return self._unchanged_since + lease.duration_seconds(self._settings.duration_seconds)

    async def _create(self) -> None:
        """Create the Lease. If there was one, somebody deleted it, and its holder may not know yet."""
        duration = self._settings.duration_seconds
        if self._seen is None:
            # It may be the first one ever, or follow a process that ran without election.
            await self._take(None, others_seconds=0.0, others_unknown=True)
            return
        self._step_down("the Lease was deleted")
        deadline = self._settings.write_deadline_seconds
        await self._take(None, others_seconds=duration + deadline, others_unknown=not deadline)

    async def _take(self, before: Lease | None, *, others_seconds: float, others_unknown: bool = False) -> None:
        """Write the Lease as ours; writes of an earlier leader may arrive for so long."""
        started = self._clock()
        # Noted before the write, which may be carried out without an answer.
        self._others_end = max(self._others_end, started + others_seconds)
        self._others_unknown = others_unknown
        written = await self._lease.hold(self._identity, before)
        if isinstance(written, Lease):
            self._mine = self._seen = written
            self._attended = written.term
            until = started + self._settings.duration_seconds
            self._hold(written.term, until, self._others_end, others_unknown=others_unknown)
        elif isinstance(written, Failed) and written.status != HTTPStatus.CONFLICT:
            logger().warning("Lease cannot be written", status=written.status, why=written.why)

    def _step_down(self, why: str) -> None:
        self._mine = None
        super()._step_down(why)
