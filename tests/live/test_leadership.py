"""Leader election: one leader, no write after its lease, no next leader before the last one's writes are over.

It exists because a card is given out twice when two processes believe at once that they lead (user_reports A63, A64).
It must not bind anything; test_two_writers does. Invariant: no test depends on a candidate being quick.
"""

import math
from itertools import pairwise
from random import Random

import pytest
from structlog.testing import capture_logs

from extender.live.leading.leadership import SoleLeader, steady_seconds
from extender.live.leading.lease import LeaseSettings
from tests.apiserver.server import ApiServer
from tests.live.harness import Kube, eventually
from tests.live.leader_harness import (
    LEASE_PATH,
    LONG,
    SHORT,
    candidate,
    delete_lease,
    holder_of,
    leads,
    lease_of,
    wait_rounds,
    write_lease,
)
from tests.virtual_time import passes

# -- the Lease ------------------------------------------------------------------------------------------------------


async def test_the_first_candidate_makes_the_lease_and_need_not_wait() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        lease = lease_of(api)
        assert lease is not None
        spec = lease["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 600, 0)
        for moment in (spec["acquireTime"], spec["renewTime"]):
            assert len(moment) == len("2026-11-29T16:17:18.000000Z")
            assert moment.endswith("Z")
        assert (first.holder.elections, len(first.elected)) == (1, 1)
        # A process without election may have written before; the next candidate knows whom it follows.
        assert first.others_unknown == [True]
        await first.stop()
        write_lease(api, "", 1)
        async with candidate(api, "b") as second:
            await leads(second)
            assert second.others_unknown == [False]


async def test_it_is_renewed_and_keeps_its_times_labels_and_owners() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        before = lease_of(api)
        assert before is not None
        Kube(api).send("PATCH", LEASE_PATH, {"metadata": {"labels": {"mine": "yes"}}}, "application/merge-patch+json")
        await eventually(lambda: (lease_of(api) or {})["spec"]["renewTime"] > before["spec"]["renewTime"])
        await wait_rounds(api)
        after = lease_of(api)
        assert after is not None
        assert after["metadata"]["labels"] == {"mine": "yes"}
        assert after["spec"]["acquireTime"] == before["spec"]["acquireTime"]
        assert first.holder.elections == 1


@pytest.mark.parametrize("seconds", [0.3, 1.0, 1.2, 14.5])
async def test_nobody_is_told_a_shorter_duration_than_the_holder_counts_on(seconds: float) -> None:
    settings = LeaseSettings(duration_seconds=seconds, retry_seconds=0.05, write_deadline_seconds=0.1)
    async with ApiServer() as api, candidate(api, "a", settings):
        await eventually(lambda: lease_of(api) is not None)
        lease = lease_of(api)
        assert lease is not None
        assert lease["spec"]["leaseDurationSeconds"] == math.ceil(seconds)


async def test_a_second_candidate_stands_by() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        async with candidate(api, "b", LONG) as second:
            await wait_rounds(api, 20)
            assert (first.leads, second.leads, second.elected) == (True, False, [])
            assert holder_of(api) == "a"


# -- taking over ----------------------------------------------------------------------------------------------------


async def test_a_new_leader_waits_for_the_old_lease_and_its_writes_and_lists_only_then() -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        async with candidate(api, "b") as second:
            await wait_rounds(api)
            await first.stop()
            ends = first.holder._until
            await leads(second)
            assert steady_seconds() >= ends
            assert second.elected[0] >= ends + SHORT.write_deadline_seconds
            lease = lease_of(api)
            assert lease is not None
            assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("b", 1)
            assert not first.leads


async def test_renewing_goes_on_while_a_leader_prepares() -> None:
    async with ApiServer() as api, candidate(api, "a") as first, candidate(api, "b") as second:
        first.may_list.clear()
        second.may_list.clear()
        await eventually(lambda: bool(first.elected or second.elected))
        chosen = first if first.elected else second
        other = second if chosen is first else first
        await passes(2 * SHORT.duration_seconds)
        assert not chosen.leads
        # It has not lost the Lease meanwhile, unless this machine was too slow.
        if chosen.holder.elections == 1 and not other.elected:
            chosen.may_list.set()
            await leads(chosen)
            assert len(chosen.elected) == 1


async def test_a_preparation_is_broken_off_when_the_lease_is_lost() -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        first.may_list.clear()
        await eventually(lambda: len(first.elected) == 1)
        write_lease(api, "thief", 3600)
        await eventually(lambda: first.given_up == 1)
        assert not first.leads
        write_lease(api, "")
        first.may_list.set()
        await leads(first)
        assert len(first.elected) == 2


async def test_a_preparation_that_fails_is_tried_again() -> None:
    async with ApiServer() as api:
        write_lease(api, "gone")
        with capture_logs() as logs:
            async with candidate(api, "a") as first:
                first.breaks = 2
                await leads(first)
                assert (len(first.elected), first.holder.elections) == (3, 1)
        assert sum("exc_info" in entry for entry in logs) == 2


# -- losing it ------------------------------------------------------------------------------------------------------


async def test_who_cannot_renew_stops_by_itself() -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        first.client.cut = True
        await eventually(lambda: not first.leads)
        assert not first.holder.may_write(0)


@pytest.mark.parametrize("fault", ["hang", "reset", "status"])
async def test_a64_renewals_that_fail_do_not_outlive_the_lease_and_end_nothing_else(fault: str) -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        api.faults.add(fault=fault, resource="leases")
        await eventually(lambda: not first.leads)
        api.faults.clear()
        await leads(first)


async def test_a_lapse_without_another_leader_is_the_same_term() -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        first.client.cut = True
        await eventually(lambda: not first.leads)
        await passes(0.2)
        first.client.cut = False
        await leads(first)
        # No other process can have written: there is no wait, and no list.
        assert (first.holder.elections, len(first.elected)) == (1, 1)


async def test_a_lapse_with_another_leader_is_a_new_term() -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        first.client.cut = True
        async with candidate(api, "b") as second:
            await leads(second)
            assert not first.leads
            await second.stop()
            await second.holder.release(settled=True)
        first.client.cut = False
        await leads(first)
        assert (first.holder.elections, len(first.elected)) == (2, 2)


async def test_a_lease_that_another_wrote_ends_the_leading_at_the_next_look() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        write_lease(api, "thief", 3600)
        await eventually(lambda: not first.leads)


async def test_renewals_that_are_carried_out_without_an_answer_are_the_same_term() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        first.client.loses_answers = True
        await eventually(lambda: first.client.answers_lost >= 3)
        first.client.loses_answers = False
        until = first.holder._until
        await eventually(lambda: first.holder._until > until)
        assert (first.leads, first.holder.elections, len(first.elected)) == (True, 1, 1)


async def test_a_takeover_that_is_carried_out_without_an_answer_waits_all_the_same() -> None:
    async with ApiServer() as api:
        write_lease(api, "gone")
        async with candidate(api, "a") as first:
            first.client.loses_answers = True
            await eventually(lambda: holder_of(api) == "a")
            taken = steady_seconds()
            first.client.loses_answers = False
            await leads(first)
            assert first.elected[-1] >= taken + SHORT.write_deadline_seconds - 0.1


async def test_a_lease_deleted_by_hand_is_waited_out() -> None:
    settings = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=0.5)
    async with ApiServer() as api, candidate(api, "a", settings) as first:
        await leads(first)
        first.client.cut = True  # it cannot see that its Lease is gone
        async with candidate(api, "b", settings) as second:
            await wait_rounds(api)
            delete_lease(api)
            deleted = steady_seconds()
            await eventually(lambda: holder_of(api) == "b")
            await leads(second)
            assert second.elected[0] >= deleted + settings.duration_seconds + settings.write_deadline_seconds
            assert second.elected[0] >= first.holder._until


