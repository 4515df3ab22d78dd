"""Runs `serve` on a live cluster as a process of its own, as a pod does.

It exists because signals, exit statuses and standard streams are an interface. It must not import the code under test.
Invariant: every process started here has ended, or was ended by its own id, when the test is over; none has logged a
traceback or something left open.
"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.forked import Child
from tests.virtual_time import until

#: Short leases; http-timeout must fit into them.
QUICK = ("--lease-duration", "1", "--lease-retry", "0.1", "--http-timeout", "0.8", "--lock-mode", "none")
#: A lease too long for a test to wait for its end.
LONG = ("--lease-duration", "600", "--lease-retry", "0.1", "--http-timeout", "5", "--lock-mode", "none")
_UNTIDY = re.compile(r"Traceback|Unclosed|never awaited|was destroyed|never retrieved")


class Process:
    """A process that listens somewhere."""

    def __init__(self, child: Child) -> None:
        self.url = ""
        self._child = child
        self._log = bytearray()
        self._reading = asyncio.create_task(asyncio.to_thread(self._read_log))

    @property
    def log(self) -> str:
        """Return everything on standard error so far."""
        return self._log.decode()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._child.poll() is not None

    async def listens(self) -> None:
        """Wait for the line that says where it listens."""
        line = (await asyncio.to_thread(self._child.stdout.readline)).decode()
        found = re.search(r"http://\S+", line)
        assert found is not None, self.log
        self.url = found[0]

    async def output(self) -> bytes:
        """Return everything that it writes to standard output until its end."""
        return await asyncio.to_thread(self._child.stdout.read)

    def send(self, number: int) -> None:
        """Send a signal."""
        self._child.send_signal(number)

    async def end(self) -> int:
        """Wait for the end; return the exit status."""
        status = await asyncio.to_thread(self._child.wait)
        await self._reading
        return status

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, in order; return the exit status."""
        self.send(number)
        status = await self.end()
        assert not _UNTIDY.search(self.log), self.log
        return status

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a GET; status 0 if there is no answer."""
        try:
            async with aiohttp.ClientSession(self.url) as session, session.get(path) as response:
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""

    async def post(self, path: str, body: object) -> Any:  # noqa: ANN401 - whatever the server said
        """Return the JSON answer of a POST."""
        async with aiohttp.ClientSession(self.url) as session, session.post(path, json=body) as response:
            assert response.status == 200
            return await response.json()

    async def answers(self, path: str, status: int) -> None:
        """Wait until a GET has that status."""

        async def has_status() -> bool:
            assert not self.ended, self.log
            return (await self.get(path))[0] == status

        await until(has_status)

    def _read_log(self) -> None:
        for line in self._child.stderr:
            self._log += line


@asynccontextmanager
async def started(*arguments: str | Path, env: dict[str, str] | None = None) -> AsyncIterator[Process]:
    """Run `python -m ...`."""
    module, *rest = map(str, arguments)
    child = Child(module, rest, env)
    process = Process(child)
    try:
        yield process
    finally:
        process.send(signal.SIGKILL)
        await process.end()
        child.close()


@asynccontextmanager
async def serving(kubeconfig: Path, *arguments: str | Path) -> AsyncIterator[Process]:
    """Run `serve` on a free port of loopback, and wait until it listens."""
    async with started("extender", "serve", "--port", "0", "--kubeconfig", kubeconfig, *arguments) as process:
        await process.listens()
        yield process


async def refusal(*arguments: str | Path) -> str:
    """Run a command that refuses its input; return its one line.

    Nothing may be on standard output, and the status is 2.
    """
    async with started("extender", *arguments, env={"KUBERNETES_SERVICE_HOST": ""}) as process:
        out = await process.output()
        assert (await process.end(), out) == (2, b"")
        line, end, rest = process.log.partition("\n")
        assert (end, rest) == ("\n", ""), process.log
        return line
