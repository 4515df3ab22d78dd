"""`serve` on a live cluster as a process of its own, as a pod runs it.

It exists because signals, exit statuses and standard streams are an interface. It must not import the code under test.
Invariant: every process started here has ended, or was ended by its own id, when the test is over; none has said
anything of tracebacks or of what it left open.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60.0
#: Short leases; http-timeout must fit into them.
QUICK = ("--lease-duration", "1", "--lease-retry", "0.1", "--http-timeout", "0.8", "--lock-mode", "none")
#: A lease that nobody waits for.
LONG = ("--lease-duration", "600", "--lease-retry", "0.1", "--http-timeout", "5", "--lock-mode", "none")
_UNTIDY = re.compile(r"Traceback|Unclosed|never awaited|was destroyed|never retrieved")


class Process:
    """A process that listens somewhere."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.url = ""
        self._process = process
        self._log = bytearray()
        self._reading = asyncio.create_task(self._read_log())

    @property
    def log(self) -> str:
        """Everything on standard error so far."""
        return self._log.decode()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.returncode is not None

    async def listens(self) -> None:
        """Wait for the line that says where it listens."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            line = (await self._process.stdout.readline()).decode()
        found = re.search(r"http://\S+", line)
        assert found is not None, self.log
        self.url = found[0]

    async def output(self) -> bytes:
        """Everything that it writes to standard output until its end."""
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            return await self._process.stdout.read()

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self._process.pid, number)

    async def end(self) -> int:
        """Wait for the end; the exit status."""
        async with asyncio.timeout(SECONDS):
            status = await self._process.wait()
        await self._reading
        return status

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, tidily; the exit status."""
        self.send(number)
        status = await self.end()
        assert not _UNTIDY.search(self.log), self.log
        return status

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of a GET; status 0 if there is no answer."""
        try:
            async with aiohttp.ClientSession(self.url) as session, session.get(path) as response:
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""

    async def post(self, path: str, body: object) -> Any:  # noqa: ANN401 - whatever the server said
        """The JSON answer of a POST."""
        async with aiohttp.ClientSession(self.url) as session, session.post(path, json=body) as response:
            assert response.status == 200
            return await response.json()

    async def answers(self, path: str, status: int, *, within: float = SECONDS) -> None:
        """Wait until a GET has that status."""
        async with asyncio.timeout(within):
            while (await self.get(path))[0] != status:
                assert not self.ended, self.log
                await asyncio.sleep(0.02)

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(65536):
            self._log += data


@asynccontextmanager
async def started(*arguments: str | Path, env: dict[str, str] | None = None) -> AsyncIterator[Process]:
    """Run `python -m ...`."""
    pipe = asyncio.subprocess.PIPE
    made = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *map(str, arguments),
        cwd=ROOT,
        env=os.environ | (env or {}),
        stdout=pipe,
        stderr=pipe,
    )
    process = Process(made)
    try:
        yield process
    finally:
        if not process.ended:
            process.send(signal.SIGKILL)
        await process.end()


@asynccontextmanager
async def serving(kubeconfig: Path, *arguments: str | Path) -> AsyncIterator[Process]:
    """Run `serve` on a free port of loopback, and wait until it listens."""
    async with started("extender", "serve", "--port", "0", "--kubeconfig", kubeconfig, *arguments) as process:
        await process.listens()
        yield process


async def refusal(*arguments: str | Path) -> str:
    """The one line of a command that refuses its input: exit status 2 and nothing on standard output."""
    async with started("extender", *arguments, env={"KUBERNETES_SERVICE_HOST": ""}) as process:
        out = await process.output()
        assert (await process.end(), out) == (2, b"")
        line, end, rest = process.log.partition("\n")
        assert (end, rest) == ("\n", ""), process.log
        return line
