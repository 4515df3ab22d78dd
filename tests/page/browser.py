"""A real Chromium that looks at the page of a real server.

It exists because no other client notices what a browser refuses or misreads. It must not know the page. Invariants: the
browser makes no request of its own; whatever the page logs as an error, and every request to another host, is kept; a
browser that cannot show a page says so once, in its own words, before any test waits for it.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Error, Page, async_playwright

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"
)
_FLAGS = (
    "--headless",
    # As root and in a container: no namespaces for a sandbox, little /dev/shm, no graphics.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: For what takes a second on an idle machine; a browser that crashed says so at once.
PATIENCE_SECONDS = 60.0
_LAST_WORDS = 4000


def why_no_driver() -> str | None:
    """Return why Playwright's driver, a Node.js of its own, does not start; None if it does."""
    started = subprocess.run([sys.executable, "-m", "playwright", "--version"], capture_output=True, check=False)
    said = started.stderr.decode(errors="replace").strip()
    return f"Playwright's driver does not start: {said}" if started.returncode else None


class BrowserFailed(Exception):
    """The browser cannot show a page; with what it wrote to its standard error."""


@dataclass(slots=True)
class Seen:
    """A page, and what went wrong in it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    async def until(
        self, expression: str, wanted: Callable[[Any], bool] = bool, seconds: float = PATIENCE_SECONDS
    ) -> Any:  # noqa: ANN401 - JavaScript's
        """Return what an expression gives once it is wanted. The page's policy forbids waiting inside the page."""
        value: Any = None
        try:
            async with asyncio.timeout(seconds):
                while not wanted(value := await self.page.evaluate(expression)):
                    await self.page.wait_for_timeout(20)
        except TimeoutError:
            raise AssertionError(f"{expression} is still {value!r}; the page said {self.errors}") from None
        return value

    async def press(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            await self.page.keyboard.press(key)


@asynccontextmanager
async def chromium(program: str) -> AsyncIterator[Browser]:
    """A running browser that has shown a page. Raises `BrowserFailed`."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stderr"
        # Playwright tells what a browser says while it starts; this keeps what it says until its end.
        starter = Path(folder) / "chromium"
        starter.write_text(f'#!/bin/sh\nexec "{program}" "$@" 2>"{log}"\n')
        starter.chmod(0o755)
        async with async_playwright() as player:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    browser = await player.chromium.launch(executable_path=str(starter), args=list(_FLAGS))
                    await _show_something(browser)
            except (Error, TimeoutError) as error:
                said = log.read_text(errors="replace")[-_LAST_WORDS:] if log.exists() else ""
                why = f"{program} shows no page: {str(error) or type(error).__name__}"
                raise BrowserFailed(f"{why}\nIts standard error:\n{said or '(empty)'}") from None
            try:
                yield browser
            finally:
                await browser.close()


async def _show_something(browser: Browser) -> None:
    """Show a page with a canvas: a browser without shared memory or graphics starts and then fails at this."""
    page = await browser.new_page()
    await page.set_content("<canvas></canvas>")
    await page.screenshot()
    await page.close()


@asynccontextmanager
async def looking_at(
    browser: Browser, url: str, *, width: int = 1440, height: int = 900, dark: bool = False
) -> AsyncIterator[Seen]:
    """The page at a URL, in a profile of its own."""
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    page = await context.new_page()
    seen = Seen(page)
    page.on("console", lambda said: seen.errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.hosts.add(request.url.split("/")[2]))
    try:
        await page.goto(url)
        yield seen
    finally:
        await context.close()
