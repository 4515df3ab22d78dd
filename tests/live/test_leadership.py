"""Leader election: one leader, no write after the lease, no leader before the old one's writes are over.

It exists because a card is given twice exactly when two processes believe at once that they lead (user_reports A63,
A64). It must not bind anything; test_two_writers does. Invariant: no test depends on a candidate being quick.
"""

import asyncio
import math
from itertools import pairwise
from random import Random

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from extender.live.leadership import SoleLeader, steady_seconds
from extender.live.lease import LeaseSettings
from tests.apiserver.server import ApiServer
from tests.live.harness import Kube, eventually
from tests.live.kube_harness import scripted
from tests.live.leader_harness import (
    LEASE_PATH,
    LONG,
    SHORT,
    Candidate,
    candidate,
    delete_lease,
    holder_of,
    lease_of,
    write_lease,
)


async def leads(one: Candidate) -> None:
    await eventually(lambda: one.leads, "a candidate leads")


async def wait_rounds(api: ApiServer, rounds: int = 4) -> None:
    """Wait until candidates have looked at the Lease so often."""
    enough = api.requests.count(resource="leases") + rounds
    await eventually(lambda: api.requests.count(resource="leases") >= enough)


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
        # There may have been one that did without election; the next one knows whom it followed.
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
        await asyncio.sleep(2 * SHORT.duration_seconds)
        assert not chosen.leads
        # It has not lost the Lease meanwhile, unless this machine was too slow for it.
        if chosen.holder.elections == 1 and not other.elected:
            chosen.may_list.set()
            await leads(chosen)
            assert len(chosen.elected) == 1


async def test_a_lease_that_is_given_up_is_taken_at_once() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        async with candidate(api, "b", LONG) as second:
            await wait_rounds(api)
            await first.stop()
            await first.holder.release(settled=True)
            assert not first.leads
            await leads(second)  # not after the ten minutes of the lease
            # It has been there all along: nobody without election can have written meanwhile.
            assert second.others_unknown == [False]


async def test_a_lease_that_was_given_up_unseen_does_not_tell_who_wrote_since() -> None:
    """A process without election may have come and been killed between the two."""
    async with ApiServer() as api:
        for name in ("a", "b"):
            async with candidate(api, name, LONG) as one:
                await leads(one)
                assert one.others_unknown == [True]
                await one.stop()
                await one.holder.release(settled=True)
                assert holder_of(api) == ""


async def test_a_term_that_was_missed_does_not_tell_who_wrote_since() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first, candidate(api, "c", LONG) as third:
        await eventually(lambda: first.leads or third.leads)
        one, other = (first, third) if first.leads else (third, first)
        await wait_rounds(api, 10)
        other.client.cut = True
        await one.stop()
        await one.holder.release(settled=True)
        async with candidate(api, "b", LONG) as second:
            await leads(second)
            assert second.others_unknown == [True]
            await second.stop()
            await second.holder.release(settled=True)
        other.client.cut = False
        await leads(other)
        assert other.others_unknown == [True]


async def test_who_has_not_ruled_out_the_writes_of_unknown_processes_does_not_give_the_lease_up() -> None:
    """The next one may have seen it hold the Lease, and would ask no more."""
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        first.may_list.clear()
        await eventually(lambda: first.others_unknown == [True])
        await first.stop()
        await first.holder.release(settled=True)
        assert holder_of(api) == "a"


async def test_a_lease_is_not_given_up_while_a_write_is_not_settled() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        await first.stop()
        await first.holder.release(settled=False)
        assert (first.leads, holder_of(api)) == (False, "a")


async def test_who_still_waits_for_an_earlier_leader_does_not_give_the_lease_up() -> None:
    settings = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=600)
    async with ApiServer() as api:
        write_lease(api, "gone")
        async with candidate(api, "a", settings) as first:
            await eventually(lambda: holder_of(api) == "a")
            await eventually(lambda: first.holder.elections == 1)
            await first.stop()
            await first.holder.release(settled=True)
            # The next one would not wait for the writes of `gone`.
            assert holder_of(api) == "a"


async def test_a_release_finds_a_renewal_that_was_broken_off() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        slow = api.faults.add(fault="latency", seconds=0.2, after=True, method="PUT", times=1)
        await eventually(lambda: slow.hits == 1)
        await first.stop()
        await first.holder.release(settled=True)
        assert holder_of(api) == ""


async def test_a_standby_has_nothing_to_give_up() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        async with candidate(api, "b", LONG) as second:
            await wait_rounds(api)
            await second.stop()
            await second.holder.release(settled=True)
            assert (holder_of(api), first.leads) == ("a", True)


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


async def test_who_cannot_list_gives_the_lease_to_another_that_can() -> None:
    settings = LeaseSettings(duration_seconds=600, retry_seconds=0.05, write_deadline_seconds=0.2, prepare_seconds=0.3)
    async with ApiServer() as api, candidate(api, "a", settings) as first:
        first.may_list.clear()
        await eventually(lambda: holder_of(api) == "a")
        async with candidate(api, "b", settings) as second:
            await leads(second)
            assert (first.given_up, first.leads, holder_of(api)) == (1, False, "b")
            await second.stop()


async def test_who_cannot_list_and_is_alone_tries_again() -> None:
    settings = LeaseSettings(duration_seconds=600, retry_seconds=0.05, write_deadline_seconds=0.2, prepare_seconds=0.2)
    async with ApiServer() as api, candidate(api, "a", settings) as first:
        first.may_list.clear()
        await eventually(lambda: first.given_up == 1)
        assert not first.leads
        first.may_list.set()
        await leads(first)


# -- losing it ------------------------------------------------------------------------------------------------------


