"""Waking refused pods that would fit now.

Why it exists: kube-scheduler's filter comes before the deleted event of the freed pod reaches us in most releases, so
the event that should have helped is answered with a refusal, and nothing asks again for minutes. Patching an
annotation on the pending pod makes kube-scheduler ask for exactly that pod. It must not book anything. Invariants: no
more pods are woken than fit together, so a freed card costs a bounded number of patches whatever the backlog is;
highest priority first, then the longest refused; a rate limit over all and one per pod; nothing is woken by a replica
that does not lead.

    something may have become free on nodes -> a moment later, one round over these nodes:
        each refused pod in order: does it fit beside those woken before it? patch it : pass over all of its group
    a round that woke somebody is followed by another one, in case the pod does not take what it was woken for; three
    rounds at most, so a change that helps nobody is forgotten
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from accounting.pod import Pod
from extender.cluster import Cluster
from extender.convert import RETRY_AT
from extender.kube.client import MERGE_PATCH, KubeClient
from extender.kube.paths import PODS, api_path
from extender.live.waking.charges import ChargesAtRefusal
from extender.live.waking.refused import Refused, RefusedPods
from extender.live.waking.simulation import Simulation
from extender.logs import logger

_REQUEST_SECONDS = 5.0
#: How often the loop looks whether this replica has begun to lead, and whether it still does.
_LOOK_SECONDS = (0.1, 1.0)
#: A round that ran out of tokens waits for this many.
_FEW_TOKENS = 5
#: Pods taken up at a stretch when this replica begins to lead.
_STRETCH = 200


@dataclass(frozen=True, slots=True)
class WakeSettings:
    """Rates, with the reasons."""

    debounce_seconds: float = 0.01
    """Several changes that come together are one round."""
    per_second: float = 20.0
    burst: float = 40.0
    pod_seconds: float = 5.0
    """A pod that was woken and refused again waits this long; kube-scheduler's own backoff is of that order."""
    remembered: int = 20_000
    rounds: int = 3
    """Rounds that one change brings about at most: who was woken may not come, or be refused for another reason."""
    judged_per_round: int = 500
    """Pods judged in one round; of a group that does not fit only the first one is."""
    share_of_loop: float = 0.25
    """Of the time in which a round judges, that much is its own; the verbs have the rest."""


