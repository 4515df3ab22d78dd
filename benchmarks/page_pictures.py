"""Takes the pictures of docs/page.md.

It exists so that the pictures show the page as it is. It must not measure. Invariant: what is on them is the example
cluster, a small one with all kinds of holders, or what the caller looks at.

    python -m benchmarks.page_pictures docs
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from playwright.async_api import expect

from benchmarks import processes
from tests.extender.dra import gpu, resource_claim, resource_slice, share
from tests.extender.objects import bound, card, container, listed, node, pod
from tests.extender.vmis import K, raw_pod, units_of, vmi
from tests.page.browser import CHROMIUM, PATIENCE_SECONDS, Seen, chromium, looking_at

_NARROW: Final = 420
_CARDS: Final = 4
_CARD_MIB: Final = 24_576


def _node(number: int, whole: int) -> dict[str, Any]:
    """A node with shared cards, and whole devices if there are some."""
    cards = [card(f"GPU-{number}-{place}", place, memory=_CARD_MIB) for place in range(_CARDS)]
    made: dict[str, Any] = node(f"gpu-{number}", cards)
    made["status"] = {"allocatable": {"cpu": "64", "nvidia.com/gpu": "40"} | ({K: str(whole)} if whole else {})}
    return made


def _holders() -> str:
    """A cluster in which pods, claims and VMs hold something, as a manifest."""
    slices = [
        resource_slice(
            *(gpu(f"gpu-{place}", f"GPU-{number}-{place}") for place in range(_CARDS)),
            name=f"gpu-{number}-gpus",
            node=f"gpu-{number}",
        )
        for number in (1, 2)
    ]
    claims = [
        resource_claim("training", {"request": "main", "driver": "gpu.nvidia.com", "pool": "gpu-1", "device": "gpu-0"}),
        resource_claim("notebook", share("10Gi", "30", name="hami-gpu-1") | {"pool": "gpu-1"}),
        resource_claim("render", share("6Gi", "20", number="2", name="hami-gpu-1") | {"pool": "gpu-1"}),
    ]
    pods = [
        bound("web", "gpu-1", "GPU-1-1", 4_000, cores=10),
        bound("batch", "gpu-2", "GPU-2-0", 18_000, cores=60),
        raw_pod("virt-launcher-db", 2, vmi="db", node="gpu-1"),
        pod("cuda-test", [container("main", units_of(1))], node="gpu-1", status={"phase": "Running"}),
        pod("waits-for-devices", [container("main", units_of(4))]),
    ]
    machines = [vmi("db", ["uid-virt-launcher-db"], units=2, node="gpu-1"), vmi("desktop", units=4, node="gpu-2")]
    return listed(_node(1, 4), _node(2, 4), _node(3, 0), *slices, *claims, *pods, *machines)


async def of_page(seen: Seen, path: Path) -> None:
    """Take what a window shows, once the text for the first waiting pod is there."""
    if await seen.page.locator("details.pod[open]").count():
        await expect(seen.page.locator(".answer").first).to_be_visible(timeout=PATIENCE_SECONDS * 1000)
    await seen.page.screenshot(path=path)


async def of_example(folder: Path) -> None:
    """Take the example cluster: as it opens, with an open card in the dark scheme, and in a narrow window."""
    assert CHROMIUM is not None, "chromium is not installed"
    with processes.extender([]) as server:
        url = str(server.address)
        async with chromium(CHROMIUM) as browser:
            async with looking_at(browser, url) as seen:
                await _ready(seen)
                await of_page(seen, folder / "page.png")
            async with looking_at(browser, url, dark=True) as seen:
                await _ready(seen)
                await seen.page.locator("#grid").focus()
                # The second card of the node whose pods have inits and sidecars.
                await seen.press("Home", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter")
                await expect(seen.page.locator(".timeline").first).to_be_visible(timeout=PATIENCE_SECONDS * 1000)
                await seen.page.screenshot(path=folder / "page-card-dark.png")
            async with looking_at(browser, url, width=_NARROW, height=860) as seen:
                await _ready(seen)
                await seen.page.screenshot(path=folder / "page-narrow.png")


async def of_holders(folder: Path) -> None:
    """Take a cluster with all kinds of holders, and its whole devices opened."""
    assert CHROMIUM is not None, "chromium is not installed"
    with TemporaryDirectory(prefix="page-pictures-") as name:
        cluster = Path(name) / "cluster.json"
        cluster.write_text(_holders(), encoding="utf-8")
        serving = ["extender", "serve", "--port", "0", "--cluster", str(cluster), "--raw-key", K]
        with processes.running(serving) as server:
            async with chromium(CHROMIUM) as browser, looking_at(browser, str(server.address), height=620) as seen:
                await _ready(seen, 3)
                await seen.page.locator("#grid").focus()
                await seen.press("Home", *["ArrowRight"] * _CARDS, "Enter")
                await expect(seen.page.locator(".holder").first).to_be_visible(timeout=PATIENCE_SECONDS * 1000)
                await seen.page.screenshot(path=folder / "page-holders.png")


async def _ready(seen: Seen, nodes: int = 14) -> None:
    await seen.until("document.documentElement.dataset.reached", lambda reached: reached == str(nodes))
    await expect(seen.page.get_by_role("tabpanel")).to_contain_text("nodes", timeout=PATIENCE_SECONDS * 1000)


if __name__ == "__main__":
    asyncio.run(of_example(Path(sys.argv[1])))
    asyncio.run(of_holders(Path(sys.argv[1])))
