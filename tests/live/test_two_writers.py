"""Two replicas that change places at the worst moments, and every card given out once.

It exists because of user_reports A63 and A64. It must not ask the replicas how they did: the reference judges every
write of the API server. Invariants: schedules come from a seed; no step waits for a replica to be quick. In the
constructed cases leases are so long that nobody loses one by being slow, and time passes when the test says so.
"""

import asyncio
import itertools
from random import Random

import pytest
from structlog.testing import capture_logs

from extender.live.leading.election import LeaderElector
from tests.apiserver.resources import EVENTS
from tests.live.harness import eventually, names
from tests.live.leader_harness import holder_of
from tests.live.pair_harness import LEASE, NODES, SHORT, Pair, pair
from tests.live.replica_harness import Replica
from tests.virtual_time import until

pytestmark = pytest.mark.real_time

#: How often a replica is stopped or cut off, at least.
ROUNDS = 5
_STEP_SECONDS = 0.02


# -- constructed cases ----------------------------------------------------------------------------------------------


async def test_a63_a_leader_that_dies_right_after_its_binding_is_remembered() -> None:
    async with pair(cards=1) as two:
        first = await two.leader()
        placed = two.new_pod(1000)
        assert await two.asked(first, placed, "n1") == ""
        await first.stop()
        second = two.other(first)
        await two.leads(second)
        assert "Insufficient" in await two.asked(second, two.new_pod(1000), "n1")
        assert await two.asked(second, two.new_pod(1000), "n2") == ""
        first.resume()
        await eventually(lambda: not first.answers, "the first one sees that its lease is over")
        assert two.audit.overcommitted == []


async def test_a64_only_one_answers_and_the_other_says_so() -> None:
    async with pair() as two:
        first = await two.leader()
        await eventually(lambda: all(one.live.is_synced() for one in two.replicas))
        error = await two.bind(two.other(first), two.new_pod(10), "n1")
        assert error == "not ready: this replica does not lead"
        assert two.api.requests.count(resource="pods/binding") == 0


async def test_a64_a_failover_leaves_no_pod_unscheduled() -> None:
    """Pods that the old leader has bound, was binding and has not been asked about: all are placed afterwards."""
    async with pair(cards=1) as two:
        first = await two.leader()
        pods = dict(zip(NODES, [two.new_pod(1000) for _ in NODES], strict=True))
        for name in NODES[:2]:
            assert await two.asked(first, pods[name], name) == ""
        first.stop_before_request()
        binding = asyncio.create_task(two.bind(first, pods["n3"], "n3"))
        await eventually(first.stopped.is_set, "the first one is stopped in the middle of a bind")
        second = two.other(first)
        await two.leads(second)
        for name, asked in pods.items():
            assert await two.asked(second, asked, name) == ""
        first.resume()
        await binding
        assert two.audit.bound() == {asked["metadata"]["name"]: name for name, asked in pods.items()}
        assert two.audit.overcommitted == []


@pytest.mark.parametrize("late", [True, False], ids=["delivered late", "lost"])
async def test_a_partition_in_the_middle_of_a_bind(late: bool) -> None:
    async with pair(cards=1) as two:
        first = await two.leader()
        its_network = two.networks[two.replicas.index(first)]
        asked = two.new_pod(1000)
        # Known to it, so that only the Binding is on its way.
        await eventually(lambda: first.live.cluster.pod(asked["metadata"]["uid"]) is not None)
        its_network.hold()
        binding = asyncio.create_task(two.bind(first, asked, "n1"))
        await eventually(first.wrote.is_set, "the Binding is on its way")
        if late:
            # The next leader is ready only after it can come no more.
            await first.stop()
            two.time.passes(LEASE.write_deadline_seconds / 2)
            its_network.heal()
            await eventually(lambda: two.kube.node_of(asked["metadata"]["name"]) == "n1", "the late write")
        else:
            two.time.passes(LEASE.write_deadline_seconds)
            assert await binding  # no answer came, so it is not a success
            its_network.break_connections()
            its_network.heal()
            await first.stop()
        second = two.other(first)
        await two.leads(second)
        other = await two.asked(second, two.new_pod(1000), "n1")
        assert ("Insufficient" in other) if late else (other == "")
        first.resume()
        await binding
        assert two.audit.overcommitted == []
        assert two.kube.node_of(asked["metadata"]["name"]) == ("n1" if late else None)


