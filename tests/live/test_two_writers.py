"""Two replicas change places at the worst moments, and give every card out once.

It exists because of user_reports A63 and A64. It must not let replicas judge themselves: the reference judges every
write of the API server. Invariants: schedules come from a seed; no step depends on a replica being quick. In the
constructed cases leases are so long that a slow replica does not lose one, and time passes when the test says so.
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

#: The least number of times that a replica is stopped or cut off.
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
    """Pods that the old leader had bound, was binding or was not yet asked about are all placed afterwards."""
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
        # It knows the pod, so that only the Binding is on its way.
        await eventually(lambda: first.live.cluster.pod(asked["metadata"]["uid"]) is not None)
        its_network.hold()
        binding = asyncio.create_task(two.bind(first, asked, "n1"))
        await eventually(first.wrote.is_set, "the Binding is on its way")
        if late:
            # The next leader is ready only once the Binding can no longer come.
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
    """Whatever happens between bind's question and the write, the fence is asked after the last await."""
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
        # It takes over at once, not after the ten minutes of the lease or the ten seconds of a write.
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
    """Leaders are stopped and cut off for less and for more than their lease; watches keep losing events."""
    chance = Random(seed)
    async with pair(cards=1, lease=SHORT, seed=seed) as two:
        binds: set[asyncio.Task[str]] = set()
        led: list[int] = []
        two.api.faults.add(fault="drop", event="MODIFIED", resource="pods", probability=0.2)
        two.api.faults.add(fault="reset", resource="pods/binding", after=True, probability=0.05)
        two.api.faults.add(fault="status", code=503, resource="pods/binding", probability=0.05)
        # It takes as many rounds as it needs: on a slow machine less happens in one.
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
            # A Binding that may still come is awaited until its pod changes.
            two.kube.annotate_pod(name, {"touched": "yes"})
        # The next list finds what the watches lost; the state is then that of the objects.
        last = await two.leader()
        await last.list_again()
        await _agrees(two, last)


async def _agrees(two: Pair, one: Replica) -> None:
    """Wait until the state of a replica is that of the objects."""

    async def is_the_same() -> bool:
        # The state does not change while it is compared.
        await one.stop()
        difference = two.audit.difference(one.live.cluster)
        one.resume()
        return difference is None

    await until(is_the_same)


async def _harm(two: Pair, chance: Random, binds: set[asyncio.Task[str]], number: int) -> None:
    """Stop or cut off one replica for a while, while kube-scheduler keeps asking."""
    one, its_network = two.replicas[number], two.networks[number]
    # About as long as a lease, which is most dangerous; sometimes shorter, sometimes much longer.
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
    # Delivery takes no time: no replica goes on meanwhile.
    await asyncio.gather(*(each.stop() for each in two.replicas))
    if two.time.seconds() > last_write_by:
        # No lease can fence a write that is delivered even later.
        its_network.break_connections()
    its_network.heal()
    await its_network.drained()
    for each in two.replicas:
        each.resume()


async def _ask_for_a_while(two: Pair, chance: Random, binds: set[asyncio.Task[str]], seconds: float) -> None:
    """Ask one replica or, like a kube-scheduler that does not know the leader, both; pods keep ending."""
    end = two.time.seconds() + seconds
    while two.time.seconds() < end:
        two.new_pod(chance.choice((300, 500, 700, 1000)))
        pods = two.kube.pods()
        pending = [each for each in pods if "nodeName" not in each["spec"]]
        bound = [each["metadata"]["name"] for each in pods if "nodeName" in each["spec"]]
        # Both have known the pod for a while, so that nothing must be read before the write.
        for _ in range(2):
            asked, where = chance.choice(pending[:8]), chance.choice(NODES)
            targets = two.replicas if chance.random() < 0.3 else [chance.choice(two.replicas)]
            # A stopped replica finds the request when it goes on.
            binds |= {asyncio.create_task(two.bind(one, asked, where)) for one in targets}
        gone = chance.sample(bound, max(0, len(bound) - 5)) + [each["metadata"]["name"] for each in pending[:-12]]
        for name in gone:
            two.kube.delete_pod(name)
        heard = two.api.requests.count()
        two.time.passes(_STEP_SECONDS)
        # The running replica looks at the Lease ten times a second, so something always arrives.
        await eventually(lambda: two.api.requests.count() > heard)  # noqa: B023 - awaited here
