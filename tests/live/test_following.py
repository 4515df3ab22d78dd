"""The extender leads when its host's kube-scheduler does: whose Lease it is, from when and until when it counts.

It exists because the extender sees the scheduler's renewals late, and must not rely on them longer than their holder
does. It must not write the Lease. Invariant: no test depends on a look being quick.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from extender.live.leading.leadership import steady_seconds
from extender.live.leading.lease import LeaseSettings
from tests.apiserver.server import ApiServer
from tests.live.harness import eventually
from tests.live.leader_harness import Candidate, candidate, delete_lease, lease_of, write_lease
from tests.virtual_time import passes

SETTINGS = LeaseSettings(duration_seconds=1.0, retry_seconds=0.1, write_deadline_seconds=0.3)
LONG = LeaseSettings(duration_seconds=600.0, retry_seconds=0.1, write_deadline_seconds=0.1)


@asynccontextmanager
async def renewing(api: ApiServer, holder: str, duration: int = 1) -> AsyncIterator[None]:
    """Run a kube-scheduler that holds the Lease and renews it."""
    write_lease(api, holder, duration)

    async def renew() -> None:
        while True:
            await passes(0.1)
            write_lease(api, holder, duration)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def looks(api: ApiServer, count: int) -> None:
    enough = api.requests.count(verb="get", resource="leases") + count
    await eventually(lambda: api.requests.count(verb="get", resource="leases") >= enough)


async def leads(one: Candidate) -> None:
    await eventually(lambda: one.leads, "a follower leads")


async def test_it_leads_with_the_scheduler_of_its_host() -> None:
    async with ApiServer() as api, candidate(api, "host-1", SETTINGS, follows=True) as follower:
        async with renewing(api, "host-1_0f7c"):
            await leads(follower)
        await eventually(lambda: not follower.leads)
        assert api.requests.count(method="PUT") == 0


@pytest.mark.parametrize(
    "holder, ours",
    [
        ("host-1_0f7c", True),
        ("host-1_", True),
        ("host-1", True),
        ("host-2_0f7c", False),
        ("host-11_0f7c", False),
        ("other_host-1_x", False),
        ("host-1.x", False),
        ("HOST-1_x", False),
        ("", False),
    ],
)
async def test_whose_scheduler_holds_the_lease(holder: str, ours: bool) -> None:
    async with ApiServer() as api, candidate(api, "host-1", LONG, follows=True) as follower, renewing(api, holder):
        await looks(api, 6)
        # The extender follows its own host's scheduler; it leads later.
        assert (follower.holder.elections == 1) is ours
        assert not follower.leads


async def test_without_a_lease_nobody_leads() -> None:
    async with ApiServer() as api, candidate(api, "host-1", SETTINGS, follows=True) as follower:
        await looks(api, 5)
        assert (follower.leads, lease_of(api)) == (False, None)


async def test_one_look_at_a_lease_proves_nothing() -> None:
    """It may be the last renewal of a scheduler that is gone; only an observed renewal counts."""
    async with ApiServer() as api:
        write_lease(api, "host-1_x", 1)
        async with candidate(api, "host-1", SETTINGS, follows=True) as follower:
            await looks(api, 8)
            assert (follower.leads, follower.holder.elections) == (False, 0)


async def test_it_waits_until_another_hosts_extender_counts_on_its_lease_no_more() -> None:
    async with ApiServer() as api, candidate(api, "host-1", SETTINGS, follows=True) as follower:
        async with renewing(api, "host-2_x"):
            await looks(api, 5)
        changed = steady_seconds()
        async with renewing(api, "host-1_x"):
            await leads(follower)
            # The other host's extender may have seen a renewal just before.
            assert follower.elected[0] >= changed + SETTINGS.duration_seconds + SETTINGS.write_deadline_seconds


async def test_it_stops_when_the_lease_goes_to_another() -> None:
    async with ApiServer() as api, candidate(api, "host-1", LONG, follows=True) as follower:
        async with renewing(api, "host-1_x", 1):
            await leads(follower)
        write_lease(api, "host-2_x", 600)
        await eventually(lambda: not follower.leads)


async def test_it_stops_when_the_lease_is_deleted_or_given_up() -> None:
    for end in (delete_lease, lambda api: write_lease(api, "")):
        async with ApiServer() as api, candidate(api, "host-1", LONG, follows=True) as follower:
            async with renewing(api, "host-1_x", 1):
                await leads(follower)
            write_lease(api, "host-1_x", 600)  # would hold for long
            end(api)
            await eventually(lambda: not follower.leads)


async def test_it_counts_from_the_look_before_the_renewal_was_seen() -> None:
    async with ApiServer() as api, candidate(api, "host-1", SETTINGS, follows=True) as follower:
        async with renewing(api, "host-1_x"):
            await leads(follower)
            await looks(api, 3)
        # The next renewal happens now; its holder relies on it until `renewed + 1`.
        seen_before = follower.holder._looked_at  # type: ignore[attr-defined]  # of a LeaseFollower
        write_lease(api, "host-1_x")
        renewed = steady_seconds()
        await eventually(lambda: follower.holder._until > seen_before + SETTINGS.duration_seconds - 0.001)
        assert follower.holder._until <= renewed + SETTINGS.duration_seconds


async def test_a_new_scheduler_process_on_the_same_host_is_a_new_term() -> None:
    async with ApiServer() as api, candidate(api, "host-1", SETTINGS, follows=True) as follower:
        async with renewing(api, "host-1_x"):
            await leads(follower)
        async with renewing(api, "host-1_y"):
            await eventually(lambda: follower.holder.elections == 2)
            await leads(follower)
            assert len(follower.elected) == 2


@pytest.mark.parametrize("gives_up", [False, True])
async def test_after_a_scheduler_of_the_same_host_it_waits_for_nobody(gives_up: bool) -> None:
    """No other process held the Lease in between, and this one knows its own writes."""
    settings = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=600.0)
    async with ApiServer() as api, candidate(api, "host-1", settings, follows=True) as follower:
        async with renewing(api, "host-1_x"):
            await eventually(lambda: follower.holder.elections == 1)
            follower.holder._others_end = follower.clock()  # type: ignore[attr-defined]  # as if that time had passed
            follower.holder._cancel_preparing()
            follower.holder._term = None
            await leads(follower)
        lease = lease_of(api)
        if gives_up and lease is not None:
            # client-go leaves the number of transitions as it is.
            write_lease(api, "", leaseTransitions=lease["spec"]["leaseTransitions"])
            await eventually(lambda: not follower.leads)
        async with renewing(api, "host-1_y"):
            await leads(follower)


async def test_a_lapse_of_its_own_sight_is_the_same_term() -> None:
    async with (
        ApiServer() as api,
        candidate(api, "host-1", SETTINGS, follows=True) as follower,
        renewing(api, "host-1_x"),
    ):
        await leads(follower)
        follower.client.cut = True
        await eventually(lambda: not follower.leads)
        follower.client.cut = False
        await leads(follower)
        assert (follower.holder.elections, len(follower.elected)) == (1, 1)


async def test_two_hosts_never_lead_at_once() -> None:
    async with (
        ApiServer() as api,
        candidate(api, "host-1", SETTINGS, follows=True) as one,
        candidate(api, "host-2", SETTINGS, follows=True) as two,
    ):
        both, led = (one, two), set[int]()
        for number in range(3):
            cut = both[number % 2]
            async with renewing(api, f"host-{1 + number % 2}_{number}"):
                end = steady_seconds() + 1.8
                while steady_seconds() < end:
                    await passes(0.01)
                    leading = [index for index, each in enumerate(both) if each.leads]
                    assert len(leading) <= 1
                    led.update(leading)
            # Its extender does not see that it has lost the Lease.
            cut.client.cut = True
            both[(number + 1) % 2].client.cut = False
    assert led == {0, 1}