class Waker:
    """Refused pods, and the loop that wakes them."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        is_ready: Callable[[], bool],
        settings: WakeSettings | None = None,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`is_ready`: whether this replica answers filter, and so may wake."""
        self.woken = 0
        self.is_on_duty = False
        """Whether it has taken up what was refused before this replica led."""
        self._cluster = cluster
        self._client = client
        self._is_ready = is_ready
        self._settings = settings or WakeSettings()
        self._utc_now = utc_now
        self._refused = RefusedPods(self._settings.remembered)
        self._dirty: dict[str, int] = {}  # node -> rounds that it may still bring about
        self._all_dirty = False
        self._charges = ChargesAtRefusal(cluster.cache.charges)
        self._changed = asyncio.Event()
        self._tokens = self._settings.burst
        self._filled_at = 0.0
        self._tasks: asyncio.TaskGroup
        """Patches, and rounds to come; they end with `run`."""

    def refused(self, pod: Pod) -> None:
        """Filter refused a pod on every node."""
        facts = self._cluster.registry.facts(pod.uid)
        self._refused.put(pod, 0 if facts is None else facts.priority, asyncio.get_running_loop().time())
        self._note_charges(pod)

    def forget(self, uid: str) -> None:
        """Filter found a node for a pod, or the pod is bound or gone."""
        self._refused.drop(uid)
        if not len(self._refused):
            self._charges.clear()

    def freed(self, node: str) -> None:
        """Something may have become free on a node."""
        if len(self._refused):
            self._dirty[node] = self._settings.rounds
            self._changed.set()

    def freed_everywhere(self) -> None:
        """A quota changed, or this replica begins to lead."""
        if len(self._refused):
            self._all_dirty = True
            self._changed.set()

    async def run(self) -> None:
        """Wake pods until cancelled; what was started meanwhile ends with it."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._wait_and_wake()

    async def _wait_and_wake(self) -> None:
        """Wait for a change, or for the time to look at the leadership, and go through one round."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS[self.is_on_duty]):
                await self._changed.wait()
        except TimeoutError:
            pass
        ready = self._is_ready()
        if ready and not self.is_on_duty:
            await self._take_up()
        self.is_on_duty = ready
        if self._changed.is_set():
            await asyncio.sleep(self._settings.debounce_seconds)
            try:
                await self._round_over_changes()
            except Exception:  # noqa: BLE001 - a round with a bug must not be the last one
                logger().exception("waking failed")

    async def _take_up(self) -> None:
        """Take up the pods that another replica, or this one before a restart, refused and may have owed a wake."""
        waiting = [uid for uid, facts in self._cluster.registry.unbound() if facts.unschedulable]
        for number, uid in enumerate(waiting, 1):
            pod = self._cluster.pod(uid)
            if pod is not None and self._refused.get(uid) is None and self._cluster.cache.state(uid) is None:
                self.refused(pod)
            if number % _STRETCH == 0:
                await asyncio.sleep(0)
        self.freed_everywhere()

    async def _round_over_changes(self) -> None:
        self._changed.clear()
        dirty, everywhere = self._dirty, self._all_dirty
        self._dirty, self._all_dirty = {}, False
        if not self._is_ready():
            return
        # Both are asked: the charges must be looked at in every round.
        if self._charges.have_fallen(self._refused.has_namespace) or everywhere:
            dirty = dict.fromkeys(self._cluster.cache.node_names(), self._settings.rounds)
        if dirty:
            await self._round(dirty)

    def _note_charges(self, pod: Pod) -> None:
        """Note what the pod's namespace is charged, if a quota has a say in whether it is placed."""
        quota = self._cluster.quota_check(pod)
        if quota.exceeded or quota.budget is not None:
            self._charges.note(pod.namespace)

    async def _round(self, rounds: dict[str, int]) -> None:
        """Go through the refused pods in order and wake those that fit together on these nodes."""
        loop, order = asyncio.get_running_loop(), self._refused.in_order()
        simulation, again, out_of_tokens = Simulation(self._cluster, sorted(rounds)), float("inf"), False
        for _ in range(self._settings.judged_per_round):
            started = loop.time()
            refused = order.next()
            if refused is None:
                break
            placed = simulation.place(refused.pod)
            if placed is None:
                self._note_charges(refused.pod)
            else:
                order.more_of_this_group()
                wait = refused.woken_at + self._settings.pod_seconds - started
                if wait <= 0:
                    out_of_tokens = not self._take_token(started)
                    if out_of_tokens:
                        break
                    wait = self._settings.pod_seconds
                    self._wake(refused, started)
                again = min(again, wait)
                if not refused.asked_again:
                    # Until it is refused again, it is on its way to what it was woken for.
                    simulation.hold(placed)
            await asyncio.sleep((loop.time() - started) * (1 / self._settings.share_of_loop - 1))
        if out_of_tokens:
            self._start(self._mark_later(_FEW_TOKENS / self._settings.per_second, rounds))
        elif again < float("inf"):
            self._start(self._mark_later(again, {node: left - 1 for node, left in rounds.items() if left > 1}))

    def _wake(self, refused: Refused, now: float) -> None:
        refused.woken_at, refused.asked_again = now, False
        self._start(self._patch(refused))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(_logged(work))

    async def _mark_later(self, seconds: float, rounds: dict[str, int]) -> None:
        """Bring about a round over nodes that had one before."""
        await asyncio.sleep(seconds)
        for node, left in rounds.items():
            self._dirty[node] = max(left, self._dirty.get(node, 0))
        if self._dirty:
            self._changed.set()

    async def _patch(self, refused: Refused) -> None:
        pod, now = refused.pod, self._utc_now().isoformat()
        metadata = {"uid": pod.uid, "annotations": {RETRY_AT: now}}
        answer = await self._client.request(
            "PATCH",
            api_path(PODS, pod.name, namespace=pod.namespace),
            body=json.dumps({"metadata": metadata}).encode(),
            content_type=MERGE_PATCH,
            timeout_seconds=_REQUEST_SECONDS,
        )
        self.woken += 1
        if answer.ok:
            return
        logger().warning("pod cannot be woken", pod=pod.key, why=answer.message)
        refused.asked_again = True
        if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            # There is no such pod any more.
            self.forget(pod.uid)

    def _take_token(self, now: float) -> bool:
        """Take one of the tokens that limit the rate over all pods; returns whether there was one."""
        earned = (now - self._filled_at) * self._settings.per_second
        self._tokens = min(self._settings.burst, self._tokens + earned)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Do some work; a bug in it is logged, and the rest goes on."""
    try:
        await work
    except Exception:  # noqa: BLE001 - it must not end the others
        logger().exception("waking failed")
