"""The fixture that tests of admission share."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.admission.reviews import Webhooks, admitting
from tests.extender.objects import node, quota
from tests.virtual_time import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest_asyncio.fixture
async def webhooks() -> AsyncIterator[Webhooks]:
    """A cluster with one card of 40,000 MiB, and a namespace with a limit of 24,000."""
    async with admitting(node("n1", 2, memory=40_000), quota({"limits.nvidia.com/gpumem": "24000"}, "team")) as client:
        yield client
