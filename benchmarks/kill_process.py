"""The extender as a process that is killed and started again at the same address, and a gate for all other requests.

It exists so that a kill is real: SIGKILL, without a word to the API server. It must not know pods. Invariant: at most
one extender runs, and none after the end.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import aiohttp

from benchmarks.processes import python

ROOT: Final = Path(__file__).resolve().parents[1]
_READY_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.02


class Gate:
    """Holds back the requests of sessions that go through it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def session(self, url: str, seconds: float | None = None) -> aiohttp.ClientSession:
        """Return a session whose requests wait while the gate is closed."""
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._begin)
        trace.on_request_end.append(self._end)
        trace.on_request_exception.append(self._end)
        return aiohttp.ClientSession(
            url, trace_configs=[trace], timeout=aiohttp.ClientTimeout(total=seconds), read_bufsize=2**22
        )

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Close the gate for the block, after waiting for the requests that are under way."""
        self._open.clear()
        try:
            await self._idle.wait()
            yield
        finally:
            self._open.set()

    async def _begin(self, _session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
        await self._open.wait()
        self._busy += 1
        self._idle.clear()
        context.is_busy = True

    async def _end(self, _session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
        # A request that was cancelled at the gate never began.
        if getattr(context, "is_busy", False):
            context.is_busy = False
            self._busy -= 1
            if not self._busy:
                self._idle.set()


class Extender:
    """One extender after another at one address."""

    def __init__(self, kubeconfig: Path, log: Path, arguments: Sequence[str] = ()) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kills: list[float] = []  # Unix times
        self.restart_seconds: list[float] = []  # from the start of a process until it was ready
        self._log = log
        common = ["serve", "--kubeconfig", str(kubeconfig), "--port", str(self.port), "--log-format", "json"]
        self._command = python("extender", *common, *arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._started = 0.0

    async def start(self, *arguments: str) -> None:
        """Start a process; it is not ready yet."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, *arguments, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._started = time.monotonic()

    async def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self.kills.append(time.time())
            await self._process.wait()

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Wait until the process is ready. Raises RuntimeError."""
        while time.monotonic() < self._started + _READY_SECONDS:
            if self._process is None or self._process.returncode is not None:
                break
            try:
                async with session.get("/readyz") as response:
                    if response.status == 200:
                        self.restart_seconds.append(time.monotonic() - self._started)
                        return
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(_POLL_SECONDS)
        raise RuntimeError(f"the extender does not get ready: {self._log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
