"""Events on pods: equal ones become one object with a count, and nothing waits for them.

It exists because one event per refusal would cost more than the refusals. It must not know when events are written.
Invariant: whatever the API server answers, the recorder goes on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from accounting.pod import Pod
from extender.kube.events import EventRecorder, EventSettings, PodRef
from extender.live.refusals import RefusalReporter
from extender.verbs.decisions import Decision, Refused
from tests.apiserver.resources import EVENTS
from tests.extender.objects import Json, bound, card, node, pod
from tests.live.harness import Bench, eventually, running

POD = PodRef("default", "p", "uid-p")
FAST = EventSettings(per_second=1000.0)


class Recording(NamedTuple):
    """A recorder at work."""

    bench: Bench
    recorder: EventRecorder

    def events(self) -> list[Json]:
        """Return the events of the API server, oldest first. It keeps them by name, and names are random."""
        events = [row.decode() for row in self.bench.api.store.tables[EVENTS].rows]
        return sorted(events, key=lambda event: event["eventTime"])

    def warn(self, note: str = "cards are over-committed", pod: PodRef = POD) -> None:
        self.recorder.warning(pod, "DeviceOvercommitted", "Accounting", note)


@asynccontextmanager
async def recording(settings: EventSettings = FAST) -> AsyncIterator[Recording]:
    """Run a recorder over an API server."""
    async with running() as bench:
        recorder = EventRecorder(bench.live.client, "host_1", settings)
        sending = asyncio.create_task(recorder.run())
        try:
            yield Recording(bench, recorder)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def test_an_event_says_who_what_and_why() -> None:
    async with recording() as at:
        at.warn()
        await eventually(lambda: len(at.events()) == 1)
        (event,) = at.events()
        assert event["metadata"]["namespace"] == "default"
        assert event["regarding"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "p",
            "uid": "uid-p",
        }
        assert (event["type"], event["reason"], event["action"]) == ("Warning", "DeviceOvercommitted", "Accounting")
        assert (event["reportingController"], event["reportingInstance"]) == ("gpu-extender", "host_1")
        assert event["note"] == "cards are over-committed"


async def test_equal_events_become_one_with_a_count() -> None:
    async with recording() as at:
        for _ in range(5):
            at.warn()
        at.warn(pod=replace(POD, uid="other", name="q"))
        await eventually(lambda: len(at.events()) == 2 and at.events()[0].get("series", {}).get("count") == 5)
        assert "series" not in at.events()[1]


async def test_a_series_whose_event_has_expired_begins_anew() -> None:
    async with recording() as at:
        at.warn()
        await eventually(lambda: len(at.events()) == 1)
        at.bench.api.store.remove(EVENTS, at.bench.api.store.tables[EVENTS].rows[0])
        at.warn()
        await eventually(lambda: len(at.events()) == 1)
        assert "series" not in at.events()[0]


async def test_events_are_limited_in_rate_number_and_size() -> None:
    async with recording(EventSettings(per_second=20.0, queue=10)) as at:
        for number in range(100):
            at.warn(f"{number} " + "é" * 2000)
        assert at.recorder.dropped == 90
        await eventually(lambda: len(at.events()) >= 3)
        assert len(at.events()) < 10
        assert all(len(event["note"].encode()) <= 1024 for event in at.events())
        await eventually(lambda: len(at.events()) == 10)


async def test_an_api_server_that_refuses_events_stops_nothing() -> None:
    async with recording() as at:
        refusing = at.bench.api.faults.add(fault="status", code=403, resource="events", times=1)
        resetting = at.bench.api.faults.add(fault="reset", resource="events", skip=1, times=1)
        for number in range(3):
            at.warn(str(number))
        await eventually(lambda: [event["note"] for event in at.events()] == ["2"])
        assert (refusing.hits, resetting.hits) == (1, 1)


async def test_an_over_committed_card_is_told_of_on_its_pods() -> None:
    over = [bound(name, "n1", "GPU-a", 600) for name in "pq"]
    async with running(node("n1", [card("GPU-a", memory=1000)]), *over) as bench:
        await eventually(lambda: len(bench.api.store.tables[EVENTS].rows) == 2)
        notes = {row.decode()["regarding"]["name"]: row.decode()["note"] for row in bench.api.store.tables[EVENTS].rows}
        assert notes == dict.fromkeys("pq", "over-committed cards: GPU-a")


async def test_a_pod_that_no_node_takes_gets_one_event_for_each_reason() -> None:
    """Only the leading reason counts: neither the same one again nor other numbers of nodes make another event."""
    async with recording() as at:
        reporter = RefusalReporter(at.recorder)
        waits = Pod("uid-p", "default", "p")

        def decided(*refused: tuple[str, int], feasible: int = 0) -> None:
            reasons = tuple(Refused(code, count, ()) for code, count in refused)
            reporter.note(waits, Decision(waits.key, waits.uid, 0.0, (), 9, feasible, reasons, 0.0))

        decided(("InsufficientMemory", 5), ("NoDevices", 1))
        decided(("InsufficientMemory", 4), ("NoDevices", 2))
        decided(("QuotaExceeded", 6))
        decided(feasible=1)
        decided(("QuotaExceeded", 6))
        await eventually(lambda: len(at.events()) == 2 and at.events()[1].get("series", {}).get("count") == 2)
        first, second = at.events()
    assert first["note"].startswith("InsufficientMemory: GPUs have too little free memory")
    assert "series" not in first
    assert (second["reason"], second["note"].partition(":")[0]) == ("NoNodeTakesGPUs", "QuotaExceeded")


async def test_refusals_of_filter_become_events() -> None:
    async with running(node("n1", [card("GPU-n1-0", memory=50)])) as bench:
        asking = bench.kube.create(pod("q"))
        for _ in range(3):
            await bench.scheduler.filter(asking)
        await eventually(lambda: bool(bench.api.store.tables[EVENTS].rows))
        (event,) = [row.decode() for row in bench.api.store.tables[EVENTS].rows]
    assert (event["reason"], event["regarding"]["name"]) == ("NoNodeTakesGPUs", "q")
    assert event["note"].startswith("InsufficientMemory: ")
