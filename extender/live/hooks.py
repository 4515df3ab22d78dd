"""What a live cluster adds to the verbs: readiness, claims, and remembering refused pods.

It must not await anything. Invariant: nothing noted here makes filter refuse a node.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from accounting.answers import claim_on, crowded_rows
from accounting.pod import Pod
from accounting.state import BoolArray, Snapshot
from extender.cluster import Cluster
from extender.live.evicting import Evictor
from extender.live.leading import Leadership
from extender.live.refusals import RefusalReporter
from extender.live.waking import Waker
from extender.live.watching import PodInformer
from extender.verbs import Decision, Hooks
from extender.wire.core_v1 import Pod as WirePod


class Refused(NamedTuple):
    """Who is told of pods that no node takes."""

    waker: Waker
    evictor: Evictor
    refusals: RefusalReporter


class LiveHooks(Hooks):
    """Hooks of one live cluster. `steady_seconds` is any clock that does not jump."""

    def __init__(
        self,
        cluster: Cluster,
        informer: PodInformer,
        refused: Refused,
        leadership: Leadership,
        is_synced: Callable[[], bool],
        steady_seconds: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._waker, self._evictor, self._refusals = refused
        self._informer = informer
        self._claims = cluster.registry.claims
        self._leadership = leadership
        self._is_synced = is_synced
        self._steady_seconds = steady_seconds

    @property
    def version(self) -> int:
        """Changes with the claims."""
        if self._claims is None:
            return 0
        self._cluster.registry.expire_claims(self._steady_seconds())
        return self._claims.version

    def why_not_ready(self) -> str:
        """Return why this replica cannot answer: it is a standby or has not listed everything; "" if it can."""
        if not self._is_synced():
            return "not ready: the state of the cluster is not known yet"
        return "" if self._leadership.is_leader() else "not ready: this replica does not lead"

    def filtered(self, pod: Pod, wire: WirePod, names: Sequence[str], feasible: BoolArray) -> None:
        """Remember the pod's version for bind, its claim, and whether it waits for room."""
        self._informer.asked_about(wire)
        fitting = int(np.count_nonzero(feasible))
        self._end_outdated_claim(pod.uid, names, feasible)
        if fitting == 1:
            # For a single node kube-scheduler does not ask for scores.
            self.scored(pod, names[int(np.argmax(feasible))])
        if fitting or pod.invalid:
            self._waker.forget(pod.uid)
            self._evictor.forget(pod.uid)
        else:
            self._waker.refused(pod)
            self._evictor.refused(pod, names)

    def decided(self, pod: Pod, decision: Decision) -> None:
        """Write an event on the pod when the reason against it changes."""
        self._refusals.note(pod, decision)

    def preempted(self, pod: Pod, *, helped: bool) -> None:
        """Leave a pod to kube-scheduler that it helps by itself."""
        if helped:
            self._evictor.helped(pod.uid)

    def crowded(self, snapshot: Snapshot, pod: Pod) -> BoolArray | None:
        """Return the nodes where the pod would not fit beside what others claim; None without claims."""
        return None if self._claims is None else crowded_rows(self._cluster.cache, snapshot, pod, self._claims)

    def scored(self, pod: Pod, best: str | None) -> None:
        """Claim the cards on the best node."""
        if self._claims is None or best is None or not pod.asks:
            return
        cache = self._cluster.cache
        budget = self._cluster.quota_check(pod).budget
        claim = claim_on(cache, cache.snapshot(), pod, best, self._claims, budget)
        if claim is not None:
            self._cluster.registry.claim(pod.uid, claim, self._steady_seconds())

    def _end_outdated_claim(self, uid: str, names: Sequence[str], feasible: BoolArray) -> None:
        """End the pod's claim if its node is no longer offered or no longer fits."""
        node = None if self._claims is None else self._claims.node_of(uid)
        if self._claims is not None and node is not None and node not in compress(names, feasible.tolist()):
            self._cluster.registry.end_claim(uid)
