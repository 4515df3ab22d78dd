"""The metrics of a live extender, as a scraper reads them.

It exists because in production only metrics show the state (user_reports A64, A76, A79). It must not read attributes
where /metrics has the number. Invariant: scraping changes nothing, so two scrapers see the same.
"""

import asyncio
import gc
import re
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import prod

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from extender.live.collector import LiveCollector, LoopMonitor
from extender.live.evicting.counts import BUCKETS, End
from extender.live.garbage import GarbagePace
from tests.apiserver.beside import Beside
from tests.extender.objects import bound, node, pod
from tests.live.harness import Bench, eventually, live_settings, running
from tests.live.harness_evicting import HIGH, evicting, holder, is_bound, queue, with_priority
from tests.live.kube_harness import client_of
from tests.virtual_time import passes, stall


@dataclass
class Scraper:
    """Reads the metrics of a bench's extender over HTTP."""

    bench: Bench
    monitor: LoopMonitor
    url: str

    async def scrape(self) -> dict[str, float]:
        """Return every sample: name and labels -> value."""
        async with client_of(self.url) as client:
            answer = await client.request("GET", "/metrics", timeout_seconds=10)
        assert answer.status == 200
        lines = getattr(answer, "body").decode().splitlines()  # noqa: B009 - an Answer, as the status says
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


@asynccontextmanager
async def scraping(bench: Bench) -> AsyncIterator[Scraper]:
    monitor, registry = LoopMonitor(), CollectorRegistry()
    registry.register(LiveCollector(bench.live, monitor, GarbagePace()))
    app = web.Application()
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Scraper(bench, monitor, f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


async def test_every_series_is_there_from_the_start_and_none_names_an_object() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0")) as bench, scraping(bench) as scraper:
        found = await scraper.scrape()
        names = {re.sub(r"\{.*", "", name) for name in found}
        assert names >= {
            "gpu_extender_binds_in_flight",
            "gpu_extender_binds_unanswered_total",
            "gpu_extender_leader",
            "gpu_extender_ready",
            "gpu_extender_loop_stall_seconds",
            "gpu_extender_loop_stall_cpu_seconds",
            "gpu_extender_loop_stalls_total",
            "gpu_extender_full_collection_seconds",
            "gpu_extender_reflector_lists_total",
            "gpu_extender_reflector_watches_total",
            "gpu_extender_reflector_failures_total",
            "gpu_extender_reflector_undecodable_total",
            "gpu_extender_reflector_last_event_age_seconds",
            "gpu_extender_pods_woken_total",
            "gpu_extender_api_requests_total",
            "gpu_extender_events_dropped_total",
            "gpu_extender_overcommit_reports_total",
            "gpu_extender_raw_overcommit_reports_total",
            "gpu_extender_claims",
            "gpu_extender_evicting_preemptions_total",
            "gpu_extender_evicting_preemptions_under_way",
            "gpu_extender_evicting_victims_total",
            "gpu_extender_evicting_not_accepted_total",
            "gpu_extender_evicting_stopped",
            "gpu_extender_evicting_seconds_bucket",
            "gpu_extender_evicting_seconds_sum",
            "gpu_extender_evicting_seconds_count",
        }
        labels = {label for name in found for label in re.findall(r'="([^"]*)"', name)}
        assert labels <= {"nodes", "pods", "resourcequotas", *End, *map(str, BUCKETS), "+Inf"}
        assert found['gpu_extender_reflector_lists_total{resource="pods"}'] == 1
        assert (found["gpu_extender_leader"], found["gpu_extender_ready"]) == (1, 1)


async def test_a_preemption_by_the_extender_is_counted_with_its_victims_and_its_time() -> None:
    async with (
        running(node("n1"), holder("low"), settings=evicting()) as bench,
        scraping(bench) as scraper,
        Beside() as beside,
    ):
        beside.start(queue(bench).run())
        bench.kube.create(with_priority(pod("high", memory=500), HIGH))
        await is_bound(bench, "high")
        await eventually(lambda: bench.live.evictor.under_way == 0)
        found = await scraper.scrape()
        assert found['gpu_extender_evicting_preemptions_total{outcome="bound"}'] == 1
        assert found["gpu_extender_evicting_victims_total"] == 1
        assert found["gpu_extender_evicting_seconds_count"] == 1
        assert 2.0 < found["gpu_extender_evicting_seconds_sum"] < 5.0
        assert found['gpu_extender_evicting_seconds_bucket{le="1.0"}'] == 0
        assert found['gpu_extender_evicting_seconds_bucket{le="5.0"}'] == 1


async def test_binds_by_outcome() -> None:
    async with running(node("n1")) as bench, scraping(bench) as scraper:
        for name, memory in (("a", 900), ("b", 900)):
            made = bench.kube.create(pod(name, memory=memory))
            await bench.scheduler.bind(made, "n1")
        found = await scraper.scrape()
        assert found['gpu_extender_binds_total{outcome="bound"}'] == 1
        assert found['gpu_extender_binds_total{outcome="InsufficientMemory"}'] == 1
        assert found["gpu_extender_binds_in_flight"] == 0


async def test_failures_and_lists_are_counted() -> None:
    async with running(node("n1")) as bench, scraping(bench) as scraper:
        before = await scraper.scrape()
        bench.api.faults.add(fault="status", code=503, verb="watch", resource="pods", times=2)
        bench.api.cut()
        name = 'gpu_extender_reflector_failures_total{resource="pods"}'
        await eventually(lambda: bench.live.reflectors[1].state.failures >= before[name] + 3)
        after = await scraper.scrape()
        assert after[name] >= before[name] + 3


async def test_two_scrapers_see_the_same_stall() -> None:
    async with running(node("n1")) as bench, scraping(bench) as scraper:
        measuring = asyncio.create_task(scraper.monitor.run())
        await passes(0.05)
        stall(0.2)
        await passes(0.05)
        measuring.cancel()
        first, second = await scraper.scrape(), await scraper.scrape()
        assert first["gpu_extender_loop_stall_seconds"] == second["gpu_extender_loop_stall_seconds"] >= 0.15
        assert first["gpu_extender_loop_stalls_total"] == second["gpu_extender_loop_stalls_total"] >= 1


def test_a_stall_is_shown_for_one_to_two_windows() -> None:
    monitor = LoopMonitor()
    monitor.note(0.3, 0.2)
    monitor.next_window()
    monitor.note(0.1, 0.1)
    assert (monitor.worst_seconds, monitor.worst_cpu_seconds, monitor.stalls) == (0.3, 0.2, 2)
    monitor.next_window()
    assert (monitor.worst_seconds, monitor.worst_cpu_seconds) == (0.1, 0.1)
    monitor.next_window()
    assert (monitor.worst_seconds, monitor.stalls) == (0.0, 2)


async def test_a79_differences_from_the_api_server_are_a_metric_and_are_mended() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 300)) as bench, scraping(bench) as scraper:
        assert "gpu_extender_cache_differences" not in await scraper.scrape()
        lost = bench.api.faults.add(fault="drop", event="DELETED", resource="pods")
        bench.kube.delete_pod("a")
        await eventually(lambda: lost.hits == 1)
        await bench.live._compare_and_mend()
        assert (await scraper.scrape())["gpu_extender_cache_differences"] == 1
        await bench.agrees()
        await bench.live._compare_and_mend()
        assert (await scraper.scrape())["gpu_extender_cache_differences"] == 0


