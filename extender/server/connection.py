"""One connection and what it costs: the bytes that it has sent, since when, and whether it is being answered.

Why it exists: aiohttp's limits are per request, and it has no deadline for receiving one. Its `RequestHandler` is the
protocol object, so bytes can be counted here before they are parsed. It must not read requests; their handler tells it
when one begins and ends. Invariants: bytes are counted from a request's first byte to the end of its answer; a dropped
connection is counted nowhere.
"""

import asyncio
from enum import Enum
from typing import Any, Protocol

from aiohttp import web

from extender.logs import logger


class Doing(Enum):
    """What a connection is doing."""

    HANDSHAKE = "handshake"
    IDLE = "idle"
    RECEIVING = "receiving"
    """A request is arriving: from its first byte to its last."""
    ANSWERING = "answering"
    LEAVING = "leaving"
    """The request was answered before all of it had arrived; the rest is thrown away."""


class Stopping(Exception):
    """The server stops while a request is being received."""


class Counting(Protocol):
    """Counts the connections of a port."""

    loop: asyncio.AbstractEventLoop

    def take(self, connection: "Connection", count: int) -> bool:
        """Count bytes; returns whether the connection is still open."""

    def release(self, connection: "Connection") -> None:
        """Stop counting the bytes of a connection."""

    def drop(self, connection: "Connection", why: str) -> None:
        """End a connection."""

    def lost(self, connection: "Connection") -> None:
        """Forget a connection."""

    def note(self, why: str, peer: str) -> None:
        """Count an incident of a client."""


class Connection(web.RequestHandler):
    """A client's connection."""

    def __init__(self, connections: Counting, manager: web.Server, peer: str, **settings: Any) -> None:  # noqa: ANN401 - aiohttp's
        super().__init__(manager, loop=connections.loop, **settings)
        self.peer = peer
        self.doing = Doing.HANDSHAKE
        self.since = connections.loop.time()
        """When its present state began (loop time)."""
        self.received = 0
        """Bytes of the request that is being received or answered."""
        self.blocked_since: float | None = None
        """Since when the client has left an answer unread (loop time)."""
        self.handshake: asyncio.Task[None] | None = None
        self.request: web.Request | None = None
        self._connections = connections

    def turn_to(self, doing: Doing) -> None:
        """Note its state from now on."""
        self.doing, self.since = doing, self._connections.loop.time()

    def answered(self, *, whole: bool) -> None:
        """Note that a request was answered. `whole`: all of it had arrived."""
        self._connections.release(self)
        self.turn_to(Doing.IDLE if whole else Doing.LEAVING)

    # -- what the transport tells ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start as idle."""
        self.turn_to(Doing.IDLE)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Count what arrives. aiohttp also calls this without data, to continue after a pause."""
        if data and self.doing is not Doing.LEAVING:
            if self.doing is Doing.ANSWERING:
                # HTTP pipelining, which none of our clients uses: pipelined requests would wait here uncounted.
                self._connections.drop(self, "sent a request before the last one was answered")
                return
            if self.doing is Doing.IDLE:
                self.doing, self.since = Doing.RECEIVING, self._connections.loop.time()
            if not self._connections.take(self, len(data)):
                return
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection and everything that it had sent."""
        self._connections.lost(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self.blocked_since = self._connections.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self.blocked_since = None
        super().resume_writing()

    # -- what is decided ------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Close the connection now; what it has sent is thrown away."""
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def stop_receiving(self) -> None:
        """End a request that has not arrived completely: refuse it if a handler waits for its body, else close."""
        if self.request is None:
            self.abort()
        else:
            self.close()
            self.request.content.set_exception(Stopping())

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> web.StreamResponse:
        """Answer requests that are not HTTP, and a handler's unexpected errors. Logs one line in the set format."""
        if exc is not None and status >= 500:  # noqa: PLR2004 - the server's own mistakes
            logger().error("request failed", path=request.path, exc_info=exc)
        else:
            self._connections.note("sent no HTTP", self.peer)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer that has begun cannot become another")
        response = web.Response(status=status, text=f"{status}\n")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - aiohttp's
        """Log in one line what aiohttp would log as a long traceback."""
        logger().error("connection failed", why=str(args[0]) if args else "", exc_info=kwargs.get("exc_info"))
