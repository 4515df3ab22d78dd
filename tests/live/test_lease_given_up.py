"""Giving the Lease up: when that is allowed, and what it tells the next holder.

It exists because a candidate that finds the Lease given up does not wait. It must not bind anything; test_two_writers
and test_late_bindings do. Invariant: no test depends on a candidate being quick.
"""

from extender.live.leading.leadership import steady_seconds
from extender.live.leading.lease import LeaseSettings
from tests.apiserver.server import ApiServer
from tests.live.harness import eventually
from tests.live.leader_harness import (
    LONG,
    candidate,
    holder_of,
    leads,
    wait_rounds,
    write_lease,
)


async def test_a_lease_that_is_given_up_is_taken_at_once() -> None:
    async with ApiServer() as api, candidate(api, "a", LONG) as first:
        await leads(first)
        async with candidate(api, "b", LONG) as second:
            await wait_rounds(api)
            await first.stop()
            await first.holder.release(settled=True)
            assert not first.leads
            await leads(second)  # not after the ten minutes of the lease
            # The candidate was there all along: no process without election can have written meanwhile.
            assert second.others_unknown == [False]


async def test_a_lease_that_was_given_up_unseen_does_not_tell_who_wrote_since() -> None:
    """A process without election may have started and been killed between the two."""
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
    """The next candidate may have seen it hold the Lease, and would not ask again."""
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
            # The next candidate would not wait for the writes of `gone`.
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
