"""Long answers, made and sent in short turns.

Why it exists: one event loop serves kube-scheduler and the readers of lists. A list of 36,000 pods takes seconds to
make; in turns of a few milliseconds a filter waits for one turn, not for the list. It must not know what is sent.
Invariants: between two turns, of any answers, every request that has arrived is served; an answer that cannot be
finished is aborted, so that no client takes a part for the whole. Compressing is done by a thread, meanwhile.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import orjson
from aiohttp import web
from isal import isal_zlib

from extender.logs import logger

T = TypeVar("T")
#: Length of a turn: less than one filter takes at 10,000 nodes, so a list delays filter less than another filter would.
_TURN_SECONDS = 0.003
#: Text of one turn. What was made before costs no time to take, but to copy and to send.
_TURN_BYTES = 1 << 20
#: Pause between turns. A request needs several passes of the loop; without a pause it would wait for a turn in each.
_PAUSE_SECONDS = 0.001
#: The most answers that are made at a time; each holds a copy of the tables of pods and nodes, some MiB at 100,000
#: pods.
_ANSWERS_AT_ONCE = 4
#: Limit of one answer, for as long as which a slow reader can keep its copy.
_ANSWER_SECONDS = 60.0
#: Text of lists becomes a sixth with it. ISA-L packs it in a quarter of the time that zlib takes at its fastest.
_GZIP_LEVEL = 1
_GZIP_FORMAT = 31
#: A thread is not worth it below this.
_SMALL_BYTES = 8192


class Turns:
    """Gives the long answers of a process their turns, one at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._answers = asyncio.Semaphore(_ANSWERS_AT_ONCE)

    async def taken(self, steps: Iterable[T], size: Callable[[T], int] = lambda _: 0) -> AsyncIterator[list[T]]:
        """Yield the results of steps, as many at a time as fit into one turn. A step must be short.

        `size`: the bytes of a result, if what is done with the results takes longer the more there are.
        """
        rest = iter(steps)
        batch: list[T] | None = []
        while batch is not None:
            async with self._turn:
                batch = _one_turn(rest, size)
                await asyncio.sleep(_PAUSE_SECONDS)
            if batch:
                yield batch

    async def send(
        self, request: web.Request, fragments: Iterable[bytes], headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """Send JSON that comes in fragments, compressed for clients that accept it; "" is a step without text."""
        async with self._answers:
            return await self.stream(request, fragments, {"Content-Type": "application/json", **(headers or {})})

    async def stream(
        self, request: web.Request, fragments: Iterable[bytes], headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Send text that comes in fragments, however many others are sent at the same time."""
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        response = web.StreamResponse(headers={**headers, "Content-Encoding": "gzip"} if packed else headers)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await response.prepare(request)
                await self._write(response, fragments, _Packer() if packed else None)
        except Exception as error:  # noqa: BLE001 - whatever it was, the client must not take a part for the whole
            _break_off(request, error)
        return response

    async def _write(self, response: web.StreamResponse, fragments: Iterable[bytes], packer: "_Packer | None") -> None:
        coming: asyncio.Future[bytes] | None = None
        async for batch in self.taken(fragments, len):
            text = b"".join(batch)
            if packer is None:
                await response.write(text)
                continue
            if coming is not None:
                await response.write(await coming)
            # While it is packed the next batch is made.
            coming = packer.packed(text)
        if packer is not None:
            await response.write((b"" if coming is None else await coming) + packer.end())
        await response.write_eof()


class _Packer:
    """Gzip, piece by piece."""

    def __init__(self) -> None:
        self._zlib = isal_zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)

    def packed(self, text: bytes) -> "asyncio.Future[bytes]":
        """Return what becomes of a piece; the one before must be done."""
        loop = asyncio.get_running_loop()
        if len(text) > _SMALL_BYTES:
            return loop.run_in_executor(None, self._zlib.compress, text)
        done = loop.create_future()
        done.set_result(self._zlib.compress(text))
        return done

    def end(self) -> bytes:
        """Return what comes behind the last piece."""
        return self._zlib.flush()


def encoded(value: object) -> bytes:
    """Return JSON. Sums may need more than 64 bits, which orjson cannot write."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_array(entries: Iterable[Any]) -> Iterator[bytes]:
    """Yield a JSON array in fragments; a None among the entries is a step without an entry."""
    before = b"["
    for entry in entries:
        if entry is None:
            yield b""
        else:
            yield before + encoded(entry)
            before = b","
    yield b"[]" if before == b"[" else b"]"


def _one_turn(rest: Iterator[T], size: Callable[[T], int]) -> list[T] | None:
    """Return the results of one turn; None at the end."""
    until, left, batch = time.perf_counter() + _TURN_SECONDS, _TURN_BYTES, []
    for each in rest:
        batch.append(each)
        left -= size(each)
        if left <= 0 or time.perf_counter() >= until:
            return batch
    return batch or None


def _break_off(request: web.Request, error: Exception) -> None:
    if not isinstance(error, (ConnectionError, TimeoutError)):
        logger().error("list cannot be made", path=request.path, exc_info=error)
    if request.transport is not None:
        request.transport.abort()
