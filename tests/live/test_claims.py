"""With claims, bursts and gangs do not pile onto one card, and no pod is refused because of them.

It exists because claims should prevent binds that fail for lack of room, each of which costs a pod a second. It must
not judge single placements; it counts failures with and without claims. Invariant: with claims no pod is refused that
would not be refused without them.
"""

import asyncio
from collections import Counter
from random import Random

import numpy as np
import pytest

from accounting.answers.claims import MAX_AGE_SECONDS, Claim, Claims, claim_on, crowded_rows, hold
from accounting.holdings import DeviceUse
from accounting.pod_record import record_pod
from tests.builders import app, make_allocation, make_cache, make_device, make_node, make_pod
from tests.extender.objects import Json, node, pod
from tests.live.harness import Bench, eventually, report, running
from tests.live.harness_scheduler import LATE_SHARE, Bound
from tests.virtual_time import passes


def failures(results: list[Bound]) -> int:
    """Return the number of binds that failed for lack of room."""
    return sum(each.error.startswith("Insufficient") for each in results)


async def burst_failures(claims: bool, seed: int) -> int:
    """Return the failures of 200 pods of mixed sizes that fill 12 nodes of 4 cards to 90 percent, under binpack."""
    rng = Random(seed)
    sizes = [rng.choice((100, 200, 300, 500)) for _ in range(200)]
    memory = max(500, -(-sum(sizes) * 10 // (9 * 12 * 4)))
    nodes = [node(f"n{number:02}", 4, memory=memory) for number in range(12)]
    async with running(*nodes, claims=claims) as bench:
        bench.api.faults.add(fault="latency", seconds=0.02, resource="pods/binding")
        pods = [bench.kube.create(pod(f"p{number:03}", memory=size)) for number, size in enumerate(sizes)]
        await bench.caught_up()
        bench.scheduler._chance = Random(seed)
        results = await bench.scheduler.burst(pods, LATE_SHARE)
        assert sum(each.ok for each in results) == len(bench.audit.bound())
        await bench.agrees()
        return failures(results)


async def gang_failures(claims: bool, seed: int) -> int:
    """Return the failures of ten gangs of 8 on 60 nodes of 2 cards; two members do not fit on one card."""
    nodes = [node(f"n{number:02}", 2, memory=1000) for number in range(60)]
    async with running(*nodes, claims=claims) as bench:
        bench.scheduler._chance = Random(seed)
        failed = 0
        for gang in range(10):
            pods = [bench.kube.create(pod(f"g{gang}-{number}", memory=600)) for number in range(8)]
            await bench.caught_up()
            results = await bench.scheduler.gang(pods)
            failed += failures(results)
            assert all(each.node is not None for each in results)
        await bench.agrees()
        return failed


@pytest.mark.slow
async def test_a_burst_of_200_pods_fails_less_than_half_as_often_with_claims() -> None:
    without, with_claims = [sum([await burst_failures(claims, seed) for seed in range(3)]) for claims in (False, True)]
    report(f"three bursts of 200 under binpack: {without} binds fail without claims, {with_claims} with")
    assert without > 0
    assert with_claims < without / 2


async def test_gangs_of_8_fail_less_than_half_as_often_with_claims() -> None:
    without, with_claims = [await gang_failures(claims, 1) for claims in (False, True)]
    report(f"80 pods in gangs of 8 under binpack: {without} binds fail without claims, {with_claims} with")
    assert without > 0
    assert with_claims < without / 2


async def locked_burst_failures(claims: bool) -> int:
    """Return the failures of 100 pods on 12 nodes, whose lock each pod holds until the plugin has served it."""
    rng = Random(1)
    sizes = [rng.choice((100, 200, 300, 500)) for _ in range(100)]
    nodes = [node(f"n{number:02}", 4, memory=max(500, sum(sizes) // 43)) for number in range(12)]
    async with running(*nodes, claims=claims, lock_mode=True, http_timeout_seconds=20.0) as bench, bench.node_actor():
        pods = [bench.kube.create(pod(f"p{number:03}", memory=size)) for number, size in enumerate(sizes)]
        await bench.caught_up()
        results = await bench.scheduler.burst(pods)
        await bench.agrees()
        return failures(results)


async def test_a_burst_under_the_node_lock_fails_less_than_half_as_often_with_claims() -> None:
    """A bind that waits for a lock holds nothing, so without claims the rest of the burst goes to the same node."""
    without, with_claims = [await locked_burst_failures(claims) for claims in (False, True)]
    report(f"burst of 100 under the node lock: {without} binds fail without claims, {with_claims} with")
    assert without > 0
    assert with_claims < without / 2


async def gang_on(bench: Bench, count: int, memory: int = 1000) -> list[Bound]:
    """Return the pods of one gang."""
    pods = [bench.kube.create(pod(f"p{number}", memory=memory)) for number in range(count)]
    await bench.caught_up()
    return await bench.scheduler.gang(pods)


async def test_a_gang_of_whole_cards_is_spread_over_exactly_the_cards_that_there_are() -> None:
    async with running(*(node(f"n{number}", 2) for number in range(4))) as bench:
        results = await gang_on(bench, 8)
        assert all(each.ok for each in results)
        assert Counter(each.node for each in results) == {f"n{number}": 2 for number in range(4)}
        await bench.agrees()


async def test_claims_share_a_nodes_cards_among_them() -> None:
    """If claims did not avoid each other's cards, all would name the same card and the others would look free."""
    async with running(node("n1", 4), node("n2", 4)) as bench:
        results = await gang_on(bench, 16, memory=500)
        assert all(each.ok for each in results)
        assert Counter(each.node for each in results) == {"n1": 8, "n2": 8}
        await bench.agrees()


async def test_claims_never_refuse() -> None:
    """Every card is claimed twice, and still every node passes filter and prioritize offers it."""
    async with running(node("n1"), node("n2")) as bench:
        pods = [bench.kube.create(pod(f"p{number}", memory=1000)) for number in range(6)]
        for made in pods:
            filtered = await bench.scheduler.filter(made)
            assert sorted(filtered.passed) == ["n1", "n2"]
            assert sorted(await bench.scheduler.prioritize(made, "n1", "n2")) == ["n1", "n2"]
        # The first bind gets the card, whatever the claims say.
        assert await bench.scheduler.bind(pods[5], "n1") == ""
        assert await bench.scheduler.bind(pods[4], "n2") == ""
        assert (await bench.scheduler.bind(pods[0], "n1")).startswith("Insufficient")
        await bench.agrees()


async def test_a_claim_moves_the_next_pod_to_another_node_only_when_it_would_not_fit() -> None:
    async with running(node("n1"), node("n2")) as bench:
        first, second, third = (bench.kube.create(pod(f"p{number}", memory=500)) for number in range(3))
        claimed = await bench.scheduler.choose(first)
        assert await bench.scheduler.choose(second) == claimed
        assert await bench.scheduler.choose(third) != claimed


async def test_a_claim_is_made_when_only_one_node_fits_since_nobody_asks_for_scores_then() -> None:
    async with running(node("n1"), node("n2")) as bench:
        first, second = (bench.kube.create(pod(name, memory=700)) for name in "ab")
        assert (await bench.scheduler.filter(first, "n1")).passed == ["n1"]
        assert _claims(bench).node_of(first["metadata"]["uid"]) == "n1"
        assert await bench.scheduler.choose(second) == "n2"


# -- how claims end ----------------------------------------------------------------------------------------------------


async def claimed(bench: Bench) -> Json:
    """Create a pod with a claim."""
    made = bench.kube.create(pod("p", memory=700))
    await bench.caught_up()
    assert await bench.scheduler.choose(made) is not None
    assert len(_claims(bench)) == 1
    return made


def _claims(bench: Bench) -> Claims:
    assert bench.live.claims is not None
    return bench.live.claims


async def test_a_claim_ends_with_the_bind() -> None:
    async with running(node("n1"), node("n2")) as bench:
        made = await claimed(bench)
        assert await bench.scheduler.bind(made, "n2") == ""
        await eventually(lambda: len(_claims(bench)) == 0)


async def test_a_claim_counts_no_more_from_the_assumption_on() -> None:
    """While the Binding is in flight the cards count once, on the node to which the pod really goes."""
    async with running(node("n1"), node("n2")) as bench:
        made = await claimed(bench)
        bench.api.faults.add(fault="latency", seconds=0.2, resource="pods/binding")
        binding = asyncio.create_task(bench.scheduler.bind(made, "n2"))
        await eventually(lambda: made["metadata"]["uid"] in bench.live.cluster.cache.pods)
        other = bench.kube.create(pod("q", memory=300))
        await bench.scheduler.filter(other)
        # Binpack: n2 holds the pod, and n1 is not crowded by its claim.
        assert await bench.scheduler.prioritize(other, "n1", "n2") == {"n2": 10, "n1": 9}
        third = bench.kube.create(pod("r", memory=900))
        assert (await bench.scheduler.filter(third)).passed == ["n1"]
        assert await binding == ""


async def test_a_claim_ends_with_a_refusal() -> None:
    async with running(node("n1"), node("n2")) as bench:
        made = await claimed(bench)
        for name in ("n1", "n2"):
            bench.kube.annotate_node(name, {"hami.io/device-cordon": f"GPU-{name}-0"})
        await bench.caught_up()
        assert (await bench.scheduler.filter(made)).passed == []
        assert len(_claims(bench)) == 0


async def test_a_claim_ends_with_the_pods_deletion() -> None:
    async with running(node("n1"), node("n2")) as bench:
        await claimed(bench)
        bench.kube.delete_pod("p")
        await eventually(lambda: len(_claims(bench)) == 0)


def _rejected(message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


async def test_a_claim_ends_when_another_plugin_rejects_the_pod() -> None:
    async with running(node("n1"), node("n2")) as bench:
        await claimed(bench)
        bench.kube.annotate_pod("p", {"note": "a change that is no rejection"})
        await bench.caught_up()
        assert len(_claims(bench)) == 1
        bench.kube.set_status("p", _rejected("another pod waits for the same volume"))
        await eventually(lambda: len(_claims(bench)) == 0)


async def test_a_rejection_from_before_the_claim_does_not_end_it() -> None:
    """kube-scheduler asks again because of its own write of the condition, before our watch shows it."""
    async with running(node("n1"), node("n2")) as bench:
        made = bench.kube.create(pod("p", memory=700))
        await bench.caught_up()
        bench.api.faults.add(fault="delay", seconds=0.3, resource="pods", verb="watch", event="MODIFIED")
        bench.kube.set_status("p", _rejected("no room"))
        assert await bench.scheduler.choose(bench.kube.pod("p")) is not None
        bench.kube.annotate_pod("p", {"note": "later"})
        await bench.caught_up()
        await passes(0.4)
        assert len(_claims(bench)) == 1
        bench.api.faults.clear()
        bench.kube.set_status("p", _rejected("no volume"))
        await eventually(lambda: len(_claims(bench)) == 0, seconds=1.0)
        entry = bench.live.cluster.registry.entry(made["metadata"]["uid"])
        assert entry is not None
        assert entry.rejection_at_claim is None


async def test_a_claim_is_replaced_by_the_next_filter() -> None:
    async with running(node("n1"), node("n2"), node("n3")) as bench:
        made = await claimed(bench)
        uid = made["metadata"]["uid"]
        first = str(_claims(bench).node_of(uid))
        others = sorted({"n1", "n2", "n3"} - {first})
        assert (await bench.scheduler.filter(made, *others)).passed == others
        assert len(_claims(bench)) == 0
        await bench.scheduler.prioritize(made, *others)
        assert _claims(bench).node_of(uid) in others


async def test_refreshing_an_equal_claim_does_not_change_the_version() -> None:
    """A gang that waits for its last member is asked about a thousand times a second; answers come from memory."""
    async with running(node("n1"), node("n2")) as bench:
        made = await claimed(bench)
        version = bench.live.hooks.version
        for _ in range(3):
            assert await bench.scheduler.choose(made) is not None
        assert bench.live.hooks.version == version


# -- the values --------------------------------------------------------------------------------------------------------


def test_claims_by_themselves() -> None:
    claims = Claims(max_age_seconds=MAX_AGE_SECONDS)
    a, b = (Claim(name, (DeviceUse("GPU-0", 1, 500, 0),), 1) for name in ("n1", "n2"))
    claims.put("p", a, 0.0)
    version = claims.version
    claims.put("p", a, 1.5)
    assert claims.version == version
    claims.expire(2.5)
    assert claims.node_of("p") == "n1", "an equal claim is as young as the last question"
    claims.put("p", b, 1.0)
    assert (claims.node_of("p"), len(claims)) == ("n2", 1)
    assert claims.version > version
    claims.drop("p")
    claims.drop("p")
    assert len(claims) == 0
    claims.put("p", a, 0.0)
    claims.put("q", a, 1.0)
    claims.expire(2.5)
    assert (claims.node_of("p"), claims.node_of("q")) == (None, "n1")


def test_crowded_are_the_nodes_where_the_pod_would_not_fit_beside_the_claims() -> None:
    cache = make_cache([make_node("n1", [make_device(slots=2)]), make_node("n2")])
    snapshot, claims = cache.snapshot(), Claims()
    wanted = make_pod("p", [app(300)])
    assert crowded_rows(cache, snapshot, wanted, claims) is None
    for number in range(3):
        other = make_pod(f"other-{number}", [app(300)])
        claim = claim_on(cache, snapshot, other, "n1", claims)
        assert claim is not None
        claims.put(other.uid, claim, 0.0)
        crowded = crowded_rows(cache, snapshot, wanted, claims)
        assert crowded is not None
        assert crowded[snapshot.rows["n1"]] == (number >= 1)
        assert not crowded[snapshot.rows["n2"]]
    # Neither its own claim crowds a pod, nor that of a pod that is booked by now.
    alone = Claims()
    alone.put(wanted.uid, Claim("n1", (DeviceUse("GPU-0", 2, 1000, 0),), 2), 0.0)
    assert crowded_rows(cache, snapshot, wanted, alone) is None
    booked = make_pod("b", [app(300)], node="n2", allocation=make_allocation([("GPU-0", 300, 0)]))
    alone.put(booked.uid, Claim("n1", (DeviceUse("GPU-0", 2, 1000, 0),), 2), 0.0)
    cache.add_pod(record_pod(booked))
    assert crowded_rows(cache, cache.snapshot(), make_pod("q", [app(300)]), alone) is not None
    alone.drop(wanted.uid)
    assert crowded_rows(cache, cache.snapshot(), make_pod("q", [app(300)]), alone) is None


def test_what_is_taken_of_a_changed_view_shows_the_change() -> None:
    """Cards are chosen in a view of one node, taken from a view in which other cards are already held."""
    cache = make_cache([make_node("n1"), make_node("n2")])
    snapshot = cache.snapshot()
    view = snapshot.take(snapshot.rows_of(["n1", "n2"]))
    hold(view, 1, cache.positions("n2"), (DeviceUse("GPU-0", 1, 700, 10),), 1)
    view = view.refreshed()
    first, second = (view.take(np.array([column])) for column in (0, 1))
    assert (first.free_memory[0, 0], second.free_memory[0, 0]) == (1000, 300)
    again = view.take(np.array([0, 1])).take(np.array([1]))
    assert (again.requested.count[0], again.free_cores[0, 0]) == (1, 90)
    assert not snapshot.requested.slots.any()


@pytest.mark.parametrize("cards, memory, expected", [(1, 600, ["GPU-0", "GPU-0"]), (2, 600, ["GPU-0", "GPU-1"])])
def test_a_claim_takes_cards_beside_the_other_claims_where_it_can(cards: int, memory: int, expected: list[str]) -> None:
    cache, claims = make_cache([make_node("n1", cards)]), Claims()
    for name in ("a", "b"):
        made = make_pod(name, [app(memory)])
        claim = claim_on(cache, cache.snapshot(), made, "n1", claims)
        assert claim is not None
        claims.put(made.uid, claim, 0.0)
    found = [claim.uses[0].uuid for claim in claims.by_node(cache, "")["n1"]]
    assert sorted(found) == expected


def test_no_claim_on_a_node_that_is_not_known_or_does_not_fit() -> None:
    cache, claims = make_cache([make_node("n1", 1)]), Claims()
    assert claim_on(cache, cache.snapshot(), make_pod("p", [app(1)]), "n2", claims) is None
    assert claim_on(cache, cache.snapshot(), make_pod("p", [app(5000)]), "n1", claims) is None
