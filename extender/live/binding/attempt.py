"""One bind, from the question to the answer.

Why it exists: the network may fail between "the pod fits" and "the pod is on the node with its cards". It must not know
other binds, nor what happens when this process ends. Invariants: fitting and assuming happen without an await in
between; the cards are in the Binding's annotations, so a pod is never on a node without them; success is answered only
for an accepted Binding; a pod whose write got no answer stays assumed until a read or the watch decides; a definite
refusal is forgotten; a node lock is kept only where the pod is, or may be, on the node. `accounting.pod_state` has the
states and what changes them.

A scheduled pod costs one request to the API server, the Binding; with the node lock two, the lock and the Binding. A
conflict costs a read and another try, and a lost answer costs a read.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from accounting.answers import Placement
from accounting.pod import Pod
from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.kube.client import Answer, Unknown
from extender.live.binding.claim_kept import claim_kept
from extender.live.binding.reader import PodReader
from extender.live.binding.settling import Settling, Unsettled
from extender.live.binding.writer import BindingWriter
from extender.live.leading import Leadership
from extender.live.locks import Contended, Held, NodeLocks
from extender.verbs import placed
from extender.wire.extender_v1 import BindingArgs

#: Share of httpTimeout that a bind may wait, for a node's lock or for an earlier bind's outcome.
_WAIT_SHARE = 0.8
#: Share of httpTimeout after which a bind always answers.
_ANSWER_SHARE = 0.95
_TRIES = 3


Recheck = Callable[[str, float], Awaitable[str]]
"""A node and seconds -> why it is not known who holds what there; "" if it is."""


async def _nothing_to_recheck(_: str, __: float) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class BindSettings:
    """How binds behave."""

    http_timeout_seconds: float = 10.0
    """httpTimeout of the extender's stanza in the scheduler's configuration."""
    longest_write_seconds: float = math.inf
    """Limit of one write. A write starts only if the lease outlasts it, so this must be well below the lease's
    duration. After this time a write counts as unanswered, and a read shows what became of it."""
    lock_mode: bool = True
    """Take HAMi's node lock, which HAMi's device plugin needs."""
    resolve_seconds: tuple[float, float] = (0.2, 5.0)
    """First and longest pause between reads of a pod whose Binding got no answer."""

    @property
    def write_seconds(self) -> float:
        """The longest that one write may take."""
        return min(self.http_timeout_seconds, self.longest_write_seconds)


@dataclass(slots=True)
class _Attempt:
    """One bind request on its way. Times are the loop's."""

    node: str
    wait_until: float
    answer_by: float
    lock: Held | None = None
    version: str = ""
    """The pod's version that the last Binding named."""

    def left(self) -> float:
        return _until(self.answer_by)


