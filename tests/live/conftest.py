"""Rules for all tests of the live cluster.

It exists to notice what a test does not check, and to keep tests from waiting. Invariants: no test passes if the
extender has logged a bug; time is virtual, except in a test that has processes or threads of its own and says so.
"""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.virtual_time import leases_in_virtual_time, pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture(autouse=True)
def steady_seconds_are_the_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make the clock of the leases show the time of the loop."""
    if request.node.get_closest_marker("real_time"):
        yield
        return
    with leases_in_virtual_time():
        yield


@pytest.fixture(autouse=True)
def no_bug_is_logged() -> Iterator[None]:
    """Fail on logs with a traceback: they are bugs, as expected errors are logged without one."""
    with capture_logs() as logs:
        yield
    assert [entry for entry in logs if entry.get("exc_info")] == []
