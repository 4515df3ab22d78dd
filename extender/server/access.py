"""Who may send which requests to which port.

Why it exists: the verbs book cards and the lists name every pod, so not everybody who reaches the pod may use them. It
must not know whose a token is; the API server does. Invariants: probes are open, since they tell nothing; a request
that is not let in is answered before its body is read.

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
    """Let in clients with a certificate; one that the authority did not sign already fails the handshake."""
    transport = request.transport
    if request.path in PROBES or (transport is not None and transport.get_extra_info("peercert")):
        return await handler(request)
    return refusal(HTTPStatus.FORBIDDEN, "a client certificate is needed")


def loopback_needed(open_paths: frozenset[str]) -> Middleware:
    """Let everybody in on some paths, and only clients from loopback on all others."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROBES or request.path in open_paths or _is_from_loopback(request):
            return await handler(request)
        return refusal(HTTPStatus.FORBIDDEN, "from elsewhere than loopback, use the port of --api-port")

    return check


def token_needed(may: May | None) -> Middleware:
    """Let in clients from loopback, and those whose token allows the request. `may`: None allows no token."""

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
