"""Who may ask for what at which port.

Why it exists: the verbs book cards and the lists name every pod, so neither is for everybody who reaches the pod. It
must not know tokens' holders; the API server does. Invariants: probes tell nothing and are open; what is not let in is
answered before its body is read.

| port     | from loopback | from elsewhere                                                                  |
|----------|---------------|---------------------------------------------------------------------------------|
| verbs    | everything    | with --verbs-client-ca: a client certificate; else the verbs, and on an embedded |
|          |               | cluster everything                                                              |
| webhooks | as elsewhere  | with --webhook-client-ca: a client certificate; else everybody                  |
| api      | everything    | a bearer token whose holder may do the method on the path (nonResourceURLs)     |
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Middleware

from extender.kube.reviews import Access
from extender.server.bodies import refusal

May = Callable[[str, str, str], Awaitable[Access]]
"""Says whether the holder of a token may do a verb on a path."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PROBES = frozenset({"/livez", "/readyz", "/healthz"})
_BEARER = "bearer "


@web.middleware
async def certificate_needed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let in who has shown a client certificate; one that the authority did not sign fails the handshake already."""
    transport = request.transport
    if request.path in PROBES or (transport is not None and transport.get_extra_info("peercert")):
        return await handler(request)
    return refusal(HTTPStatus.FORBIDDEN, "a client certificate is needed")


def loopback_needed(open_paths: frozenset[str]) -> Middleware:
    """Let everybody in on some paths, and on all others who comes from loopback."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROBES or request.path in open_paths or _is_from_loopback(request):
            return await handler(request)
        return refusal(HTTPStatus.FORBIDDEN, "from elsewhere than loopback, use the port of --api-port")

    return check


def token_needed(may: May | None) -> Middleware:
    """Let in who comes from loopback, or holds a token that is good for it. `may`: None lets nobody else in."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROBES or _is_from_loopback(request):
            return await handler(request)
        authorization = request.headers.get("Authorization", "")
        token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
        if may is None or not token:
            return _unauthorized()
        match await may(token, request.method.lower(), request.path):
            case Access.ALLOWED:
                return await handler(request)
            case Access.UNAUTHENTICATED:
                return _unauthorized()
            case Access.FORBIDDEN:
                return refusal(HTTPStatus.FORBIDDEN, f"may not {request.method.lower()} this path")
            case Access.UNKNOWN:
                return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the API server does not say who this is")

    return check


def _unauthorized() -> web.Response:
    response = refusal(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _is_from_loopback(request: web.Request) -> bool:
    try:
        return ip_address(request.remote or "").is_loopback
    except ValueError:
        return False
