"""Leading when the kube-scheduler on the same host does, by its Lease.

Why it exists: beside a kube-scheduler, in its pod, an election of one's own would only disagree with it. It must not
write the Lease. Invariant: this process counts on the Lease for a shorter time than its holder does, and on a new
holder only when whatever an earlier one's extender counted on is over. A term in which an ended process of this pod has
led needs no waiting: nobody else held the Lease since.
"""

import asyncio

from extender.kube.client import KubeClient
from extender.live.leading.leadership import NEVER, Clock, LeaseHolder, OnElected, steady_seconds
from extender.live.leading.lease import Failed, Lease, LeaseSettings, Term
from extender.live.leading.predecessors import Predecessors
from extender.logs import logger


class LeaseFollower(LeaseHolder):
    """Leadership of the kube-scheduler beside us: its Lease names its host as `<hostname>_...`.

    Its scheduler sends binds to this extender only, so the extender may write while its scheduler leads. What the
    Lease shows is younger than it seems: a renewal that is first seen now happened after the last look that did not
    show it, and only that is certain.
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
        self._looked_at = NEVER  # when the last look that showed `_seen` began
        self._others_end = NEVER

    def _pause_seconds(self) -> float:
        # What is lost between two looks is lost for the lease. Who need not wait for others waits for a renewal only.
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
        """The Lease is our scheduler's."""
        duration = lease.duration_seconds(self._settings.duration_seconds)
        if self._seen is None or self._seen.term != lease.term:
            if not self._is_next(lease) and not self._was_led(lease):
                # Until just now another may have held it, whose extender counts on its lease to its end.
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
        """Whether a process before this one, which has ended, led in this very term."""
        return self._predecessors is not None and self._predecessors.led == lease.term

    def _is_next(self, lease: Lease) -> bool:
        """Whether nobody held the Lease between the scheduler of this host that was seen last and this one."""
        seen = self._seen
        return seen is not None and lease.term == seen.term._replace(transitions=seen.term.transitions + 1)

    def _is_given_up(self, lease: Lease) -> bool:
        """Whether nobody has held the Lease since the scheduler of this host gave it up."""
        return not lease.holder and self._seen is not None and lease.term == self._seen.term

    def _is_ours(self, lease: Lease) -> bool:
        return lease.holder == self._hostname or lease.holder.startswith(f"{self._hostname}_")
