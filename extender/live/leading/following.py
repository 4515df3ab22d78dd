"""Leading while the kube-scheduler on the same host leads, by kube-scheduler's Lease.

Why it exists: in kube-scheduler's pod, a separate election could only disagree with kube-scheduler's. It must not write
the Lease. Invariant: this process relies on the Lease for a shorter time than its holder does, and on a new holder only
when the time has passed for which an earlier holder's extender may rely on it. There is no wait in a term in which an
ended process of this pod has led, since nobody else held the Lease since.
"""

import asyncio

from extender.kube.client import KubeClient
from extender.live.leading.leadership import NEVER, Clock, LeaseHolder, OnElected, steady_seconds
from extender.live.leading.lease import Failed, Lease, LeaseSettings, Term
from extender.live.leading.predecessors import Predecessors
from extender.logs import logger


class LeaseFollower(LeaseHolder):
    """Leads while the kube-scheduler beside us does: its Lease names its host as `<hostname>_...`.

    That scheduler sends binds only to this extender, so the extender may write while the scheduler leads. A renewal
    that is first seen now may have happened at any time since the last look that did not show it, so it counts from
    that look.
    """

    def __init__(
        self,
        client: KubeClient,
        hostname: str,
        settings: LeaseSettings,
        on_elected: OnElected,
        clock: Clock = steady_seconds,
        predecessors: Predecessors | None = None,
    ) -> None:
        super().__init__(client, settings, on_elected, clock)
        self._hostname = hostname
        self._predecessors = predecessors
        self._seen: Lease | None = None
        self._looked_at = NEVER  # when the last look that showed `_seen` began (loop time)
        self._others_end = NEVER

    def _pause_seconds(self) -> float:
        # The time between two looks is lost for the lease. A process that need not wait for others waits only for a
        # renewal.
        waits_for_a_renewal = self._term is None and self._seen is not None and self._was_led(self._seen)
        return self._settings.retry_seconds / (8 if waits_for_a_renewal else 2)

    async def _round(self) -> None:
        began = self._clock()
        lease = await self._lease.read()
        if isinstance(lease, Failed):
            logger().warning("Lease cannot be read", status=lease.status, why=lease.why)
        elif isinstance(lease, Lease) and self._is_ours(lease):
            self._follow(lease)
            self._seen, self._looked_at = lease, began
        else:
            if not (isinstance(lease, Lease) and self._is_given_up(lease)):
                self._seen = None
            if self._term is not None:
                self._step_down("the kube-scheduler of this host does not hold the Lease")

    def _follow(self, lease: Lease) -> None:
        """Take the Lease over from our scheduler, which holds it."""
        duration = lease.duration_seconds(self._settings.duration_seconds)
        if self._seen is None or self._seen.term != lease.term:
            if not self._is_next(lease) and not self._was_led(lease):
                # Until just now another host may have held it, whose extender relies on its lease until the end.
                self._others_end = self._clock() + duration + self._settings.write_deadline_seconds
            if self._term is not None:
                self._step_down("the Lease has changed hands")
        elif lease.version != self._seen.version:
            unknown = self._was_led(lease) or not self._settings.write_deadline_seconds
            self._hold(lease.term, self._looked_at + duration, self._others_end, others_unknown=unknown)

    async def _on_led(self, term: Term) -> None:
        if self._predecessors is not None:
            await asyncio.to_thread(self._predecessors.note_led, term)

    def _was_led(self, lease: Lease) -> bool:
        """Whether an earlier process of this pod, which has ended, led in this term."""
        return self._predecessors is not None and self._predecessors.led == lease.term

    def _is_next(self, lease: Lease) -> bool:
        """Whether nobody held the Lease between this scheduler of our host and the one that was seen before."""
        seen = self._seen
        return seen is not None and lease.term == seen.term._replace(transitions=seen.term.transitions + 1)

    def _is_given_up(self, lease: Lease) -> bool:
        """Whether nobody has held the Lease since our host's scheduler gave it up."""
        return not lease.holder and self._seen is not None and lease.term == self._seen.term

    def _is_ours(self, lease: Lease) -> bool:
        return lease.holder == self._hostname or lease.holder.startswith(f"{self._hostname}_")
