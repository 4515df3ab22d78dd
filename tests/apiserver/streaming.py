"""Sends an open watch over HTTP, with the faults of its events.

It exists because a stream can fail between any two bytes, unlike an answer to a request. It must not know which events
a watch has. Invariant: without a fault, each event is one whole line, in order, sent at once; a stream ends cleanly, or
with an ERROR event, or, by a fault, with a broken connection.
"""

import asyncio
import socket
import struct
from collections.abc import Iterable

from aiohttp import web

from tests.apiserver.calls import Call
from tests.apiserver.faults import Faults
from tests.apiserver.statuses import ApiError
from tests.apiserver.watching import Line, Options, Watch, error_line

_BATCH_BYTES = 256 * 1024
_GARBAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n"
_LINGER_RESET = struct.pack("ii", 1, 0)


class _Cut(Exception):
    """The connection must break."""


class Stream:
    """One watch on one connection."""

    def __init__(self, request: web.BaseRequest, call: Call, watch: Watch, faults: Faults) -> None:
        self._request = request
        self._call = call
        self._watch = watch
        self._faults = faults
        self._response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._batch = bytearray()

    async def run(self, options: Options, bookmark_seconds: float) -> web.StreamResponse:
        """Send until the watch ends; returns what aiohttp expects."""
        self._response.enable_chunked_encoding()
        await self._response.prepare(self._request)
        try:
            await self._send(self._watch.initial())
            await self._follow(options, bookmark_seconds)
            await self._response.write_eof()
        except _Cut:
            reset(self._request)
        except ConnectionError:
            pass
        return self._response

    async def _follow(self, options: Options, bookmark_seconds: float) -> None:
        loop, watch = asyncio.get_running_loop(), self._watch
        deadline = loop.time() + options.timeout_seconds
        next_bookmark = loop.time() + bookmark_seconds if options.bookmarks else deadline
        while True:
            watch.wake.clear()
            try:
                await self._send(watch.pending())
            except ApiError as error:
                await self._send([error_line(error)])
                return
            if watch.cut:
                raise _Cut
            now = loop.time()
            if now >= deadline:
                return
            if now >= next_bookmark:
                next_bookmark = now + bookmark_seconds
                await self._send([watch.bookmark()])
                continue
            timer = loop.call_at(min(deadline, next_bookmark), watch.wake.set)
            try:
                await watch.wake.wait()
            finally:
                timer.cancel()

    async def _send(self, lines: Iterable[Line]) -> None:
        harmed = bool(self._faults.of_watch(self._call))
        for line in lines:
            if harmed and line.type is not None:
                await self._harm(line)
            else:
                self._batch += line.data
            if len(self._batch) >= _BATCH_BYTES:
                await self._flush()
        await self._flush()

    async def _flush(self) -> None:
        if self._batch:
            data, self._batch = bytes(self._batch), bytearray()
            await self._response.write(data)

    async def _harm(self, line: Line) -> None:
        data = line.data
        for rule in self._faults.of_event(self._call, line.type or "MODIFIED", line.key):
            if rule.fault == "drop":
                return
            if rule.fault == "duplicate":
                data += line.data
            elif rule.fault == "garbage":
                data = _GARBAGE + data
            elif rule.fault == "delay":
                await self._flush()
                await asyncio.sleep(rule.seconds)
            elif rule.fault == "truncate":
                self._batch += line.data[: len(line.data) // 2]
                await self._flush()
                # The half line must be on its way before the connection breaks.
                await asyncio.sleep(0.05)
                raise _Cut
            elif rule.fault == "expire":
                await self._flush()
                raise ApiError(410, "too old resource version: injected by the test")
        self._batch += data


def reset(request: web.BaseRequest) -> None:
    """Break the connection as a crash does: what was not sent is lost, and the client gets a RST."""
    transport = request.transport
    if transport is not None:
        peer = transport.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        transport.abort()
