"""Requests to the API server: bytes in, bytes out.

Why it exists: a write without an answer is neither a success nor a failure, and a watch must notice when its connection
goes silent. It must not know objects. Invariants: every request has a deadline that covers all of it, renewing
credentials included; a request without an answer is an `Unknown`, never a success or a failure; only a request refused
with 401 is sent twice; a write with a fence asks the fence just before its bytes leave, without an await in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple, Self

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload

from extender.kube.connection import ConnectError, Connection
from extender.wire.unreadable import UNREADABLE

__all__ = ["JSON", "MERGE_PATCH", "Answer", "ConnectError", "KubeClient", "Unknown", "WatchFailed"]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
_CONNECT_SECONDS = 10.0
Fence = Callable[[], bool]
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class _Status(msgspec.Struct):
    message: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API server."""

    status: int
    body: bytes
    retry_after_seconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def message(self) -> str:
        """The message of a Status object, or the start of the body."""
        try:
            found = msgspec.json.decode(self.body, type=_Status).message
        except UNREADABLE:
            found = ""
        return found or self.body[:200].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Unknown:
    """There was no answer: a write may or may not have happened."""

    why: str
    sent: bool = True
    """False: there was no connection, so nothing was sent and nothing happened."""

    @property
    def status(self) -> int:
        """0, which is not an HTTP status."""
        return 0

    @property
    def ok(self) -> bool:
        """False."""
        return False

    @property
    def message(self) -> str:
        """Why there is no answer."""
        return self.why

    @property
    def retry_after_seconds(self) -> float | None:
        """None: the server did not say."""
        return None


class WatchFailed(Exception):
    """A list or watch did not start, or ended early. `status` is 0 if the connection failed."""

    def __init__(self, status: int, why: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class Fenced(NamedTuple):
    """A body that is sent only if its fence allows it at that moment."""

    body: bytes
    fence: Fence


class _FencedBody(BytesPayload):
    """A body that is not sent if its fence says no.

    aiohttp sends the head together with the body, so then nothing is sent. The fence is asked this late because waiting
    for a connection, a handshake or a turn may take any time, as may a suspended process.
    """

    def __init__(self, body: Fenced) -> None:
        super().__init__(body.body)
        self.held_back = False
        self._fence = body.fence

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if not self._fence():
            self.held_back = True
            raise ConnectionAbortedError("held back")
        await super().write_with_length(writer, content_length)


class KubeClient:
    """One API server."""

    def __init__(self, connection: Connection) -> None:
        self.requests = 0
        self._connection = connection

    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """Read a kubeconfig file, or with None the pod's service account. Raises `ConnectError`.

        `context`: of the file; None for its current one.
        """
        return cls(await Connection.open(kubeconfig, context))

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout_seconds: float,
        query: Mapping[str, str] | None = None,
        body: bytes | Fenced | None = None,
        content_type: str = JSON,
        urgent: bool = False,
    ) -> Answer | Unknown:
        """Send one request and read the whole answer. Credentials that get 401 are renewed once.

        `urgent`: do not wait for a connection behind other requests.
        """
        url = self._connection.url(path, query)
        headers = {} if body is None else {"Content-Type": content_type}
        sent = _FencedBody(body) if isinstance(body, Fenced) else body
        try:
            async with asyncio.timeout(timeout_seconds):
                authorization = await self._connection.authorization()
                answer = await self._send(method, url, sent, headers, authorization, urgent=urgent)
                if answer.status == HTTPStatus.UNAUTHORIZED and await self._connection.renew(authorization):
                    authorization = await self._connection.authorization()
                    answer = await self._send(method, url, sent, headers, authorization, urgent=urgent)
        except _NETWORK_ERRORS as error:
            if isinstance(sent, _FencedBody) and sent.held_back:
                return Unknown("held back: this replica may not write any more", sent=False)
            return Unknown(_described(error), sent=not isinstance(error, aiohttp.ClientConnectorError))
        return answer

    async def watch(
        self,
        path: str,
        query: Mapping[str, str],
        inactivity_seconds: float,
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch until the server ends it. Raises `WatchFailed`.

        `on_open` is called when the watch is accepted; the first line may take minutes. A connection that is silent for
        `inactivity_seconds` counts as broken, also before its first line. The length of lines has no limit.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=inactivity_seconds)
        try:
            async with await self._open(self._connection.url(path, query), limits) as response:
                if response.status != HTTPStatus.OK:
                    answer = Answer(response.status, await response.read(), _retry_after(response))
                    raise WatchFailed(answer.status, answer.message, answer.retry_after_seconds)
                on_open()
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield line
                if rest.strip():
                    raise WatchFailed(0, "the last line is cut off")
        except _NETWORK_ERRORS as error:
            raise WatchFailed(0, _described(error)) from None

    async def _open(self, url: str, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Start a watch. Credentials that get 401 are renewed once."""
        authorization = await self._connection.authorization()
        response = await self._get(url, limits, authorization)
        if response.status == HTTPStatus.UNAUTHORIZED:
            # This returns the connection to the pool; the body can be read again.
            await response.read()
            if await self._connection.renew(authorization):
                return await self._get(url, limits, await self._connection.authorization())
        return response

    async def _get(self, url: str, limits: aiohttp.ClientTimeout, authorization: str | None) -> aiohttp.ClientResponse:
        self.requests += 1
        headers, options = _headers({}, authorization), self._connection.options()
        return await self._connection.session().get(url, headers=headers, timeout=limits, **options)

    async def _send(
        self,
        method: str,
        url: str,
        body: BytesPayload | bytes | None,
        headers: Mapping[str, str],
        authorization: str | None,
        *,
        urgent: bool,
    ) -> Answer:
        self.requests += 1
        session = self._connection.session(urgent=urgent)
        async with session.request(
            method, url, data=body, headers=_headers(headers, authorization), **self._connection.options()
        ) as response:
            return Answer(response.status, await response.read(), _retry_after(response))


def _headers(more: Mapping[str, str], authorization: str | None) -> dict[str, str]:
    # Decompressing gigabytes of lists would block the event loop for longer than their transfer takes.
    headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "gpu-extender", **more}
    return headers if authorization is None else headers | {"Authorization": authorization}


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds of Retry-After; its other form, a date, needs clocks that agree and is ignored."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
