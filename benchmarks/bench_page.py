"""Measures the page, the lists and the metrics of a large live cluster, and for how long they hold the event loop.

It exists because kube-scheduler waits for whatever holds the loop, and a page that is quick over 3 nodes may be slow
over 10,000. It must not judge a change: the exit status says only whether the run was completed. Invariant: API server,
events, browser and extender are processes of their own; events come all the time.

    python -m benchmarks.bench_page [--quick] [--size NODESxPODS] [-o docs/bench_page.json] [--pictures docs]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
from playwright.async_api import Browser, CDPSession
from rich.console import Console
from rich.table import Table

from benchmarks import live_cluster, live_dump, live_events, page_pictures, targets
from benchmarks.figures import Json, Size
from benchmarks.http_load import Address
from benchmarks.live_process import LiveProcess, Stall
from benchmarks.report import Machine
from benchmarks.targets import Target
from tests.page.browser import CHROMIUM, chromium, looking_at

_QUICK: Final = Size(1_000, 10_000)
_LISTS: Final = (
    "nodes",
    "pods",
    "verify",
    "verify?fields=devices,problems",
    "quotas",
    "decisions",
    "claims",
    "holds",
    "usage",
    "options",
    "summary",
    "nodes?limit=500",
    "verify?fields=problems",
)
_SYNC_SECONDS: Final = 900.0
_LOOK_SECONDS: Final = 900.0
_SCROLL_SECONDS: Final = 5
_TOGETHER_SECONDS: Final = 20.0
_SCRAPES: Final = 3
#: The gauges of stalls remember two minutes at most.
_FORGET_SECONDS: Final = 121.0
_STALL_MS: Final = 50.0
_FRAME_MS: Final = 1000 / 30
_WAITING: Final = {
    "eval-0": {"gpu": 1, "gpumem": 98_000},
    "pretrain-0": {"gpu": 8, "gpumem": 80_000, "gpucores": 90},
}
_COLUMNS: Final = 110
#: Scrolls a page a quarter of a second, draws in every frame, and says how long the frames took.
_SCROLL: Final = """
async (seconds) => {
  const grid = document.getElementById("grid"), gaps = [], begun = performance.now();
  let last = begun, step = 300;
  await new Promise((done) => {
    const frame = (now) => {
      gaps.push(now - last);
      last = now;
      grid.scrollTop += step;
      if (grid.scrollTop <= 0 || grid.scrollTop + grid.clientHeight >= grid.scrollHeight - 1) step = -step;
      if (now - begun < seconds * 1000) requestAnimationFrame(frame);
      else done();
    };
    requestAnimationFrame(frame);
  });
  return { frames: gaps.length - 1, seconds: (last - begun) / 1000, longest: Math.max(...gaps.slice(1)) };
}
"""
_FIRST_PICTURE: Final = "performance.getEntriesByName('first-picture')[0]?.startTime ?? 0"


class Looked(NamedTuple):
    """What a person at the page meets."""

    first_picture_ms: float
    """From the request for the page to nodes on the screen."""
    all_nodes_ms: float
    frames_per_second: float
    longest_frame_ms: float
    frame_cpu_ms: float
    """Of the browser's main thread: what is left of a frame when the machine has others to serve."""


class Answer(NamedTuple):
    """One list or scrape, whole and compressed."""

    what: str
    seconds: float
    kib: int


