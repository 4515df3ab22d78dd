"""The checks of the runs under faults can fail.

It exists because a check that never fails says nothing. It must not let anything go wrong by chance. Invariant: each
wrong state is made on purpose, and named by the check that is there for it.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest

from extender.convert.annotations import NODE_LOCK
from tests.apiserver.resources import MUTATING
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json, bound, pod
from tests.live import fault_cycles, fault_world
from tests.live.fault_admission import QUOTA_MIB, Team, charged, over_quota, team_pod
from tests.live.fault_certificates import CertificateChange, Webhooks
from tests.live.fault_cycles import Cycles
from tests.live.fault_harms import Harms
from tests.live.fault_preemption import HIGH, wrong_victims
from tests.live.fault_world import CARDS, MEMORY, Violation, World


@pytest.fixture(autouse=True)
def little_patience() -> Iterator[None]:
    """Fail soon: nothing here gets right by waiting."""
    with (
        mock.patch.object(fault_world, "PATIENCE_SECONDS", 40.0),
        mock.patch.object(fault_cycles, "PATIENCE_SECONDS", 40.0),
    ):
        yield


@asynccontextmanager
async def _world() -> AsyncIterator[World]:
    """A world in which nothing goes wrong, before its first replica."""
    async with ApiServer() as api:
        world = World(api, 0)
        try:
            yield world
        finally:
            await world.end()
            world.audit.close()


def _on_a_card(name: str, memory: int) -> Json:
    return bound(name, "n1", "GPU-n1-0", memory)


# -- pods, cards and locks ---------------------------------------------------------------------------------------------


async def test_a_card_that_is_given_twice_is_noticed_at_the_write() -> None:
    async with _world() as world:
        world.kube.create(_on_a_card("one", MEMORY))
        world.check()
        world.kube.create(_on_a_card("two", MEMORY))
        # It is told afterwards, too, when the card is right again.
        world.kube.delete_pod("two")
        with pytest.raises(Violation, match=r"seed 0: over-committed: .*n1 GPU-n1-0 holds"):
            world.check()


async def test_a_pod_that_is_never_bound_is_noticed() -> None:
    async with _world() as world:
        await world.boot("a")
        await world.leader()
        cycles = Cycles(world)
        await cycles.place(world.kube.create(pod("p", memory=MEMORY)))
        with pytest.raises(Violation, match="seed 0: q is never bound: "):
            await cycles.place(world.kube.create(pod("q", memory=MEMORY + 1)))


async def test_no_replica_that_gets_ready_is_noticed() -> None:
    async with _world() as world:
        with pytest.raises(Violation, match="no replica gets ready"):
            await world.leader()


@pytest.mark.parametrize("owner, said", [("p", "a node stays locked by a pod on it"), ("q", None)])
async def test_a_lock_that_a_bound_pod_leaves_on_its_node_is_noticed(owner: str, said: str | None) -> None:
    async with _world() as world:
        await world.boot("a")
        leader = await world.leader()
        world.kube.create(_on_a_card("p", MEMORY))
        world.kube.annotate_node("n1", {NODE_LOCK: f"2999-01-01T00:00:00Z,default,{owner}"})
        if said is None:
            await world.agrees(leader)
        else:
            with pytest.raises(Violation, match=said):
                await world.agrees(leader)


@pytest.mark.parametrize(
    "full, said", [(True, "a lock that was left keeps others away"), (False, "a node stays locked")]
)
async def test_a_lock_of_a_pod_that_is_elsewhere_is_noticed(full: bool, said: str) -> None:
    async with _world() as world:
        world.locking = False
        await world.boot("a")
        leader = await world.leader()
        for card in range(CARDS if full else 0):
            world.kube.create(bound(f"filler-{card}", "n1", f"GPU-n1-{card}", MEMORY))
        world.kube.annotate_node("n1", {NODE_LOCK: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ},default,owner"})
        with pytest.raises(Violation, match=said):
            await Cycles(world).unlocked(leader)


async def test_a_leader_that_counts_otherwise_than_the_objects_say_is_noticed() -> None:
    async with _world() as world:
        await world.boot("a")
        leader = await world.leader()
        made = world.kube.create(_on_a_card("p", MEMORY))
        await world.agrees(leader)
        leader.live.cluster.registry.forget(made["metadata"]["uid"])
        with pytest.raises(Violation, match=r"seed 0: not within 40\.0 s: counted: "):
            await world.agrees(leader)


# -- victims -----------------------------------------------------------------------------------------------------------


def _victim(node: str, priority: int) -> Json:
    made = bound("v", node, "GPU-n1-0", 900)
    made["spec"]["priority"] = priority
    return made


@pytest.mark.parametrize(
    "victims, on, priority, wrong",
    [
        ({"n1": ["uid-v"]}, "n1", 0, []),
        ({"n1": ["uid-v"]}, "n1", HIGH, [f"n1: v has priority {HIGH}"]),
        ({"n1": ["uid-v"]}, "n2", 0, ["n1: v is on n2"]),
        ({"n1": []}, "n1", 0, ["n1: nobody"]),
    ],
)
def test_victims_that_kube_scheduler_must_not_delete_are_noticed(
    victims: dict[str, list[str]], on: str, priority: int, wrong: list[str]
) -> None:
    assert wrong_victims(victims, [_victim(on, priority)]) == wrong


# -- quotas ------------------------------------------------------------------------------------------------------------


def test_what_a_team_holds_beyond_its_quota_is_noticed() -> None:
    waiting, ended, stranger = team_pod(1), team_pod(2), bound("v", "n1", "GPU-n1-0", 900)
    held = team_pod(3, QUOTA_MIB)
    for each in (held, ended):
        each["spec"]["nodeName"] = "n1"
    ended["status"] = {"phase": "Succeeded"}
    pods = [waiting, held, ended, stranger]
    assert charged(pods) == QUOTA_MIB
    assert over_quota(pods, waiting)
    assert not over_quota([waiting, ended, stranger], waiting)


async def test_a_moment_in_which_a_team_holds_more_than_its_quota_is_noticed(tmp_path: Path) -> None:
    async with _world() as world:
        webhooks = Webhooks(world, tmp_path)
        await webhooks.begin()
        team = Team(world, webhooks, Cycles(world), Harms(world))
        await team.begin()
        await world.boot("a")
        await world.leader()
        world.kube.create(team_pod(1, QUOTA_MIB + 1))
        world.kube.bind("team-1", "n1")
        world.kube.delete_pod("team-1")
        with pytest.raises(Violation, match=f"the team held .*{QUOTA_MIB + 1} MiB of {QUOTA_MIB}"):
            await team.settle()


async def test_a_webhook_that_admits_too_much_is_noticed(tmp_path: Path) -> None:
    async with _world() as world:
        webhooks = Webhooks(world, tmp_path)
        await webhooks.begin()
        # No quota is made that it could judge by.
        team = Team(world, webhooks, Cycles(world), Harms(world))
        await world.boot("a")
        await world.leader()
        with pytest.raises(Violation, match="a pod of 501 MiB: allowed instead of denied"):
            await team.settle()


# -- certificates ------------------------------------------------------------------------------------------------------


async def test_a_certificate_that_the_api_server_would_not_trust_is_noticed(tmp_path: Path) -> None:
    async with _world() as world:
        webhooks = Webhooks(world, tmp_path)
        await webhooks.begin()
        change = CertificateChange(world, webhooks, Harms(world))
        await world.boot("a")
        await change._ask_all()
        path = f"/apis/admissionregistration.k8s.io/v1/{MUTATING.plural}/gpu-extender"
        found = world.kube.send("GET", path)
        # Somebody drops the authority.
        other = tmp_path / "other"
        other.mkdir()
        strangers = await _authority_of_strangers(other)
        found["webhooks"][0]["clientConfig"]["caBundle"] = strangers
        world.kube.send("PUT", path, found)
        with pytest.raises(Violation, match="what is served is not trusted: "):
            await webhooks.ask(world.replicas["a"], "/mutate", b"{}")
        assert webhooks.untrusted == ["mutate.gpu-extender.io: it is signed by nobody in ca.crt"]


async def _authority_of_strangers(folder: Path) -> str:
    """The bundle of another cluster."""
    async with _world() as world:
        webhooks = Webhooks(world, folder)
        await webhooks.begin()
        row = world.api.store.get(MUTATING, "gpu-extender")
        assert row is not None
        return str(row.decode()["webhooks"][0]["clientConfig"]["caBundle"])


async def test_a_replica_that_keeps_an_old_certificate_is_noticed(tmp_path: Path) -> None:
    async with _world() as world:
        webhooks = Webhooks(world, tmp_path)
        await webhooks.begin()
        change = CertificateChange(world, webhooks, Harms(world))
        await world.boot("a")
        await change.settle()
        # No kubelet shows it the new one.
        webhooks.days += 100
        with (
            mock.patch("tests.live.fault_certificates.PATIENCE_SECONDS", 40.0),
            pytest.raises(Violation, match="a replica never serves the new certificate"),
        ):
            await change.settle()
