"""Evicting by a replica that holds a lease, as it does by default.

It exists because a lease's rest is often shorter than a write may take, and a leader is one all the same. It must not
elect a leader. Invariants: a preemption under way stays the same one while its replica leads, so that pauses grow and
no pod is woken without a cause.
"""

from dataclasses import replace

from extender.convert.annotations import RETRY_AT
from extender.live.leading import LeaseSettings
from tests.apiserver.beside import Beside
from tests.extender.objects import node, pod
from tests.live.harness import running
from tests.live.harness_evicting import HIGH, evicted, evicting, holder, queue, with_priority
from tests.virtual_time import passes

#: The first one 2 s after the refusal at the earliest, then each pause is half of 1, 2, 4, 8 and 16 s at least.
_MOST_TRIES = 6


def guarded(allowed: int) -> dict[str, object]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed},
    }


async def test_while_a_budget_says_no_the_leader_waits_longer_each_time_and_wakes_nobody() -> None:
    web = with_priority(holder("web", "n1"), 0, labels={"app": "web"})
    settings = replace(evicting(), leader_elect=True, lease=LeaseSettings())
    assert settings.lease.duration_seconds < settings.evict.request_seconds + settings.lease.retry_seconds
    async with running(node("n1"), web, guarded(0), settings=settings) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(with_priority(pod("high", memory=500), HIGH))
        await passes(20)
        assert 2 <= len(evicted(bench)) <= _MOST_TRIES
        assert RETRY_AT not in bench.kube.pod("high")["metadata"]["annotations"]