@pytest.mark.parametrize("place", ["at any await", "after the question"])
async def test_a_leader_that_is_stopped_on_its_way_to_the_write_does_not_write(place: str) -> None:
    """Whatever comes between bind's question and the write, the fence is asked after the last await."""
    async with pair(cards=1) as two:
        first = await two.leader()
        late, rival = two.new_pod(700), two.new_pod(700)
        if place == "after the question":
            first.stop_before_request()
        binding = asyncio.create_task(two.bind(first, late, "n1"))
        if place == "at any await":
            first.stop_now()
        await eventually(first.stopped.is_set, "the first one is stopped")
        second = two.other(first)
        await two.leads(second)
        won = await two.asked(second, rival, "n1") == ""
        first.resume()
        await binding
        assert two.audit.overcommitted == []
        if place == "after the question":
            assert won
            assert two.kube.node_of(late["metadata"]["name"]) is None


async def test_what_no_lease_can_fence_is_detected_and_reported() -> None:
    """A process that is stopped between the last question and the write gives a card out a second time."""
    async with pair(cards=1) as two:
        first = await two.leader()
        late, rival = two.new_pod(700), two.new_pod(700)
        first.stop_at_write()
        binding = asyncio.create_task(two.bind(first, late, "n1"))
        await eventually(first.stopped.is_set, "the first one is about to write")
        second = two.other(first)
        await two.leads(second)
        assert await two.asked(second, rival, "n1") == ""
        with capture_logs() as logs:
            first.resume()
            await binding
            await eventually(lambda: two.kube.node_of(late["metadata"]["name"]) == "n1", "the late write")
            assert two.audit.overcommitted
            assert all("n1 GPU-n1-0 holds" in each for each in two.audit.overcommitted)
            # The leader sees the late pod and reports it, with an event on the pod.
            await eventually(lambda: second.live.overcommit.reports >= 1, "a report")
            await eventually(lambda: len(two.api.store.tables[EVENTS]) >= 1, "an event")
        reported = [entry for entry in logs if entry["event"] == "cards over-committed"]
        assert {entry["cards"] for entry in reported} == {("GPU-n1-0",)}
        event = two.api.store.tables[EVENTS].rows[0].decode()
        assert (event["reason"], event["type"]) == ("DeviceOvercommitted", "Warning")
        # Nothing more is placed there, and nothing is evicted.
        assert await two.asked(second, two.new_pod(1), "n1")
        assert len(two.kube.pods()) == 3


async def test_a_graceful_end_hands_over_at_once() -> None:
    async with pair() as two:
        first = await two.leader()
        second = two.other(first)
        await eventually(second.live.is_synced)
        assert await two.asked(first, two.new_pod(10), "n1") == ""
        await first.end(seconds=5)
        # Not after the ten minutes of the lease, nor after the ten seconds of a write: no time passes.
        await eventually(lambda: second.answers, "the standby leads")
        assert two.time.ahead == 0
        assert await two.asked(second, two.new_pod(10), "n1") == ""


async def test_a_bind_that_is_not_settled_keeps_the_lease() -> None:
    async with pair() as two:
        first, asked = await two.leader(), two.new_pod(10)
        await eventually(lambda: first.live.cluster.pod(asked["metadata"]["uid"]) is not None)
        held = two.api.faults.add(fault="hang", resource="pods/binding")
        two.api.faults.add(fault="hang", verb="get", resource="pods")
        binding = asyncio.create_task(two.bind(first, asked, "n1"))
        await eventually(lambda: held.hits == 1, "the Binding is on its way")
        two.time.passes(LEASE.write_deadline_seconds)
        assert await binding
        await first.end(seconds=0.3)
        # Its Binding may still come, so the next leader waits for the lease's end.
        assert holder_of(two.api) not in ("", None)