async def test_who_cannot_renew_stops_by_itself() -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        first.client.cut = True
        await eventually(lambda: not first.leads)
        assert not first.holder.may_write(0)


@pytest.mark.parametrize("fault", ["hang", "reset", "status"])
async def test_renewals_that_fail_do_not_outlive_the_lease(fault: str) -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        api.faults.add(fault=fault, resource="leases")
        await eventually(lambda: not first.leads)


async def test_a_lapse_without_another_leader_is_the_same_term() -> None:
    async with ApiServer() as api, candidate(api, "a") as first:
        await leads(first)
        first.client.cut = True
        await eventually(lambda: not first.leads)
        await asyncio.sleep(0.2)
        first.client.cut = False
        await leads(first)
        # Nobody else can have written: no wait, and no list.
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


# -- clocks ---------------------------------------------------------------------------------------------------------


async def test_a_process_that_was_stopped_sees_it_at_its_next_instruction() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        assert first.holder.may_write(1)
        first.clock.ahead = LONG.duration_seconds
        # No task has run since: the question itself looks at the clock.
        assert (first.leads, first.holder.may_write(0)) == (False, False)


async def test_a_write_must_fit_into_what_is_left_of_the_lease() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        await first.stop()
        left = first.holder._until - first.clock()
        assert first.holder.may_write(left - 1)
        assert not first.holder.may_write(left)
        first.clock.ahead = left - 5
        assert (first.holder.may_write(4), first.holder.may_write(5), first.leads) == (True, False, True)


async def test_a_renewal_whose_answer_was_read_after_a_long_stop_is_counted_from_its_beginning() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        slow = api.faults.add(fault="latency", seconds=0.3, method="PUT", times=1)
        await eventually(lambda: slow.hits == 1)
        first.clock.ahead += 2 * LONG.duration_seconds  # stopped, with the request under way
        api.faults.add(fault="hang", resource="leases")
        await asyncio.sleep(0.5)
        assert not first.leads


@pytest.mark.parametrize("year", [1970, 2099])
async def test_the_times_in_a_lease_are_nobodys_business(year: int) -> None:
    async with ApiServer() as api:
        write_lease(
            api, "other", 1, renewTime=f"{year}-01-01T00:00:00.000000Z", acquireTime=f"{year}-01-01T00:00:00.000000Z"
        )
        async with candidate(api, "a") as first:
            for _ in range(6):
                await asyncio.sleep(0.25)
                write_lease(api, "other", 1, renewTime=f"{year}-01-01T00:00:00.{api.store.version:06}Z")
                assert first.elected == []  # as long as it changes, it holds
            await leads(first)


async def test_a_lease_that_changes_but_shows_the_same_time_holds() -> None:
    async with ApiServer() as api:
        write_lease(api, "other", 1, renewTime="2026-01-01T00:00:00.000000Z")
        async with candidate(api, "a") as first:
            for number in range(6):
                await asyncio.sleep(0.25)
                meta = {"metadata": {"annotations": {"beat": str(number)}}}
                Kube(api).send("PATCH", LEASE_PATH, meta, "application/merge-patch+json")
                assert first.elected == []


async def test_a_lease_without_a_duration_holds_for_the_own_one() -> None:
    async with ApiServer() as api:
        write_lease(api, "other", None)
        async with candidate(api, "a", LONG) as first:
            await wait_rounds(api, 10)
            assert first.elected == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"metadata":{}}', b'{"metadata":{"uid":7},"spec":7}'])
async def test_an_answer_that_is_no_lease_teaches_nothing(body: bytes) -> None:
    asked = 0

    async def handle(_request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(body=body)

    async with ApiServer() as api, scripted(handle) as url:
        api.url, real = url, api.url
        async with candidate(api, "a", LONG) as first:
            await eventually(lambda: asked >= 3)
            assert not first.leads
            assert first.running is not None
            assert not first.running.done()
        api.url = real


async def test_a_single_replica_leads_once_it_is_prepared_even_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.live.leadership._RETRY_SECONDS", 0.01)
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
    """Cuts, lost answers, stopped clocks, kills, releases: at no look do two lead, and terms do not overlap."""
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
                await asyncio.sleep(0.01)
                leading = [name for name, one in everybody.items() if one.leads]
                assert len(leading) <= 1, leading
                now = steady_seconds()
                if leading and led and led[-1][0] == leading[0]:
                    led[-1] = (leading[0], led[-1][1], now)
                elif leading:
                    led.append((leading[0], now, now))
    for (_, _, until), (_, since, _) in pairwise(led):
        assert since > until


async def test_a_lease_emptied_by_hand_is_waited_out() -> None:
    settings = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=0.5)
    async with ApiServer() as api, candidate(api, "a", settings) as first:
        await leads(first)
        first.client.cut = True
        async with candidate(api, "b", settings) as second:
            await wait_rounds(api)
            write_lease(api, "")
            emptied = steady_seconds()
            await leads(second)
            assert second.elected[0] >= emptied + settings.duration_seconds + settings.write_deadline_seconds


async def test_the_note_of_an_earlier_release_says_nothing_of_a_later_one() -> None:
    settings = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=0.5)
    async with ApiServer() as api:
        async with candidate(api, "a", settings) as first:
            await leads(first)
            await first.stop()
            await first.holder.release(settled=True)
        async with candidate(api, "b", settings) as second:
            await leads(second)
            await second.stop()
            write_lease(api, "")
            emptied = steady_seconds()
        async with candidate(api, "c", settings) as third:
            await leads(third)
            assert third.elected[0] >= emptied + settings.duration_seconds + settings.write_deadline_seconds
