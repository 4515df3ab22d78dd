"""Preemption on a live cluster: the API server is the one for tests, and the test plays kube-scheduler.

It exists because watched objects decide which pods may be evicted. It must not choose victims itself. Invariant: no
card is over-committed at any moment, and every pod whose end was not needed is still there at the end.
"""

from typing import Any

from tests.extender.objects import Json, bound, node, pod
from tests.live.harness import eventually, running

LOW, HIGH = 0, 1000


def with_priority(made: Json, priority: int, **meta: Any) -> Json:  # noqa: ANN401 - any field
    made["spec"]["priority"] = priority
    made["metadata"] |= meta
    return made


def uids(victims: Json) -> set[str]:
    return {each["UID"] for each in victims["Pods"]}


async def test_a_budget_that_is_watched_decides_and_its_violations_are_counted() -> None:
    guarded = with_priority(bound("guarded", "n1", "GPU-n1-0", 900), LOW, labels={"app": "web"})
    free = with_priority(bound("free", "n2", "GPU-n2-0", 900), LOW + 5)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    async with running(node("n1"), node("n2"), guarded, free, budget) as bench:
        budgets = bench.live.cluster.residents.budgets
        await eventually(lambda: budgets.known and bool(list(budgets.names())))
        made = bench.kube.create(with_priority(pod("high", memory=500), HIGH))
        answer = await bench.scheduler.preempt(made, {"n1": [], "n2": []})
        assert {name: each["NumPDBViolations"] for name, each in answer.items()} == {"n1": 1, "n2": 0}
        assert uids(answer["n1"]) == {guarded["metadata"]["uid"]}
        bench.kube.send("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b")
        await eventually(lambda: not list(budgets.names()))
        assert (await bench.scheduler.preempt(made, {"n1": []}))["n1"]["NumPDBViolations"] == 0


async def test_a_pod_whose_bind_is_not_settled_is_a_victim_only_if_it_was_offered() -> None:
    """kube-scheduler has forgotten such a pod, or has its bind in flight and offers it."""
    async with running(node("n1")) as bench:
        kube, scheduler, faults = bench.kube, bench.scheduler, bench.api.faults
        low = kube.create(with_priority(pod("low", memory=900), LOW))
        high = kube.create(with_priority(pod("high", memory=500), HIGH))
        faults.add(fault="status", code=500, resource="pods/binding")
        reading = faults.add(fault="status", code=500, resource="pods", verb="get")
        assert (await scheduler.filter(low)).passed == ["n1"]
        assert (await scheduler.bind(low, "n1")).startswith("Unknown")
        assert await scheduler.preempt(high, {"n1": []}) == {}
        offered = await scheduler.preempt(high, {"n1": [low["metadata"]["uid"]]})
        assert uids(offered["n1"]) == {low["metadata"]["uid"]}
        faults.remove(reading.id)
        faults.clear()
        assert await scheduler.place(kube.pod("low")) == "n1"
        await bench.caught_up()
        assert uids((await scheduler.preempt(high, {"n1": []}))["n1"]) == {low["metadata"]["uid"]}


async def test_a_victim_with_a_grace_period_frees_its_card_for_the_nominated_pod_alone() -> None:
    victim = with_priority(bound("victim", "n1", "GPU-n1-0", 900), LOW)
    beside = with_priority(bound("beside", "n1", "GPU-n1-0", 50), LOW)
    async with running(node("n1"), victim, beside) as bench:
        cluster, kube, scheduler = bench.live.cluster, bench.kube, bench.scheduler
        made = kube.create(with_priority(pod("high", memory=800), HIGH))
        answer = await scheduler.preempt(made, {"n1": [beside["metadata"]["uid"]]})
        # `beside` frees too little, and stays offered because not all requests are known.
        assert uids(answer["n1"]) == {victim["metadata"]["uid"], beside["metadata"]["uid"]}
        kube.delete_pod("victim", grace_seconds=60)
        kube.set_status("high", {"nominatedNodeName": "n1"})
        await eventually(lambda: bool(cluster.nominations.nodes()))
        await eventually(lambda: (found := cluster.pod(victim["metadata"]["uid"])) is not None and found.deleting)
        # Waiting is enough, so no other pod goes, and a second pod of this priority cannot count on the same card.
        assert await scheduler.preempt(kube.pod("high"), {"n1": []}) == {}
        racing = kube.create(with_priority(pod("racing", memory=800), HIGH))
        assert await scheduler.preempt(racing, {"n1": []}) == {}
        kube.delete_pod("victim")
        await bench.caught_up()
        small = kube.create(with_priority(pod("small", memory=500), LOW))
        assert not (await scheduler.filter(small)).passed
        assert not (await scheduler.filter(racing)).passed
        await bench.restart()
        assert not (await bench.scheduler.filter(small)).passed
        assert await bench.scheduler.place(kube.pod("high")) == "n1"
        assert not (await bench.scheduler.filter(small)).passed
        assert kube.node_of("beside") == "n1"


async def test_a_preemptor_that_is_deleted_half_way_keeps_nothing() -> None:
    victim = with_priority(bound("victim", "n1", "GPU-n1-0", 900), LOW)
    async with running(node("n1"), victim) as bench:
        bench.kube.create(with_priority(pod("high", memory=800), HIGH))
        bench.kube.set_status("high", {"nominatedNodeName": "n1"})
        bench.kube.delete_pod("victim")
        await eventually(lambda: bool(bench.live.cluster.nominations.nodes()))
        small = bench.kube.create(with_priority(pod("small", memory=500), LOW))
        await bench.caught_up()
        assert not (await bench.scheduler.filter(small)).passed
        bench.kube.delete_pod("high")
        await eventually(lambda: not bench.live.cluster.nominations.nodes())
        assert await bench.scheduler.place(small) == "n1"
