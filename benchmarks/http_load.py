"""One HTTP/1.1 connection that costs its user as little as possible.

It exists because a comfortable client takes longer to read an answer than the extender takes to give it. It must not
know what is asked. Invariant: the time of a call runs from before the first byte is written until after the last byte
of the answer is read, and contains nothing else.
"""

from __future__ import annotations

import gzip
import json
import socket
import time
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

_CHUNK: Final = 1 << 18
_GZIP: Final = b"\x1f\x8b"
_HEAD_END: Final = b"\r\n\r\n"


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}"


class Answer(NamedTuple):
    """An answer, and how long it took."""

    status: int
    body: bytes
    nanoseconds: int

    def json(self) -> Any:  # noqa: ANN401 - a JSON value
        # The request offers gzip as kube-scheduler does, and long lists come packed.
        return json.loads(gzip.decompress(self.body) if self.body.startswith(_GZIP) else self.body)


class Connection:
    """A connection that is kept alive, as kube-scheduler's is."""

    def __init__(self, address: Address, timeout_seconds: float = 120) -> None:
        self._head = (
            f"Host: {address.host}:{address.port}\r\nUser-Agent: Go-http-client/1.1\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n"
        )
        self._socket = socket.create_connection(address, timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_CHUNK)
        self._last_filled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Send a request and read the whole answer. Raises OSError."""
        request = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        started = time.perf_counter_ns()
        self._socket.sendall(request)
        head_end, length, filled = self._read_head()
        if length is None:
            status = int(self._buffer[9:12])
            return Answer(status, self._read_chunks(head_end, filled), time.perf_counter_ns() - started)
        self._read(head_end + length, filled)
        nanoseconds = time.perf_counter_ns() - started
        status = int(self._buffer[9:12])
        return Answer(status, bytes(self._buffer[head_end : head_end + length]), nanoseconds)

    def _read_chunks(self, at: int, filled: int) -> bytes:
        """Read a body that comes in chunks, as long lists do."""
        chunks: list[bytes] = []
        while True:
            while (end := self._buffer.find(b"\r\n", at, filled)) < 0:
                self._read(filled + 1, filled)
                filled = self._last_filled
            size = int(self._buffer[at:end], 16)
            at = end + 2
            self._read(at + size + 2, filled)
            filled = max(filled, self._last_filled)
            chunks.append(bytes(self._buffer[at : at + size]))
            at += size + 2
            if not size:
                return b"".join(chunks)

    def _read_head(self) -> tuple[int, int | None, int]:
        """Read the head; returns its length, the body's length if the head says it, and how much was read."""
        filled = 0
        while (end := self._buffer.find(_HEAD_END, 0, filled)) < 0:
            filled += self._receive(filled)
        for line in bytes(self._buffer[:end]).split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                return end + len(_HEAD_END), int(value), filled
            if name.lower() == b"transfer-encoding":
                return end + len(_HEAD_END), None, filled
        raise OSError("the answer has no Content-Length")

    def _read(self, wanted: int, filled: int) -> None:
        if wanted > len(self._buffer):
            self._buffer.extend(bytes(wanted - len(self._buffer)))
        while filled < wanted:
            filled += self._receive(filled)
        self._last_filled = filled

    def _receive(self, filled: int) -> int:
        received = self._socket.recv_into(memoryview(self._buffer)[filled:])
        if not received:
            raise OSError("the server closed the connection")
        return received
