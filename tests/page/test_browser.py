"""The tests say why their browser does not work.

It exists because such a browser once took five minutes for each test. It must not need one, only the driver that starts
browsers. Invariant: the reason is in the browser's own words, and comes without a wait for a time to pass.
"""

from pathlib import Path

import pytest

from tests.page.browser import BrowserFailed, chromium, why_no_driver


async def test_a_browser_that_does_not_start_says_why_at_once(tmp_path: Path) -> None:
    why = why_no_driver()
    if why is not None:
        pytest.skip(why)
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho 'no room in /dev/shm' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(BrowserFailed, match="no room in /dev/shm"):
        async with chromium(str(program)):
            pass
