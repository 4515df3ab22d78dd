"""One preemption: from the choice of a node until the pod is there, or it is given up.

Why it exists: between the choice and the pod's Binding lie seconds to minutes in which everything may change, so before
each single eviction it is asked again who still has to go. It must not choose the node. Invariants: nobody is evicted
whom the pod does not need at that moment; what is kept for the pod is written before the first eviction; who is under
a budget goes first, so that a budget that says no costs nobody else; after a restart nobody is evicted before
kube-scheduler has offered the node once more.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from accounting.answers.preemption import NodePod, NoVictims, Offer, Outcome, Victims, leaving_for, preempting
from accounting.pod import Pod, Preempting
from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.kube.client import Answer, Unknown
from extender.live.evicting.counts import Counts, End
from extender.live.evicting.limits import Limits
from extender.live.evicting.settings import EvictSettings
from extender.live.evicting.telling import Teller
from extender.live.evicting.writer import EvictionWriter
from extender.verbs import preemptor_of

_BOUND = (PodState.BOUND, PodState.ADDED)
#: Answers that say that there is no such pod any more.
_NO_SUCH_POD = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
#: Answers that another try will not change.
_FINAL = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)


@dataclass(frozen=True, slots=True)
class Parts:
    """What all preemptions of a process share."""

    cluster: Cluster
    writer: EvictionWriter
    teller: Teller
    limits: Limits
    counts: Counts
    settings: EvictSettings


class Attempt:
    """One preemption. Times are the loop's."""

    def __init__(self, parts: Parts, pod: Pod, node: str, until: float, *, is_adopted: bool = False) -> None:
        """`is_adopted`: an earlier process has begun it, as the pod's annotation says."""
        self.node = node
        self.why = ""
        """What was in the way last."""
        self._parts = parts
        self._pod = pod
        self._until = until
        self._is_adopted = is_adopted
        self._is_offered = not is_adopted
        self._evicted: set[str] = set()  # UIDs of those whose eviction was accepted
        self._not_accepted = 0
        self._not_before = 0.0
        self._looks = asyncio.Event()

    def asked(self, nodes: Sequence[str]) -> None:
        """Filter was asked about the pod on these nodes."""
        self._is_offered |= self.node in nodes
        self.look()

    def look(self) -> None:
        """Something may have changed."""
        self._looks.set()

    async def run(self) -> End | None:
        """Go through with it; None if this replica does not lead any more, which leaves it to the next leader."""
        if self._is_adopted:
            await self._parts.writer.wake(self._pod)
        loop = asyncio.get_running_loop()
        while True:
            end = self._ended(loop.time())
            if end is not None:
                return end
            if not self._parts.writer.is_leading():
                return None
            outcome = await self._judged()
            if self._ended(loop.time()) is not None:
                # The judgement of a node with many pods takes a while.
                continue
            if outcome in (NoVictims.NOT_ENOUGH, NoVictims.PROTECTED):
                self.why = "the pod would not fit there any more, whoever went"
                return End.USELESS
            if isinstance(outcome, Victims) and self._may_evict(loop.time()):
                end = await self._evict_one(outcome)
                if end is not None:
                    return end
                continue
            await self._wait()

    def _ended(self, now: float) -> End | None:
        cluster, uid = self._parts.cluster, self._pod.uid
        if cluster.cache.state(uid) in _BOUND:
            return End.BOUND
        pod = cluster.pod_without_rows(uid)
        if pod is None or pod.terminal or pod.deleting:
            return End.GONE
        self._pod = pod
        if now >= self._until:
            self.why = self.why or "the pod is still waiting"
            return End.TIMEOUT
        return None

    async def _judged(self) -> Outcome:
        """Return who has to go now, giving the loop to others again and again."""
        cluster, pod = self._parts.cluster, self._pod
        occupied = cluster.residents.occupied(self.node)
        if occupied is None or cluster.cache.state(pod.uid) is not None:
            return NoVictims.WAIT if occupied is not None else NoVictims.NOT_ENOUGH
        # Those whose eviction was accepted are leaving, whether or not the watch has told.
        occupied = leaving_for(occupied, [(pod.info.priority, self._evicted)])
        preemptor = preemptor_of(cluster, pod, plain=False)
        offer = Offer(occupied, (), cluster.nominations.before(preemptor, self.node))
        steps = preempting(cluster.cache.snapshot(), preemptor, [offer], cluster.residents.budgets.allowed)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                outcomes: list[Outcome] = end.value
                return outcomes[0]
            await asyncio.sleep(0)

    def _may_evict(self, now: float) -> bool:
        limits = self._parts.limits
        if not self._is_offered or self._pod.nominated not in ("", self.node):
            # kube-scheduler has not offered the node, or evicts on another one.
            return False
        if now < self._not_before or not self._parts.writer.may_write():
            # Most of what is left of a lease may be less than a write takes; soon it is renewed.
            return False
        return not limits.is_stopped and limits.has_room(now)

    async def _evict_one(self, victims: Victims) -> End | None:
        """Evict one of those who have to go, after saying so on the pod."""
        known = self._pod.preempting
        uids = tuple(each.record.uid for each in victims.pods)
        if known is None or known.node != self.node or not set(uids) <= set(known.victims):
            return await self._keep((*self._evicted, *uids), victims, is_new=known is None)
        # Of those under a budget, and of the others, the least important first: it may end half-way.
        victim = min(reversed(victims.pods), key=lambda each: not each.budgets)
        return await self._evict(victim)

    async def _keep(self, uids: tuple[str, ...], victims: Victims, *, is_new: bool) -> End | None:
        parts, loop = self._parts, asyncio.get_running_loop()
        until = parts.writer.unix_seconds() + max(1, round(self._until - loop.time()))
        answer = await parts.writer.keep(self._pod, Preempting(self.node, until, uids))
        if answer.ok:
            if is_new:
                parts.teller.begun(self._pod, self.node, victims)
            return None
        if answer.status in _NO_SUCH_POD:
            return End.GONE
        self.why = f"the pod's annotation cannot be written: {answer.message}"
        return self._not_taken(answer)

    async def _evict(self, victim: NodePod) -> End | None:
        parts, now = self._parts, asyncio.get_running_loop().time()
        if not parts.limits.take(now):
            return None
        answer = await parts.writer.evict(victim.record)
        if answer.ok:
            parts.counts.victims += 1
            parts.teller.evicted(victim, self._pod, self.node)
        else:
            parts.limits.give_back(now)
        if answer.ok or answer.status in _NO_SUCH_POD:
            self._evicted.add(victim.record.uid)
            self._not_accepted = 0
            return None
        parts.counts.not_accepted += 1
        self.why = f"pod {victim.record.key} cannot be evicted: {answer.message}"
        return self._not_taken(answer)

    def _not_taken(self, answer: Answer | Unknown) -> End | None:
        """Wait longer each time that a write was not accepted; some refusals are final."""
        if answer.status in _FINAL:
            return End.REFUSED
        first, longest = self._parts.settings.backoff_seconds
        pause = min(longest, first * 2**self._not_accepted) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._not_accepted += 1
        self._not_before = asyncio.get_running_loop().time() + max(pause, answer.retry_after_seconds or 0.0)
        return None

    async def _wait(self) -> None:
        self._looks.clear()
        try:
            async with asyncio.timeout(self._parts.settings.look_seconds):
                await self._looks.wait()
        except TimeoutError:
            pass
