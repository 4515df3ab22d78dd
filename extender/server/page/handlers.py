"""The page's files and its stream, over HTTP.

It must not know cards. Invariants: the content security policy of every file lets the browser load nothing from
elsewhere and run only files of this package; each file's name has its hash, so old and new files never mix.
"""

import asyncio
import hashlib
from importlib import resources

from aiohttp import web

from extender.server.page.feed import Feed

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES = (
    "index.html",
    "style.css",
    "app.js",
    "detail.js",
    "grid.js",
    "icon.svg",
    "lit-html/lit-html.js",
    "panel.js",
    "text.js",
)
#: Interval of empty messages on a stream without events, because proxies close quiet connections.
_QUIET_SECONDS = 15.0


class Page:
    """Handlers of the page."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        folder = resources.files(__package__).joinpath("static")
        self._files = {name: folder.joinpath(name).read_bytes() for name in _FILES}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/", self.file),
            web.get("/page/{file:.+}", self.file),
            web.get("/api/v1/changes", self.changes),
        ]

    async def file(self, request: web.Request) -> web.Response:
        """Return the page itself, or a file that it needs."""
        name = request.match_info.get("file", "index.html")
        body = self._files.get(name)
        if body is None:
            return web.json_response({"error": f"file: {name}: not found"}, status=404)
        tag = hashlib.sha256(body).hexdigest()[:16]
        headers = _HEADERS | {"ETag": f'"{tag}"'}
        if any(each.value in (tag, "*") for each in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        content_type = _TYPES[name[name.rindex(".") :]]
        charset = None if content_type.startswith("image/") else "utf-8"
        response = web.Response(body=body, content_type=content_type, charset=charset, headers=headers)
        response.enable_compression()
        return response

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """Stream changes (server-sent events) from the mark in Last-Event-ID on; without it everything first."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        messages = self._feed.messages(request.headers.get("Last-Event-ID", ""))
        coming = asyncio.ensure_future(anext(messages))
        try:
            while True:
                done, _ = await asyncio.wait({coming}, timeout=_QUIET_SECONDS)
                if not done:
                    await response.write(b": nothing new\n\n")
                    continue
                kind, body, mark = coming.result()
                await response.write(b"event: %b\nid: %b\ndata: %b\n\n" % (kind.encode(), mark.encode(), body))
                coming = asyncio.ensure_future(anext(messages))
        except (StopAsyncIteration, ConnectionError):
            return response
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            await messages.aclose()
