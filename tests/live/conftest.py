"""What all tests of the live cluster share.

It exists to notice what a test does not ask about. Invariant: no test passes while the extender has logged a bug.
"""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def no_bug_is_logged() -> Iterator[None]:
    """Logs with a traceback are bugs: whatever is expected is logged without one."""
    with capture_logs() as logs:
        yield
    assert [entry for entry in logs if entry.get("exc_info")] == []
