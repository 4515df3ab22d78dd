"""What all tests of the live cluster share.

It exists to notice what a test does not ask about, and to let no test wait. Invariants: no test passes while the
extender has logged a bug; time is virtual, but for a test that has processes or threads of its own and says so.
"""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.virtual_time import leases_in_virtual_time, pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture(autouse=True)
def steady_seconds_are_the_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """The clock of the leases shows the time of the loop."""
    if request.node.get_closest_marker("real_time"):
        yield
        return
    with leases_in_virtual_time():
        yield


@pytest.fixture(autouse=True)
def no_bug_is_logged() -> Iterator[None]:
    """Logs with a traceback are bugs: whatever is expected is logged without one."""
    with capture_logs() as logs:
        yield
    assert [entry for entry in logs if entry.get("exc_info")] == []
