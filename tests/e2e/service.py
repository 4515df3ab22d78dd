"""Plays the Service in front of several replicas: a connection goes to one that is ready.

It exists because kube-scheduler knows one address. It must not read what it passes on. Invariant: as with a Service, a
connection that is open stays with its replica.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol


class Endpoint(Protocol):
    """A replica."""

    url: str

    def is_ready(self) -> bool:
        """Whether it is ready."""


class Service:
    """A port of loopback that leads to the replica that is ready."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; return the URL."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop listening, and close what is open."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._forward(reader, writer)
        finally:
            self._open.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for endpoint in self._endpoints:
            if await asyncio.to_thread(endpoint.is_ready):
                port = int(endpoint.url.rpartition(":")[2])
                with suppress(OSError):
                    there, back = await asyncio.open_connection("127.0.0.1", port)
                    try:
                        await asyncio.gather(_pump(reader, back), _pump(there, writer))
                    finally:
                        back.close()
                return


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with suppress(OSError):
        sink.close()
