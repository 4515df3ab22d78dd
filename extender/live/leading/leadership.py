"""Whether this process may write: the common part of leader election and of following a Lease.

Why it exists: two replicas must never both give out a card. It must not know cards. Invariants:

- A lease counts until `renewed + duration` on this process's own clock, from before the request was sent. A process
  that cannot renew in time stops being leader by itself, even after it was suspended, because every question checks the
  clock. The clocks of other processes are not trusted, only that their Lease has not changed.
- A write starts only if the lease outlasts the write's deadline.
- A new leader is ready only when the old lease has ended, it has listed everything since, and no write of an earlier
  leader can take effect unseen any more: it waits for as long as a write may take, or rules late Bindings out. A leader
  whose lease lapsed continues without this only if nobody else held the Lease meanwhile (the same `Term`).
- Renewing goes on while a new leader prepares, and preparing can be cancelled at any point.

No lease can stop a process that is suspended between the question and the write; its effect shows as over-committed
cards.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from extender.kube.client import KubeClient
from extender.live.leading.lease import LeaseClient, LeaseSettings, Term
from extender.logs import logger

NEVER = float("-inf")
_RETRY_SECONDS = 2.0
_OTHERS_UNKNOWN = True

Clock = Callable[[], float]
OnElected = Callable[[bool], Awaitable[None]]
"""What a new leader does before it leads. The argument says whether writes of an earlier process may still arrive at an
unknown time."""


class Leadership(Protocol):
    """What the verbs and bind ask."""

    def is_leader(self) -> bool:
        """Whether this process leads and is ready to answer."""

    def may_write(self, seconds: float) -> bool:
        """Whether a write that ends within that time may start."""


class SoleLeader:
    """Leadership of a single replica, without a lease; an earlier process may have left writes under way."""

    def __init__(self, on_elected: OnElected) -> None:
        self._on_elected = on_elected
        self._ready = False

    def is_leader(self) -> bool:
        """From the time on at which it is prepared."""
        return self._ready

    def may_write(self, seconds: float) -> bool:  # noqa: ARG002 - the protocol's argument
        """From the time on at which it is prepared."""
        return self._ready

    async def run(self) -> None:
        """Prepare."""
        await _prepared(lambda: self._on_elected(_OTHERS_UNKNOWN), _RETRY_SECONDS)
        self._ready = True


async def _prepared(prepare: Callable[[], Awaitable[None]], pause_seconds: float) -> None:
    """Prepare, again after a bug: a leader that never gets ready would keep the Lease from the others."""
    while True:
        try:
            await prepare()
        except Exception:  # noqa: BLE001 - see above
            logger().exception("new leader cannot prepare")
            await asyncio.sleep(pause_seconds)
        else:
            return


def steady_seconds() -> float:
    """Return a clock that never jumps and, where the system has one, does not stand still while it sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LeaseHolder:
    """The common part of both kinds of leadership: until when, in which term, and preparing for a term.

    standby --a new term--> preparing (wait, list) --> leading
       ^                         |                       |  time passes `until`: no answers, no writes,
       |______ another holder ___|_______________________|  until the same term is renewed
    """

    def __init__(self, client: KubeClient, settings: LeaseSettings, on_elected: OnElected, clock: Clock) -> None:
        self.elections = 0
        self._lease = LeaseClient(client, settings)
        self._settings = settings
        self._on_elected = on_elected
        self._clock = clock
        self._until = NEVER
        self._term: Term | None = None
        self._ready = False
        self._preparing: asyncio.Task[None] | None = None
        self._prepared_by = NEVER

    # -- asking ---------------------------------------------------------------------------------------------------

    def is_leader(self) -> bool:
        """Whether the lease counts now and everything after the election is done."""
        return self._ready and self._clock() < self._until

    def may_write(self, seconds: float) -> bool:
        """Whether the lease outlasts a write of that length."""
        return self._ready and self._clock() + seconds < self._until

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Get, renew and watch the Lease until cancelled."""
        while True:
            try:
                await self._round()
            except Exception:  # noqa: BLE001 - a bug here must not end the renewing for good
                logger().exception("leader election failed")
            await asyncio.sleep(self._pause_seconds())

    async def release(self, *, settled: bool) -> None:  # noqa: ARG002 - there is nothing to give up here
        """Stop leading for good. `run` must have ended. `settled`: no write of this process can still take effect."""
        self._step_down("released")

    async def _round(self) -> None:
        raise NotImplementedError

    def _pause_seconds(self) -> float:
        # Random, because candidates that ask at the same moment disturb each other.
        return self._settings.retry_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - no secret

    def _hold(self, term: Term, until: float, others_end: float, *, others_unknown: bool = False) -> None:
        """Note that the lease counts until then. In a new term, writes of others may arrive until `others_end`.

        `others_unknown`: processes that no Lease names may have left writes as well.
        """
        self._until = max(self._until, until)
        if term != self._term:
            self._cancel_preparing()
            self._term, self._ready = term, False
            # At least as long as a write may take: after that the Lease can be given up, whoever wrote before.
            longest = max(self._settings.prepare_seconds, self._settings.write_deadline_seconds)
            self._prepared_by = max(self._clock(), others_end) + longest
            self.elections += 1
            self._preparing = asyncio.get_running_loop().create_task(
                self._prepare(others_end, others_unknown=others_unknown)
            )

    async def _prepare(self, others_end: float, *, others_unknown: bool) -> None:
        """Wait until no write of an earlier leader can arrive any more, list everything, then answer."""

        async def prepare() -> None:
            await self._sleep_until(others_end)
            await self._on_elected(others_unknown)

        await _prepared(prepare, self._settings.retry_seconds)
        if self._term is not None:
            await self._on_led(self._term)
        self._ready, self._preparing = True, None
        logger().info("leading", term=self._term)

    async def _on_led(self, term: Term) -> None:
        """Called before a term's first write, when no write of another process can arrive unseen any more."""

    async def _sleep_until(self, moment: float) -> None:
        # The event loop's clock is a different one, and may be ahead by some microseconds.
        left = moment - self._clock()
        while left > 0:
            await asyncio.sleep(left)
            left = moment - self._clock()

    def _step_down(self, why: str) -> None:
        """Note that another process may lead now."""
        if self._term is not None:
            logger().warning("not leading any more", why=why)
        self._until, self._term, self._ready = NEVER, None, False
        self._cancel_preparing()

    def _cancel_preparing(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None
