"""A listening port: accepts within bounds, serves an application, ends.

Why it exists: asyncio's own server accepts without a bound, and without file descriptors it tries again 1,000 times a
second with a traceback each time, while every other port starves. Here a connection is admitted before the next one is
accepted. It must not know routes. Invariants: without descriptors it waits; an accepted connection is served or closed.
"""

import asyncio
import errno
import socket
import ssl
from typing import Any

from aiohttp import web

from extender.server.bodies import bounded
from extender.server.bounds import Bounds
from extender.server.connection import Connection
from extender.server.connections import Connections

_BACKLOG = 128
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.2
_TLS_SHUTDOWN_SECONDS = 1.0
#: How long the rest of a request is read that was answered early. If this were shorter, the client might lose the
#: answer.
_LINGER_SECONDS = 1.0
#: kube-scheduler sends 5 headers and an API server 6; each line of these is at most 4 KiB.
_MOST_HEADERS = 32
_LONGEST_HEADER_BYTES = 4096


class Listener:
    """One listening port."""

    def __init__(
        self, app: web.Application, name: str, bounds: Bounds, *, idle_seconds: float, stop_seconds: float
    ) -> None:
        """`idle_seconds`: how long an idle connection is kept. `stop_seconds`: how long `stop` waits for answers."""
        app.middlewares.insert(0, bounded)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=stop_seconds)
        self._bounds = bounds
        self._name = name
        self._settings: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": idle_seconds,
            "lingering_time": _LINGER_SECONDS,
            "max_field_size": _LONGEST_HEADER_BYTES,
            "max_headers": _MOST_HEADERS,
        }
        self._accepting: list[asyncio.Task[None]] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self.connections: Connections

    async def start(self, address: str, port: int, ssl_context: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port. Raises OSError if the address is taken."""
        self.connections = Connections(self._name, self._bounds)
        await self._runner.setup()
        try:
            self._sockets = await _listening(address, port)
        except BaseException:
            await self.cleanup()
            raise
        for each in self._sockets:
            self._accepting.append(asyncio.create_task(self._accept(each, ssl_context)))
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    async def cleanup(self) -> None:
        """Stop accepting, refuse requests that have not arrived completely, answer the rest, and end."""
        for task in self._accepting:
            task.cancel()
        for each in self._sockets:
            each.close()
        self.connections.stop()
        await self._runner.cleanup()
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)

    async def _accept(self, listening: socket.socket, ssl_context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    # The client was gone before it was accepted.
                    continue
                self.connections.note(f"not accepted: {error.strerror}", "")
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            peer = str(address[0]) if address else ""
            if self.connections.admit(peer):
                self._open(accepted, peer, ssl_context)
            else:
                accepted.close()
            # sock_accept does not pause while clients are in the queue, and other tasks must have their turn.
            await asyncio.sleep(0)

    def _open(self, accepted: socket.socket, peer: str, ssl_context: ssl.SSLContext | None) -> None:
        manager = self._runner.server
        assert manager is not None  # noqa: S101 - it is there from setup to cleanup
        connection = Connection(self.connections, manager, peer, **self._settings)
        self.connections.opened(connection)
        task = asyncio.create_task(self._connect(connection, accepted, ssl_context))
        connection.handshake = task
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(
        self, connection: Connection, accepted: socket.socket, ssl_context: ssl.SSLContext | None
    ) -> None:
        """Hand a socket to a new connection, after the TLS handshake if there is one."""
        tls: dict[str, Any] = {}
        if ssl_context is not None:
            tls["ssl_handshake_timeout"] = self._bounds.handshake_seconds
            tls["ssl_shutdown_timeout"] = _TLS_SHUTDOWN_SECONDS
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=ssl_context, **tls
            )
        except (OSError, TimeoutError) as error:
            self.connections.note(f"failed the handshake: {type(error).__name__}", connection.peer)
        finally:
            if connection.transport is None:
                self.connections.lost(connection)
                accepted.close()


async def _listening(address: str, port: int) -> list[socket.socket]:
    """Return listening sockets on every address of a name."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            made = socket.create_server(where[:2], family=family, backlog=_BACKLOG)
            made.setblocking(False)  # noqa: FBT003 - the socket's signature
            sockets.append(made)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets
