"""A running server and its client for each test.

Invariant: every test has a server of its own, and both are gone afterwards; its time is virtual.
"""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import Client
from tests.virtual_time import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(history_limit=1000) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(server.url, connector=connector, read_bufsize=2**22) as session:
        yield Client(session)