async def test_a_single_replica_leads_once_it_is_prepared_even_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.live.leading.leadership._RETRY_SECONDS", 0.01)
    told: list[bool] = []

    async def on_elected(others_unknown: bool) -> None:
        told.append(others_unknown)
        assert (leader.is_leader(), leader.may_write(0)) == (False, False)
        if len(told) == 1:
            raise RuntimeError("a bug")

    leader = SoleLeader(on_elected)
    with capture_logs() as logs:
        await leader.run()
    assert sum("exc_info" in entry for entry in logs) == 1
    assert told == [True, True]
    assert leader.is_leader()
    assert leader.may_write(3600)


# -- many candidates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_never_two_leaders_whatever_happens(seed: int) -> None:
    """Under cuts, lost answers, stopped clocks, kills and releases, never do two lead, and terms do not overlap."""
    chance = Random(seed)
    settings = LeaseSettings(duration_seconds=1.0, retry_seconds=0.03, write_deadline_seconds=0.1)
    led: list[tuple[str, float, float]] = []  # who, from, until
    async with (
        ApiServer(seed=seed) as api,
        candidate(api, "a", settings) as a,
        candidate(api, "b", settings) as b,
        candidate(api, "c", settings) as c,
    ):
        everybody = {"a": a, "b": b, "c": c}
        api.faults.add(fault="status", code=500, resource="leases", probability=0.05)
        api.faults.add(fault="reset", after=True, resource="leases", probability=0.05)
        end = steady_seconds() + 4
        while steady_seconds() < end:
            harmed = chance.choice(list(everybody.values()))
            harmed.client.cut = chance.random() < 0.4
            harmed.client.loses_answers = chance.random() < 0.3
            if chance.random() < 0.1:
                write_lease(api, "")
            for _ in range(chance.randrange(5, 30)):
                await passes(0.01)
                leading = [name for name, one in everybody.items() if one.leads]
                assert len(leading) <= 1, leading
                now = steady_seconds()
                if leading and led and led[-1][0] == leading[0]:
                    led[-1] = (leading[0], led[-1][1], now)
                elif leading:
                    led.append((leading[0], now, now))
    for (_, _, until), (_, since, _) in pairwise(led):
        assert since > until