# -- random schedules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_no_card_is_given_twice_whatever_the_schedule(seed: int) -> None:
    """Leaders are stopped and cut off for shorter and longer than their lease; watches lose events all the time."""
    chance = Random(seed)
    async with pair(cards=1, lease=SHORT, seed=seed) as two:
        binds: set[asyncio.Task[str]] = set()
        led: list[int] = []
        two.api.faults.add(fault="drop", event="MODIFIED", resource="pods", probability=0.2)
        two.api.faults.add(fault="reset", resource="pods/binding", after=True, probability=0.05)
        two.api.faults.add(fault="status", code=503, resource="pods/binding", probability=0.05)
        # As many rounds as it takes: on a slow machine less happens in one.
        for played in itertools.count():
            if played >= ROUNDS and two.outcomes["bound"] >= 30 and len(led) >= 2:
                break
            number = two.replicas.index(await two.leader())
            if led[-1:] != [number]:
                led.append(number)
            await _ask_for_a_while(two, chance, binds, 0.3)
            await _harm(two, chance, binds, number if chance.random() < 0.8 else 1 - number)
            assert two.audit.overcommitted == []
        await asyncio.gather(*binds)
        assert two.audit.overcommitted == []
        two.api.faults.clear()
        for name in names(two.kube.pods()):
            # A Binding that may still come is waited for until its pod changes.
            two.kube.annotate_pod(name, {"touched": "yes"})
        # What the watches lost is found by the next list, and then the state is that of the objects.
        last = await two.leader()
        await last.list_again()
        await _agrees(two, last)


async def _agrees(two: Pair, one: Replica) -> None:
    """The state of a replica becomes that of the objects."""

    async def is_the_same() -> bool:
        # It does not change while it is looked at.
        await one.stop()
        difference = two.audit.difference(one.live.cluster)
        one.resume()
        return difference is None

    await until(is_the_same)


async def _harm(two: Pair, chance: Random, binds: set[asyncio.Task[str]], number: int) -> None:
    """Stop or cut off one replica for a while, with kube-scheduler asking all the time."""
    one, its_network = two.replicas[number], two.networks[number]
    # About as long as a lease, for there the danger is; sometimes shorter, sometimes much longer.
    seconds = chance.choice((chance.uniform(1.0, 1.6), chance.uniform(1.0, 1.6), chance.uniform(0.2, 2.4)))
    if chance.random() < 0.5:
        one.stop_now()
        await _ask_for_a_while(two, chance, binds, seconds)
        one.resume()
        return
    its_network.hold()
    holder = one.live.leadership
    assert isinstance(holder, LeaderElector)
    last_write_by = holder._until + SHORT.write_deadline_seconds
    await _ask_for_a_while(two, chance, binds, seconds)
    # Delivered in no time: nobody goes on meanwhile.
    await asyncio.gather(*(each.stop() for each in two.replicas))
    if two.time.seconds() > last_write_by:
        # A write that is delivered even later is what no lease can fence.
        its_network.break_connections()
    its_network.heal()
    await its_network.drained()
    for each in two.replicas:
        each.resume()


async def _ask_for_a_while(two: Pair, chance: Random, binds: set[asyncio.Task[str]], seconds: float) -> None:
    """kube-scheduler asks one of them or, as one that does not know who leads, both; pods end all the time."""
    end = two.time.seconds() + seconds
    while two.time.seconds() < end:
        two.new_pod(chance.choice((300, 500, 700, 1000)))
        pods = two.kube.pods()
        pending = [each for each in pods if "nodeName" not in each["spec"]]
        bound = [each["metadata"]["name"] for each in pods if "nodeName" in each["spec"]]
        # Known for a while to both, so that nothing has to be read before the write.
        for _ in range(2):
            asked, where = chance.choice(pending[:8]), chance.choice(NODES)
            targets = two.replicas if chance.random() < 0.3 else [chance.choice(two.replicas)]
            # One that is stopped finds the request when it wakes up.
            binds |= {asyncio.create_task(two.bind(one, asked, where)) for one in targets}
        gone = chance.sample(bound, max(0, len(bound) - 5)) + [each["metadata"]["name"] for each in pending[:-12]]
        for name in gone:
            two.kube.delete_pod(name)
        heard = two.api.requests.count()
        two.time.passes(_STEP_SECONDS)
        # The one that goes on looks at the Lease ten times a second, so something is always heard.
        await eventually(lambda: two.api.requests.count() > heard)  # noqa: B023 - awaited here
