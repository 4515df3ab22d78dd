"""Hostile clients, and their effect on the server process.

It exists because bounds concern the whole process: memory and file descriptors are read from /proc. It must not import
the code under test. Invariant: every socket opened here is closed.
"""

import asyncio
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

from tests.admission.test_tls import write_pair
from tests.forked import Child
from tests.live.process_harness import Process, started

SECONDS = 60.0
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Target:
    """A running `serve`: where its ports are, and what it uses."""

    def __init__(self, process: Process, webhook_port: int, trust: ssl.SSLContext) -> None:
        found = re.match(r"http://[\d.]+:(\d+)", process.url)
        assert found is not None
        # The line that says it is JSON here.
        process.url = found[0]
        self.process = process
        self.port = int(found[1])
        self.webhook_port = webhook_port
        self._trust = trust
        self.pid = process._child.pid

    @property
    def resident_mib(self) -> float:
        """Return the memory used now."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    @property
    def descriptors(self) -> int:
        """Open file descriptors."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def connect(self, *, webhooks: bool = False, peer: str = "127.0.0.1") -> Stream:
        """Open a connection, from an address of loopback."""
        port, tls = (self.webhook_port, self._trust) if webhooks else (self.port, None)
        return await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, local_addr=(peer, 0), server_hostname="127.0.0.1" if tls else None
        )


@asynccontextmanager
async def target(folder: Path, *arguments: str, descriptors: int | None = None) -> AsyncIterator[Target]:
    """Run `serve` with both ports on the example cluster. `descriptors`: how many it may have."""
    write_pair(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        webhook_port = probe.getsockname()[1]
    files = ["--tls-cert-file", str(folder / "tls.crt"), "--tls-private-key-file", str(folder / "tls.key")]
    command = ["serve", "--port", "0", "--webhook-port", str(webhook_port), "--log-format", "json", *files, *arguments]
    module = ["extender", *command]
    if descriptors is not None:
        # As `ulimit -n` would, before anything of the project is imported.
        code = f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({descriptors}, {descriptors}))"
        code += f"; from extender.cli import main; import sys; sys.exit(main({command!r}))"
        module = []
        made = started_with(["-c", code])
    else:
        made = started(*module)
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    async with made as process:
        await process.listens()
        there = Target(process, webhook_port, trust)
        await _until_open(there)
        yield there


@asynccontextmanager
async def started_with(arguments: list[str]) -> AsyncIterator[Process]:
    """Run an interpreter of its own with these arguments: limits have to stand before anything is imported."""
    made = _interpreter(arguments)
    # A Child is what a Popen would be.
    process = Process(cast("Child", made))
    try:
        yield process
    finally:
        process.send(signal.SIGKILL)
        await process.end()
        for stream in (made.stdin, made.stdout, made.stderr):
            assert stream is not None
            stream.close()


def _interpreter(arguments: list[str]) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *arguments], stdin=pipe, stdout=pipe, stderr=pipe)


async def _until_open(there: Target) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await there.connect(webhooks=True)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
            else:
                return await closed(writer)


async def closed(*writers: asyncio.StreamWriter) -> None:
    """Close connections, in whatever state they are."""
    for writer in writers:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@asynccontextmanager
async def connections(
    there: Target, count: int, *, webhooks: bool, peer: str = "127.0.0.2"
) -> AsyncIterator[list[Stream]]:
    """Open that many, as far as the server accepts them."""
    async with AsyncExitStack() as stack:
        streams: list[Stream] = []
        for _ in range(count):
            try:
                stream = await there.connect(webhooks=webhooks, peer=peer)
            except (ConnectionError, ssl.SSLError):
                continue
            stack.push_async_callback(closed, stream[1])
            streams.append(stream)
        yield streams


def head(path: str, *lines: str, method: str = "POST") -> bytes:
    """The head of a request, open for more lines if none is empty."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, ""]).encode()


async def sent(streams: Iterable[Stream], data: bytes) -> None:
    """Send to all at once, as far as they take it: to those that are dropped meanwhile a part."""

    async def one(writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(data)
            await writer.drain()
        except ConnectionError:
            pass

    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*(one(writer) for _, writer in streams))


async def ended(streams: Iterable[Stream]) -> None:
    """Wait until the server has ended all of them."""

    async def one(reader: asyncio.StreamReader) -> None:
        try:
            while await reader.read(65536):
                pass
        except (ConnectionError, ssl.SSLError):
            pass

    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*(one(reader) for reader, _ in streams))


async def status(stream: Stream) -> int:
    """The status of an answer."""
    async with asyncio.timeout(SECONDS):
        line = await stream[0].readline()
    return int(line.split()[1])
