"""What a live cluster adds to the verbs: readiness, claims, and who was refused.

It must not await anything. Invariant: a claim or a refusal noted here never makes an answer a refusal.
"""

from collections.abc import Callable, Sequence
from itertools import compress

import numpy as np

from accounting.answers import claim_on, crowded_rows
from accounting.pod import Pod
from accounting.state import BoolArray, Snapshot
from extender.cluster import Cluster
from extender.live.leading import Leadership
from extender.live.refusals import RefusalReporter
from extender.live.waking import Waker
from extender.live.watching import Facts, PodTable
from extender.verbs import Decision, Hooks
from extender.wire.core_v1 import Pod as WirePod


class LiveHooks(Hooks):
    """Hooks of one live cluster. `steady_seconds` is any clock that does not jump."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        waker: Waker,
        leadership: Leadership,
        is_synced: Callable[[], bool],
        steady_seconds: Callable[[], float],
        refusals: RefusalReporter,
    ) -> None:
        self._cluster = cluster
        self._refusals = refusals
        self._facts = facts
        self._table = PodTable(cluster, facts)
        self._claims = cluster.claims
        self._rejections: dict[str, int] = {}  # UIDs of pods with a claim -> the rejection that was known then
        self._waker = waker
        self._leadership = leadership
        self._is_synced = is_synced
        self._steady_seconds = steady_seconds

    @property
    def version(self) -> int:
        """Changes with the claims."""
        if self._claims is None:
            return 0
        self._cluster.expire_claims(self._steady_seconds())
        return self._claims.version

    def why_not_ready(self) -> str:
        """A standby and a process that has not listed everything do not know."""
        if not self._is_synced():
            return "not ready: the state of the cluster is not known yet"
        return "" if self._leadership.is_leader() else "not ready: this replica does not lead"

    def filtered(self, pod: Pod, wire: WirePod, names: Sequence[str], feasible: BoolArray) -> None:
        """Remember the pod's version for bind, where it will probably go, and whether it waits for room."""
        self._table.asked_about(wire)
        fitting = int(np.count_nonzero(feasible))
        self._end_outdated_claim(pod.uid, names, feasible)
        if fitting == 1:
            # Of one node kube-scheduler asks for no scores.
            self.scored(pod, names[int(np.argmax(feasible))])
        if fitting or pod.invalid:
            self._waker.forget(pod.uid)
        else:
            self._waker.refused(pod)

    def decided(self, pod: Pod, decision: Decision) -> None:
        """Tell the pod's reader when the reason against it changes."""
        self._refusals.note(pod, decision)

    def crowded(self, snapshot: Snapshot, pod: Pod) -> BoolArray | None:
        """Nodes where the pod would not fit beside what others claim."""
        return None if self._claims is None else crowded_rows(self._cluster.cache, snapshot, pod, self._claims)

    def scored(self, pod: Pod, best: str | None) -> None:
        """Claim the cards on the best node."""
        if self._claims is None or best is None:
            return
        cache = self._cluster.cache
        budget = self._cluster.quota_check(pod).budget
        claim = claim_on(cache, cache.snapshot(), pod, best, self._claims, budget)
        if claim is not None:
            self._cluster.claim(pod.uid, claim, self._steady_seconds())
            self._rejections[pod.uid] = self._rejection(pod.uid)

    def seen(self, uid: str, *, is_over: bool) -> None:
        """A pod was told of. `is_over`: it is bound or gone; else its claim ends when another plugin has rejected it.

        That shows in a condition that has changed since the claim. One that says the same again is not written, and
        then the claim ends by age.
        """
        noted = self._rejections.get(uid)
        if not is_over and (noted is None or self._rejection(uid) in (0, noted)):
            return
        self._rejections.pop(uid, None)
        self._cluster.end_claim(uid)

    def _rejection(self, uid: str) -> int:
        facts = self._facts.pods.get(uid)
        return 0 if facts is None else facts.rejection

    def _end_outdated_claim(self, uid: str, names: Sequence[str], feasible: BoolArray) -> None:
        """A claim on a node that is no longer offered, or does not fit, is over; another one is left as it is."""
        node = None if self._claims is None else self._claims.node_of(uid)
        if self._claims is not None and node is not None and node not in compress(names, feasible.tolist()):
            self._cluster.end_claim(uid)
