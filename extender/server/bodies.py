"""Receiving requests: refusing some unread, and reading bodies within their bound.

Why it exists: a body must not be decompressed, collected or kept beyond its route's bound. It must not decode.
Invariants: a compressed body is refused unread, since neither kube-scheduler nor the API server sends one; an aborted
body is freed at once, because no exception's frame refers to its pieces.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from extender.server.connection import Connection, Doing, Stopping
from extender.server.origin import Refused, check_origin

_PIECE_BYTES = 2**20


@web.middleware
async def bounded(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Tell the connection when a request begins and ends; refuse compressed bodies and pages of other origins."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return await handler(request)
    connection.request = request
    try:
        headers = request.headers
        if "Content-Encoding" in headers and headers["Content-Encoding"].lower() != "identity":
            return refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding: bodies are not taken compressed")
        if "Origin" in headers:
            check_origin(request)
        if not request.can_read_body:
            connection.turn_to(Doing.ANSWERING)
        return await handler(request)
    except Refused as refused:
        return refusal(refused.status, str(refused))
    except Stopping:
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server ends")
    except ConnectionError as error:
        error.__traceback__ = None
        return refusal(HTTPStatus.BAD_REQUEST, "the request was broken off")
    finally:
        connection.request = None
        connection.answered(whole=request.content.is_eof())


def refusal(status: HTTPStatus, why: str) -> web.Response:
    """Return an error after which the connection ends."""
    response = web.Response(status=status, text=f"{why}\n")
    response.force_close()
    return response


def at_most(most: int) -> Callable[[web.Request], Awaitable[bytes]]:
    """Return `read_body` with a bound in bytes."""
    return lambda request: read_body(request, most)


async def read_body(request: web.Request, most: int) -> bytes:
    """Return a request's body of at most `most` bytes.

    Raises `web.HTTPRequestEntityTooLarge`, before reading if the request gives its length.
    """
    said, content = request.content_length or 0, request.content
    if said > most:
        raise web.HTTPRequestEntityTooLarge(most, said)
    content.set_read_chunk_size(_PIECE_BYTES)
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := await content.readany():
            size += len(piece)
            if size > most:
                raise web.HTTPRequestEntityTooLarge(most, size)
            pieces.append(piece)
        if isinstance(request.protocol, Connection):
            request.protocol.turn_to(Doing.ANSWERING)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        # An exception keeps the frames that it passed through, and with them the pieces.
        pieces.clear()
