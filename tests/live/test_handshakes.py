"""The handshake with plugins that answer: they are asked, fall silent, go and come back.

It exists because a plugin that is gone leaves its register behind. It must not repeat the table, which has tests of its
own. Invariant: pods on the cards of a silent plugin are untouched.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from accounting.handshake import Handshake, judge
from accounting.vendors import HYGON
from extender.live.watching.handshakes import HandshakeKeeper, requested_at
from tests.extender.objects import Json, node, pod
from tests.live.harness import Bench, eventually, running
from tests.live.harness_locks import TWO_VENDORS, hygon_register

HANDSHAKE = HYGON.handshake_annotation
NOW = int(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp())
NOW_TEXT = "Requesting_2026-11-29 12:00:00"


def judged(text: str, allocatable: int | None = 0, *, now: int = NOW, was: bool = True) -> tuple[bool, bool]:
    found = judge(text, requested_at(text), now, allocatable, was_healthy=was)
    assert isinstance(found, Handshake)
    return found.healthy, found.ask


@pytest.mark.parametrize("was", [True, False])
@pytest.mark.parametrize(
    "text", ["Requesting", "Requesting_", "Requesting_yesterday", "Requesting_2026-13-01 00:00:00"]
)
def test_a30_a_value_without_a_time_keeps_the_previous_state(text: str, was: bool) -> None:
    assert judged(text, was=was) == (was, False)


def test_a32_deleted_is_left_as_soon_as_the_plugin_is_back() -> None:
    # The plugin was given up at t0: it is asked again at once, and stays out of service as long as the kubelet says so.
    assert judged("Deleted_2026-11-29 11:58:30", 0) == (False, True)
    # It registers again 90 s later.
    assert judged("Deleted_2026-11-29 11:58:30", 4) == (True, True)
    assert judged("Reported_2026-11-29 12:00:00", 4) == (True, True)
    # If the kubelet says nothing, a bare or unreadable value changes nothing.
    assert judged("Deleted", None, was=False) == (False, True)
    assert judged("Deleted_x", None, was=True) == (True, True)


@pytest.mark.parametrize(
    "seconds,allocatable,healthy",
    [(59, 0, True), (60, 0, False), (60, 1, True), (60, None, False), (-3600, 0, True)],
)
def test_a_plugin_has_a_minute_to_answer(seconds: int, allocatable: int | None, healthy: bool) -> None:
    assert judged(NOW_TEXT, allocatable, now=NOW + seconds) == (healthy, False)


@pytest.mark.parametrize("text", ["", "Reported_2026-11-29 11:00:00", "anything"])
def test_whatever_else_is_healthy_and_is_asked(text: str) -> None:
    assert judged(text) == (True, True)


def dcu_node(handshake: str | None = "Reported_2026-11-29 11:59:50") -> Json:
    notes = hygon_register()
    notes |= {} if handshake is None else {HANDSHAKE: handshake}
    return node("n1", 1, annotations=notes)


def asking(name: str, cores: int = 10) -> Json:
    limits = {"hygon.com/dcunum": "1", "hygon.com/dcumem": "10", "hygon.com/dcucores": str(cores)}
    resources = {"limits": limits, "requests": dict(limits)}
    return pod(name, [{"name": "main", "image": "app:1", "resources": resources}])


class Clock:
    def __init__(self) -> None:
        self.now = float(NOW)


@asynccontextmanager
async def hygon(*objects: Json) -> AsyncIterator[tuple[Bench, HandshakeKeeper, Clock]]:
    """Run a live extender with Hygon enabled, and its keeper with a clock that the test moves."""
    async with running(*objects, cluster=TWO_VENDORS) as bench:
        live, clock = bench.live, Clock()
        keeper = HandshakeKeeper(live.cluster, live.facts, live.client, live.leadership, lambda: clock.now)
        yield bench, keeper, clock


def handshake(bench: Bench) -> str | None:
    value = bench.kube.node("n1")["metadata"]["annotations"].get(HANDSHAKE)
    return None if value is None else str(value)


async def seen(bench: Bench, text: str) -> None:
    await eventually(lambda: (HANDSHAKE, text) in bench.live.facts.nodes["n1"].handshakes, text)


async def test_a_plugin_is_asked_falls_silent_and_comes_back() -> None:
    async with hygon(dcu_node()) as (bench, keeper, clock):
        running_pod = bench.kube.create(asking("running"))
        await bench.scheduler.place(running_pod)
        await keeper.look()
        assert handshake(bench) == NOW_TEXT
        await seen(bench, NOW_TEXT)
        # After a minute of silence, and without a word from the kubelet, no new pods come and running ones stay.
        clock.now += 61
        await keeper.look()
        late = asking("late")
        assert (await bench.scheduler.filter(late, "n1")).passed == []
        record = bench.live.cluster.cache.pods[running_pod["metadata"]["uid"]]
        assert record.held[0].uuid == "DCU-0"
        # An event of the node does not bring the cards back, and NVIDIA's cards are not affected.
        bench.kube.annotate_node("n1", {"note": "1"})
        await bench.caught_up()
        assert (await bench.scheduler.filter(late, "n1")).passed == []
        assert (await bench.scheduler.filter(pod("nvidia"), "n1")).passed == ["n1"]
        assert "/api/v1/nodes" not in (await bench.live.compare()).paths
        # The plugin answers.
        bench.kube.annotate_node("n1", {HANDSHAKE: "Reported_2026-11-29 12:01:05"})
        await seen(bench, "Reported_2026-11-29 12:01:05")
        await keeper.look()
        assert (await bench.scheduler.filter(late, "n1")).passed == ["n1"]
        assert handshake(bench) == "Requesting_2026-11-29 12:01:01"


async def test_nodes_without_cards_of_the_vendor_are_left_alone() -> None:
    async with hygon(node("n1", 1)) as (bench, keeper, _):
        before = bench.requests
        await keeper.look()
        assert bench.requests == before
        assert handshake(bench) is None


async def test_a64_a_standby_asks_no_plugin_and_judges_what_the_leader_asked() -> None:
    class Standby:
        def may_write(self, seconds: float) -> bool:
            return False

    async with hygon(dcu_node()) as (bench, keeper, clock):
        live = bench.live
        standby = HandshakeKeeper(live.cluster, live.facts, live.client, Standby(), lambda: clock.now)
        before = bench.requests
        await standby.look()
        assert (bench.requests, handshake(bench)) == (before, "Reported_2026-11-29 11:59:50")
        await keeper.look()
        await seen(bench, NOW_TEXT)
        clock.now += 61
        await standby.look()
        assert live.cluster.plugins.is_gone("n1", HYGON.key)
        assert bench.requests == before + 1


async def test_a_vendor_without_a_handshake_is_never_asked() -> None:
    async with running(dcu_node()) as bench:
        live = bench.live
        keeper = HandshakeKeeper(live.cluster, live.facts, live.client, live.leadership, lambda: NOW)
        before = bench.requests
        await keeper.look()
        assert (bench.requests, json.dumps(handshake(bench))) == (before, '"Reported_2026-11-29 11:59:50"')
