"""Refusing requests that a web page may have made a browser send.

Why it exists: any web page can make a browser send requests to loopback, where bind and the embedded cluster's pods
need no authentication. It must not know routes. Invariants: kube-scheduler, the API server and command line tools send
no Origin, so they are never refused; a page of another origin can change nothing.
"""

from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})
_JSON = "application/json"


class Refused(Exception):
    """A refused request. The text names the header, its value and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def check_origin(request: web.Request) -> None:
    """Raise `Refused` for a change requested by a page of another origin. The request has an Origin.

    A page of this server itself may send changes. Host must then be an address of this server; a mere name might be one
    that somebody points to loopback (DNS rebinding).
    """
    if request.method in _SAFE:
        return
    origin = request.headers["Origin"]
    if urlsplit(origin).netloc != request.headers.get("Host", ""):
        raise Refused(HTTPStatus.FORBIDDEN, f"Origin: {origin[:100]}: is not this server")
    check_host(request)


def check_host(request: web.Request) -> None:
    """Raise `Refused` unless Host names loopback or the address at which the request has come in."""
    host = request.headers.get("Host", "")
    name = urlsplit(f"//{host}").hostname or ""
    if name.lower() in _LOOPBACK_NAMES or _is_own_address(name, request):
        return
    raise Refused(HTTPStatus.FORBIDDEN, f"Host: {host[:100] or '(empty)'}: is no address of this server")


def check_json(request: web.Request) -> None:
    """Raise `Refused` unless the content type is JSON; a page may send other types without asking the server."""
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != _JSON:
        found = request.headers.get("Content-Type", "(none)")[:100]
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type: {found}: must be {_JSON}")


def _is_own_address(name: str, request: web.Request) -> bool:
    try:
        address = ip_address(name)
    except ValueError:
        return False
    own = None if request.transport is None else request.transport.get_extra_info("sockname")
    return address.is_loopback or (own is not None and name == own[0])
