"""Waking with cards in MIG mode, where the charge is what the instances have.

It exists because such a charge depends on the card. It must not repeat what `test_waking_quotas` tests.
"""

from tests.extender.objects import MEMORY, bound, card, node, quota
from tests.extender.test_mig import MIG_NODE, instance
from tests.live.harness import running
from tests.live.harness_waking import refuse
from tests.live.test_waking import is_woken_and_placed


async def test_on_a_live_cluster_a_charge_that_goes_down_wakes_a_pod_that_no_instance_kept_within_its_quota() -> None:
    # The request would have been within the quota, and the room that becomes free is on another node.
    held = bound("a", "n2", "GPU-b", 600)
    async with running(MIG_NODE, node("n2", [card("GPU-b")]), held, quota({f"requests.{MEMORY}": 5000})) as bench:
        (made,) = await refuse(bench, instance())
        assert (await bench.scheduler.filter(made)).unresolvable["n1"].startswith("QuotaExceeded")
        await is_woken_and_placed(bench, "p", lambda: bench.kube.delete_pod("a"))
        assert bench.live.cluster.cache.used("default").memory == 4864
