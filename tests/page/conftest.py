"""One browser for all tests of the page that a process runs.

It exists because a browser takes seconds to start. It must not know the page. Invariant: a browser that does not work
fails each test that needs it at once, with the same reason, after one attempt.
"""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.page.browser import CHROMIUM, chromium


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    assert CHROMIUM is not None
    async with chromium(CHROMIUM) as running:
        yield running
