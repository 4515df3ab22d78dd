"""A scrape gives the loop to others while it is made.

They exist because Prometheus asks for everything, a hundred times while kube-scheduler waits once. They must not know
single metrics. Invariant: what is measured is passes of the loop, not seconds.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.config import ServerSettings
from extender.server.app import make_app
from tests.extender.objects import bound, node
from tests.extender.serving import make_cluster


class Passes(Collector):
    """Metrics that note how many passes of the loop there had been when each was made."""

    def __init__(self) -> None:
        self.passes = 0
        self.noted: list[int] = []

    def collect(self) -> Iterator[Metric]:
        for number in range(4):
            self.noted.append(self.passes)
            yield GaugeMetricFamily(f"noted_{number}", "Passes of the loop so far.", value=self.passes)

    async def count(self) -> None:
        while True:
            self.passes += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("settings", [ServerSettings(), ServerSettings(metrics_per_pod=True)])
async def test_others_are_served_between_two_metrics(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.server.turns._TURN_SECONDS", 0.0)
    noting, cluster = Passes(), make_cluster(node("n1"), bound("p", "n1", "GPU-n1-0", 10))
    counting = asyncio.create_task(noting.count())
    async with TestClient(TestServer(make_app(cluster, settings, collectors=[noting]))) as client:
        noting.noted.clear()
        async with client.get("/metrics") as answer:
            text = await answer.text()
    counting.cancel()
    with suppress(asyncio.CancelledError):
        await counting
    assert len(set(noting.noted)) == len(noting.noted) == 4
    assert [line for line in text.splitlines() if line.startswith("noted_")] == [
        f"noted_{number} {float(passes)}" for number, passes in enumerate(noting.noted)
    ]


async def test_a_metric_that_is_named_comes_alone() -> None:
    name = "gpu_extender_request_duration_seconds_count"
    async with (
        TestClient(TestServer(make_app(make_cluster(node("n1")), ServerSettings()))) as client,
        client.get(f"/metrics?name[]={name}") as answer,
    ):
        lines = (await answer.text()).splitlines()
    found = {line.partition("{")[0] for line in lines if not line.startswith("#")}
    assert found == {name}


async def test_the_format_is_the_one_that_is_asked_for() -> None:
    headers = {"Accept": "application/openmetrics-text;version=1.0.0"}
    async with (
        TestClient(TestServer(make_app(make_cluster(node("n1")), ServerSettings()))) as client,
        client.get("/metrics", headers=headers) as answer,
    ):
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert (await answer.text()).endswith("# EOF\n")