class PageReport(NamedTuple):
    """A whole run."""

    machine: Machine
    size: Size
    seed: int
    pods: int
    events_per_second: int
    cold: Looked
    warm: Looked
    lists: list[Answer]
    scrapes: list[Answer]
    stalls: dict[str, Stall]

    def targets(self) -> list[Target]:
        large = self.size == targets.LARGE
        found = []
        for name, looked in (("first look", self.cold), ("looked at again", self.warm)):
            found += [
                Target(f"{name}: first picture", "s", looked.first_picture_ms / 1000, 2.0 if large else None),
                Target(f"{name}: all nodes", "s", looked.all_nodes_ms / 1000),
                Target(f"{name}: longest frame while scrolling", "ms", looked.longest_frame_ms),
                Target(
                    f"{name}: a frame while scrolling, own CPU", "ms", looked.frame_cpu_ms, _FRAME_MS if large else None
                ),
            ]
        slowest = min(self.cold.frames_per_second, self.warm.frames_per_second)
        found.append(Target("milliseconds a frame while scrolling", "ms", 1000 / slowest, _FRAME_MS if large else None))
        found += [Target(f"/api/v1/{each.what}", "s", each.seconds) for each in self.lists]
        scrape = median(each.seconds for each in self.scrapes)
        found.append(Target("/metrics with --metrics-per-pod", "s", scrape, 1.0 if large else None))
        for name, stall in self.stalls.items():
            found.append(Target(f"{name}: longest stall", "ms", stall.wall_us / 1000, _STALL_MS))
            found.append(Target(f"{name}: longest stall, own CPU", "ms", stall.cpu_us / 1000, _STALL_MS))
        return found

    def as_json(self) -> Json:
        return {
            "machine": self.machine._asdict(),
            "size": str(self.size),
            "seed": self.seed,
            "pods": self.pods,
            "events_per_second": self.events_per_second,
            "cold": self.cold._asdict(),
            "warm": self.warm._asdict(),
            "lists": [each._asdict() for each in self.lists],
            "scrapes": [each._asdict() for each in self.scrapes],
            "stalls": {name: stall._asdict() for name, stall in self.stalls.items()},
            "targets": [target.as_json() for target in self.targets()],
        }