async def test_a79_the_cache_is_compared_with_the_api_server_now_and_then_and_is_mended() -> None:
    settings = replace(live_settings(), compare_every_seconds=0.05)
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 300), settings=settings) as bench:
        async with bench.watch_gap():
            bench.kube.delete_pod("a")
        # The comparison runs unasked: it finds what the watch has lost, and frees the usage.
        await bench.agrees()
        await eventually(lambda: bench.live.compared is not None and bench.live.compared.differing == 0)


async def test_a76_series_of_what_is_gone_go_with_it() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 300)) as bench:

        async def usage() -> float:
            async with bench.extender.session.get("/metrics") as response:
                text = await response.text()
            found = re.search(r"^gpu_extender_requested_memory_bytes (\S+)", text, re.MULTILINE)
            assert found is not None
            return float(found[1]) / 2**20

        assert await usage() == 300
        bench.kube.delete_pod("a")
        await bench.caught_up()
        assert await usage() == 0


@pytest.mark.parametrize("long_seconds, freezes", [(0.0, True), (60.0, False)])
def test_what_survives_a_long_full_collection_is_out_of_the_collectors_sight(
    long_seconds: float, freezes: bool
) -> None:
    pace = GarbagePace(long_seconds)
    with pace.kept():
        before = gc.get_freeze_count()
        kept = [[number] for number in range(1000)]
        gc.collect()
        assert (gc.get_freeze_count() >= before + len(kept)) is freezes
        assert bool(pace.freezes) is freezes
        assert pace.worst_seconds > 0
        # Later garbage is still found.
        loop: list[object] = []
        loop.append(loop)
        del loop
        assert gc.collect() >= 1
    assert gc.get_freeze_count() == 0
    assert pace._on_collection not in gc.callbacks


async def test_young_objects_are_looked_at_however_few_more_are_made_than_freed() -> None:
    class Ring:
        def __init__(self) -> None:
            self.own = self

    gone: list[weakref.ref[Ring]] = []
    gc.disable()  # what CPython itself begins
    collecting = asyncio.create_task(GarbagePace().run())
    try:
        for generation in range(3):
            ring = Ring()
            for younger in range(generation):
                gc.collect(younger)
            gone.append(weakref.ref(ring))
            del ring
            await eventually(lambda: gone[-1]() is None)
    finally:
        collecting.cancel()
        gc.enable()


def test_the_first_full_collection_does_not_wait_for_a_share_of_what_is_frozen() -> None:
    with GarbagePace(60.0).kept():
        before = gc.get_stats()[2]["collections"]
        kept = [[number] for number in range(2 * prod(gc.get_threshold()))]
        assert gc.get_stats()[2]["collections"] > before
        del kept


async def test_an_unreadable_api_server_is_no_difference() -> None:
    async with running(node("n1")) as bench:
        bench.api.faults.add(fault="status", code=403, verb="list")
        found = await bench.live.compare()
        assert (found.differing, found.differences) == (0, [])
        assert found.why_incomplete.startswith("403")
