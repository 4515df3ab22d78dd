"""Waking refused pods that would fit now.

Why it exists: in most releases kube-scheduler tries a waiting pod again before our watch shows the deletion that freed
its room, so the pod is refused and not tried again for minutes. An annotation that is patched on the pending pod makes
kube-scheduler try exactly that pod. It must not book anything. Invariants: no more pods are woken than fit together, so
freed room costs a bounded number of patches whatever the backlog; the highest priority comes first, then the pod
refused longest; there is one rate limit over all and one per pod; only the leader wakes pods.

    something may have become free on nodes -> after a short wait, one round over these nodes: each refused pod in
    order: does it fit beside those woken before it? patch it : pass over all of its group a round that woke a pod is
    followed by another one, in case the pod does not take its room; three rounds at most, so a change that helps nobody
    is forgotten
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
#: How often the loop checks whether this replica leads.
_LOOK_SECONDS = (0.1, 1.0)
#: A round without tokens waits until there are this many.
_FEW_TOKENS = 5
#: Pods taken up without a pause when this replica begins to lead.
_STRETCH = 200


@dataclass(frozen=True, slots=True)
class WakeSettings:
    """Rates and bounds of waking, with their reasons."""

    debounce_seconds: float = 0.01
    """The wait before a round, so that changes close together share one round."""
    per_second: float = 20.0
    burst: float = 40.0
    pod_seconds: float = 5.0
    """How long a pod waits after it was woken and refused again; kube-scheduler's own backoff is similar."""
    remembered: int = 20_000
    rounds: int = 3
    """The most rounds after one change: a woken pod may not come, or be refused for another reason."""
    judged_per_round: int = 500
    """The most pods judged in one round; of a group that does not fit only the first pod is judged."""
    share_of_loop: float = 0.25
    """Share of the time that a round uses for judging; the verbs have the rest."""


class Waker:
    """Keeps the refused pods, and wakes them in a loop."""

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
        """Whether it has taken up the pods that were refused before this replica led."""
        self._cluster = cluster
        self._client = client
        self._is_ready = is_ready
        self._settings = settings or WakeSettings()
        self._utc_now = utc_now
        self._refused = RefusedPods(self._settings.remembered)
        self._dirty: dict[str, int] = {}  # node -> rounds that may still follow its change
        self._all_dirty = False
        self._charges = ChargesAtRefusal(cluster.cache.charges)
        self._changed = asyncio.Event()
        self._tokens = self._settings.burst
        self._filled_at = 0.0
        self._tasks: asyncio.TaskGroup
        """Patches and coming rounds; they end with `run`."""

    def refused(self, pod: Pod) -> None:
        """Note that filter refused a pod on every node."""
        facts = self._cluster.registry.facts(pod.uid)
        self._refused.put(pod, 0 if facts is None else facts.priority, asyncio.get_running_loop().time())
        self._note_charges(pod)

    def forget(self, uid: str) -> None:
        """Forget a pod: filter found a node for it, or it is bound or gone."""
        self._refused.drop(uid)
        if not len(self._refused):
            self._charges.clear()

    def freed(self, node: str) -> None:
        """Note that something may have become free on a node."""
        if len(self._refused):
            self._dirty[node] = self._settings.rounds
            self._changed.set()

    def freed_everywhere(self) -> None:
        """Note that any node may fit now: a quota changed, or this replica begins to lead."""
        if len(self._refused):
            self._all_dirty = True
            self._changed.set()

    async def run(self) -> None:
        """Wake pods until cancelled; the tasks that it started end with it."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._wait_and_wake()

    async def _wait_and_wake(self) -> None:
        """Wait for a change, or for the next check of the leadership, and run one round."""
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
        """Take up waiting pods that another replica, or this one before a restart, refused and might have woken.

        Also those whose try ended in an error because nobody answered: kube-scheduler 1.34 tries such a pod again after
        five minutes.
        """
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
        # No short cut: the charges must be compared in every round.
        if self._charges.have_fallen(self._refused.has_namespace) or everywhere:
            dirty = dict.fromkeys(self._cluster.cache.node_names(), self._settings.rounds)
        if dirty:
            await self._round(dirty)

    def _note_charges(self, pod: Pod) -> None:
        """Note what the pod's namespace is charged, if a quota may decide whether the pod is placed."""
        quota = self._cluster.quota_check(pod)
        if quota.exceeded or quota.budget is not None:
            self._charges.note(pod.namespace)

    async def _round(self, rounds: dict[str, int]) -> None:
        """Go through the refused pods in order, and wake those that fit together on these nodes."""
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
                    # Until it is refused again, it counts as on its way to the room it was woken for.
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
        """Start another round over nodes that have had one."""
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
        """Take a token of the rate limit over all pods; returns whether there was one."""
        earned = (now - self._filled_at) * self._settings.per_second
        self._tokens = min(self._settings.burst, self._tokens + earned)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Run some work; a bug in it is logged, and the waker goes on."""
    try:
        await work
    except Exception:  # noqa: BLE001 - it must not end the others
        logger().exception("waking failed")