class Run:
    """One run against one cluster."""

    def __init__(
        self, address: Address, extender: LiveProcess, nodes: int, console: Console, forget_seconds: float
    ) -> None:
        self._url = str(address)
        self._extender = extender
        self._nodes = nodes
        self._console = console
        self._forget_seconds = forget_seconds
        self.stalls: dict[str, Stall] = {}

    async def phase(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - what the work finds
        """Do some work, and note the longest stall meanwhile."""
        self._console.print(f"{name} ...")
        await asyncio.sleep(self._forget_seconds)
        self._extender.forget_stalls()
        found = await work()
        self.stalls[name] = await asyncio.to_thread(self._extender.stall)
        return found

    async def look(self, browser: Browser, picture: Path | None = None) -> Looked:
        """Open the page, wait for all nodes, scroll."""
        async with looking_at(browser, self._url) as seen:
            first = await seen.until(_FIRST_PICTURE, seconds=_LOOK_SECONDS)
            whole = str(self._nodes)
            await seen.until("document.documentElement.dataset.nodes", lambda count: count == whole, _LOOK_SECONDS)
            everything = await seen.page.evaluate("performance.now()")
            if picture is not None:
                await page_pictures.of_page(seen, picture)
            session = await seen.page.context.new_cdp_session(seen.page)
            await session.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = await _cpu_seconds(session)
            scrolled = await seen.page.evaluate(_SCROLL, _SCROLL_SECONDS)
            cpu = await _cpu_seconds(session) - before
            assert seen.errors == [], seen.errors
        frames = max(1, scrolled["frames"])
        return Looked(first, everything, frames / scrolled["seconds"], scrolled["longest"], 1000 * cpu / frames)

    async def ask(self, what: str, path: str) -> Answer:
        """Read an answer to its end, compressed, as a browser and Prometheus ask for it."""
        started, size = time.perf_counter(), 0
        async with (
            aiohttp.ClientSession(self._url, auto_decompress=False, read_bufsize=1 << 22) as session,
            session.get(path, headers={"Accept-Encoding": "gzip"}) as answer,
        ):
            assert answer.status == 200, await answer.text()
            async for part in answer.content.iter_any():
                size += len(part)
        return Answer(what, round(time.perf_counter() - started, 3), size // 1024)

    async def lists(self) -> list[Answer]:
        return [await self.ask(each, f"/api/v1/{each}") for each in _LISTS]

    async def scrapes(self) -> list[Answer]:
        return [await self.ask("metrics", "/metrics") for _ in range(_SCRAPES)]

    async def together(self, browser: Browser) -> None:
        """Scroll through the page while lists and scrapes are read, again and again."""
        until = time.monotonic() + _TOGETHER_SECONDS

        async def again_and_again(work: Callable[[], Awaitable[object]]) -> None:
            while time.monotonic() < until:
                await work()

        async with asyncio.TaskGroup() as group:
            for work in (self.lists, self.scrapes, lambda: self.look(browser)):
                group.create_task(again_and_again(work))


async def _create_waiting(url: str) -> None:
    """Create two pods that wait: one that asks for much, and one that asks for more than any card has."""
    async with aiohttp.ClientSession(url) as session:
        for name, asked in _WAITING.items():
            resources = {"limits": {f"nvidia.com/{key}": str(value) for key, value in asked.items()}}
            pod = {
                "metadata": {"name": name, "namespace": "team-1"},
                "spec": {"containers": [{"name": "main", "image": "none", "resources": resources}]},
            }
            async with session.post("/api/v1/namespaces/team-1/pods", json=pod) as answer:
                assert answer.status == 201, await answer.text()


async def _cpu_seconds(session: CDPSession) -> float:
    """How long the page's main thread ran so far."""
    found = (await session.send("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


async def _measure(run: Run, pictures: Path | None) -> tuple[Looked, Looked, list[Answer], list[Answer]]:
    assert CHROMIUM is not None, "chromium is not installed"
    async with chromium(CHROMIUM) as browser:
        cold = await run.phase("page", lambda: run.look(browser))
        warm = await run.phase("page again", lambda: run.look(browser, pictures and pictures / "page-10000-nodes.png"))
        lists = await run.phase("lists", run.lists)
        scrapes = await run.phase("metrics", run.scrapes)
        await run.phase("page, lists and metrics together", lambda: run.together(browser))
    return cold, warm, lists, scrapes


def run(size: Size, seed: int, per_second: int, forget_seconds: float, pictures: Path | None) -> PageReport:
    """Measure everything."""
    machine, console = Machine.now(), Console(stderr=True)
    with TemporaryDirectory(prefix="bench-page-") as name:
        console.print(f"writing {size} ...")
        dump = live_dump.write(size, seed, Path(name))
        kubeconfig = Path(name) / "kubeconfig"
        with (
            live_cluster.api_server(dump, kubeconfig) as api,
            live_cluster.extender(kubeconfig, ["--metrics-per-pod"]) as started,
        ):
            console.print("first lists ...")
            extender = LiveProcess(started.pid, started.address)
            extender.wait_until_ready(_SYNC_SECONDS)
            trial = Run(started.address, extender, len(dump.nodes), console, forget_seconds)
            with live_cluster.events(api.address, dump, live_events.INITS, per_second=per_second) as sending:
                asyncio.run(_create_waiting(str(api.address)))
                found = asyncio.run(_measure(trial, pictures))
                assert sending.poll() is None, "the events ended early"
    return PageReport(machine, size, seed, dump.pods, per_second, *found, trial.stalls)


def _show(report: PageReport, console: Console) -> None:
    console.print(str(report.machine))
    table = Table(title=f"{report.size}, {report.events_per_second} events/s", title_justify="left")
    for heading in ("what", "measured", "target", ""):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for target in report.targets():
        limit = "" if target.limit is None else f"<= {target.limit:.3g} {target.unit}"
        verdict = {None: "", True: "met", False: "not met"}[target.met]
        table.add_row(target.what, f"{target.measured:.2f} {target.unit}", limit, verdict)
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_page", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller cluster, and no rest between the phases")
    parser.add_argument("--size", type=live_cluster.size, metavar="NODESxPODS")
    parser.add_argument("--per-second", type=int, default=300, help="events all the time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the cluster (default: %(default)s)")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="write the pictures of docs/page.md there")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args(argv)
    if options.pictures:
        asyncio.run(page_pictures.of_example(options.pictures))
        asyncio.run(page_pictures.of_holders(options.pictures))
    size = options.size or (_QUICK if options.quick else targets.LARGE)
    forget = 0.0 if options.quick else _FORGET_SECONDS
    report = run(size, options.seed, options.per_second, forget, options.pictures)
    console = Console()
    _show(report, console if console.is_terminal else Console(width=_COLUMNS))
    if options.output:
        options.output.write_bytes(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