class BindAttempts:
    """Carries out binds. The caller runs the binds of one pod one after another."""

    def __init__(
        self,
        cluster: Cluster,
        reader: PodReader,
        writer: BindingWriter,
        locks: NodeLocks,
        leadership: Leadership,
        settling: Settling,
        settings: BindSettings,
    ) -> None:
        self.unanswered = 0
        """Bindings so far that got no answer."""
        self._cluster = cluster
        self._registry = cluster.registry
        self._reader = reader
        self._writer = writer
        self._locks = locks
        self._leadership = leadership
        self._settling = settling
        self._settings = settings
        self.recheck: Recheck = _nothing_to_recheck
        """Looks at what the watch may not have shown yet, before cards are chosen; returns why it cannot."""

    async def bind(self, args: BindingArgs) -> str:
        """Bind a pod; returns "" when it is on that node with its cards, else why not."""
        now, timeout = asyncio.get_running_loop().time(), self._settings.http_timeout_seconds
        attempt = _Attempt(args.Node, now + _WAIT_SHARE * timeout, now + _ANSWER_SHARE * timeout)
        if not await self._settling.wait(args.PodUID, attempt.wait_until):
            return _EARLIER
        pod = await self._known_pod(args, attempt)
        if isinstance(pod, str):
            return pod
        answer = self._answer_without_write(pod, attempt.node)
        if answer is not None:
            return answer
        if not pod.asks or not self._settings.lock_mode:
            return await self._fit_and_write(pod, attempt)
        async with (
            claim_kept(self._cluster, pod, attempt.node),
            self._locks.turn(attempt.node, attempt.wait_until) as came,
        ):
            if not came:
                return f"NodeLocked: other pods wait for the node's lock; {_AGAIN}"
            return await self._bind_locked(pod, attempt)

    async def _known_pod(self, args: BindingArgs, attempt: _Attempt) -> Pod | str:
        """Return the pod of a bind request, from memory or from the API server."""
        pod, key = self._cluster.pod(args.PodUID), f"{args.PodNamespace}/{args.PodName}"
        if pod is not None and pod.key == key and (pod.node is not None or self._registry.version(pod.uid)):
            return pod
        read = await self._reader.read(args.PodNamespace, args.PodName, args.PodUID, attempt.left())
        if isinstance(read, Unknown):
            return f"Unknown: pod {key} cannot be read: {read.why}"
        return _GONE if read is None else read

    def _answer_without_write(self, pod: Pod, node: str) -> str | None:
        """Return the answer for a pod that is bound or cannot be bound; None if it can be bound."""
        state, record = self._cluster.cache.state(pod.uid), self._cluster.cache.pods.get(pod.uid)
        if state is PodState.ASSUMED:
            return _EARLIER
        where = pod.node if record is None else record.node
        if where is not None:
            return "" if where == node else f"AlreadyBound: pod {pod.key} is on node {where}"
        return "Gone: the pod is ending" if pod.terminal or self._is_deleting(pod.uid) else None

    def _is_deleting(self, uid: str) -> bool:
        """Whether a pod's deletion has begun, so that the API server refuses to bind it."""
        facts = self._registry.facts(uid)
        return facts is not None and facts.deleting

    async def _bind_locked(self, pod: Pod, attempt: _Attempt) -> str:
        placement = self._placed(pod, attempt.node)
        if isinstance(placement, str):
            return placement
        if not self._leadership.may_write(min(attempt.left(), self._settings.write_seconds)):
            return _NOT_LEADER
        lock = await self._locks.take(attempt.node, pod.namespace, pod.name, attempt.wait_until)
        if isinstance(lock, Contended):
            return f"NodeLocked: {lock.why}; {_AGAIN}"
        attempt.lock = lock
        return await self._fit_and_write(pod, attempt)

    async def _fit_and_write(self, pod: Pod, attempt: _Attempt) -> str:
        """Bind a pod, with its node locked if that is needed; release the lock if the pod is not on the node."""
        try:
            error = await self._write_until_decided(pod, attempt)
        except Exception:
            self._begin_settling(pod, attempt)
            raise
        if error and attempt.lock is not None and self._cluster.cache.state(pod.uid) is not PodState.ASSUMED:
            record = self._cluster.cache.pods.get(pod.uid)
            if record is None or record.node != attempt.node:
                await self._locks.release(attempt.lock)
        return error

    async def _write_until_decided(self, pod: Pod, attempt: _Attempt) -> str:
        """Fit, assume and write the Binding; a pod that has changed in between is read and tried again."""
        for _ in range(_TRIES):
            unseen = await self.recheck(attempt.node, attempt.left()) if pod.asks else ""
            left = min(attempt.left(), self._settings.write_seconds)
            why_not = unseen or self._why_no_write(left)
            if why_not:
                return why_not
            booked = self._assume(pod, attempt)
            if isinstance(booked, str):
                return booked
            attempt.version = self._registry.version(pod.uid)
            answer = await self._writer.write(booked, attempt.version, left)
            if answer.ok:
                self._registry.finish_binding(pod.uid)
                return ""
            if _may_have_happened(answer):
                return await self._unanswered(pod, answer, attempt)
            if answer.status != HTTPStatus.CONFLICT:
                self._registry.forget_binding(pod.uid)
                return f"Refused: {answer.status} {answer.message}"
            again = await self._after_conflict(pod, answer, attempt)
            if isinstance(again, str):
                return again
            pod = again
        return f"Conflict: the pod keeps changing; {_AGAIN}"

    def _why_no_write(self, left: float) -> str:
        """Return why no write of so many seconds may begin now; "" if one may."""
        if left <= 0:
            return f"Timeout: no time was left to bind; {_AGAIN}"
        return "" if self._leadership.may_write(left) else _NOT_LEADER

    # -- fitting --------------------------------------------------------------------------------------------------

    def _placed(self, pod: Pod, node: str) -> Placement | str:
        """Return the cards that the pod would get on the node now, or why it gets none; nothing is booked."""
        outcome = placed(self._cluster, pod, node)
        if isinstance(outcome, str) and pod.concerned:
            self._cluster.events.refused.publish(pod.uid, node, outcome)
        return outcome

    def _assume(self, pod: Pod, attempt: _Attempt) -> Pod | str:
        """Fit the pod on the node and book it in one step; returns the pod with its cards, or why it has none."""
        if pod.concerned:
            # Meanwhile, waiting for a lock, the pod may have changed, been bound or been deleted.
            known = self._cluster.pod(pod.uid)
            if known is None:
                return _GONE
            answer = self._answer_without_write(known, attempt.node)
            if answer is not None:
                return answer
            pod = known
        placement = self._placed(pod, attempt.node)
        if isinstance(placement, str):
            return placement
        booked = _booked_on(pod, attempt.node, placement)
        unwritable = self._writer.refusal(booked)
        if unwritable is not None:
            return unwritable
        if pod.concerned:
            self._registry.assume(booked)
        return booked

    # -- after the write ------------------------------------------------------------------------------------------

    async def _after_conflict(self, pod: Pod, answer: Answer | Unknown, attempt: _Attempt) -> Pod | str:
        """Read the pod: same node and UID is success, a newer version of the unbound pod is another try."""
        read = await self._reader.read(pod.namespace, pod.name, pod.uid, attempt.left())
        if isinstance(read, Unknown):
            self._begin_settling(pod, attempt)
            return f"Unknown: pod {pod.key} cannot be read after a conflict: {read.why}"
        if read is None:
            return _GONE
        if self._cluster.cache.state(pod.uid) is PodState.ASSUMED:
            self._registry.forget_binding(pod.uid)
        decided = self._answer_without_write(read, attempt.node)
        if decided is not None:
            return decided
        if self._registry.version(pod.uid) == attempt.version:
            # The pod has not changed, so the conflict is not about its version, and another try would be the same.
            return f"Refused: {answer.status} {answer.message}"
        return read

    async def _unanswered(self, pod: Pod, answer: Answer | Unknown, attempt: _Attempt) -> str:
        """Find out what became of the Binding in the time that is left; later this goes on without the bind."""
        self.unanswered += 1
        self._begin_settling(pod, attempt)
        if await self._settling.wait(pod.uid, attempt.answer_by):
            known = self._cluster.pod(pod.uid) or pod
            decided = self._answer_without_write(known, attempt.node)
            if decided is not None:
                return decided
        return f"Unknown: the API server did not answer the Binding: {answer.message}"

    def _begin_settling(self, pod: Pod, attempt: _Attempt) -> None:
        if self._cluster.cache.state(pod.uid) is PodState.ASSUMED:
            where = attempt.node, attempt.version, attempt.lock
            self._settling.begin(Unsettled(pod.uid, pod.namespace, pod.name, *where))


# kube-scheduler shows these texts as the pod's condition: what is in the way, and what happens next.
_AGAIN = "it is tried again"
_NOT_LEADER = f"NotLeader: this replica may not write now; {_AGAIN}"
_EARLIER = f"Unknown: what became of an earlier Binding of the pod is not known yet; {_AGAIN}"
_GONE = "Gone: there is no such pod any more"


def _booked_on(pod: Pod, node: str, placement: Placement) -> Pod:
    """Return a pod as it is on a node with its cards."""
    return pod._replace(node=node, allocation=placement.allocation if pod.asks else None)


def _may_have_happened(answer: Answer | Unknown) -> bool:
    """Whether a write that got no success may have been carried out all the same."""
    return answer.sent if isinstance(answer, Unknown) else answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _until(end: float) -> float:
    return end - asyncio.get_running_loop().time()
