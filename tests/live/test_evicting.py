"""Evicting where kube-scheduler never asks, on the project's own API server.

It exists because between a refusal and the pod's node lie several writes, and everything may happen between them. It
must not choose victims itself. Invariant: nobody is evicted without need, no card is over-committed, and in the end the
preemptor runs or it was said why not.
"""

from tests.apiserver.beside import Beside
from tests.extender.objects import node, pod
from tests.live.harness import running
from tests.live.harness_evicting import (
    HIGH,
    MIDDLE,
    evicted,
    evicting,
    holder,
    is_bound,
    names_left,
    queue,
    with_priority,
)


async def test_a_pod_that_lacks_memory_alone_gets_it_from_the_least_important() -> None:
    objects = [node("n1"), node("n2"), holder("low", "n1"), holder("middle", "n2", priority=MIDDLE)]
    async with running(*objects, settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(with_priority(pod("high", memory=500), HIGH))
        await is_bound(bench, "high", "n1")
        assert evicted(bench) == ["low"]
        assert names_left(bench) == {"middle", "high"}
        await bench.agrees()
