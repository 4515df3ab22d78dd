"""A real Chromium that looks at the page of a real server.

It exists because what a browser refuses or misreads no other client notices. It must not know the page. Invariants: the
browser makes no request of its own; whatever the page logs as an error, and every request to another host, is kept.
"""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(slots=True)
class Seen:
    """A page, and what went wrong in it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    async def until(self, expression: str, wanted: Callable[[Any], bool] = bool) -> Any:  # noqa: ANN401 - JavaScript's
        """What an expression gives once it is wanted. The page's policy forbids waiting inside of it."""
        while not wanted(value := await self.page.evaluate(expression)):
            await self.page.wait_for_timeout(20)
        return value

    async def press(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            await self.page.keyboard.press(key)


@asynccontextmanager
async def looking_at(url: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> AsyncIterator[Seen]:
    """The page at a URL in a new browser."""
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        page = await browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        seen = Seen(page)
        page.on("console", lambda said: seen.errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.hosts.add(request.url.split("/")[2]))
        await page.goto(url)
        try:
            yield seen
        finally:
            await browser.close()
