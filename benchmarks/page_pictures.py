"""Takes the pictures of docs/page.md.

It exists so that the pictures show the page as it is. It must not measure. Invariant: what is on them is the example
cluster, or what the caller looks at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from playwright.async_api import expect

from benchmarks import processes
from tests.page.browser import CHROMIUM, PATIENCE_SECONDS, Seen, chromium, looking_at

_NARROW: Final = 420


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


async def _ready(seen: Seen) -> None:
    await seen.until("document.documentElement.dataset.reached", lambda reached: reached == "14")
    await expect(seen.page.get_by_role("tabpanel")).to_contain_text("nodes", timeout=PATIENCE_SECONDS * 1000)
