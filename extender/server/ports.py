"""The three ports: where each listens, and what its clients may cost.

It must not know routes. Invariant: the ports together leave file descriptors for everything else; see `Bounds.within`.
"""

import resource
import ssl
from enum import StrEnum

from aiohttp import web

from extender.config import ServerSettings
from extender.server.bounds import Bounds
from extender.server.connections import Connections
from extender.server.listener import Listener

#: Key of every application: the connections of all open ports.
PORTS = web.AppKey("ports", list[Connections])


class PortName(StrEnum):
    """What a port is for."""

    VERBS = "verbs"
    WEBHOOKS = "webhooks"
    API = "api"

    def where(self, settings: ServerSettings) -> tuple[str, int]:
        """Return the address and the port to listen on; 0 takes a free one."""
        if self is PortName.VERBS:
            return settings.bind_address, settings.port
        if self is PortName.WEBHOOKS:
            return settings.webhook_bind_address, settings.webhook_port
        return settings.api_bind_address, settings.api_port or 0

    def bounds(self, settings: ServerSettings, descriptors: int) -> Bounds:
        """Return a port's bounds for a process that may open so many files."""
        if self is PortName.VERBS:
            return Bounds(settings.verb_connections, settings.verb_bytes_in_flight).within(descriptors, 2)
        if self is PortName.WEBHOOKS:
            return Bounds(settings.webhook_connections, settings.webhook_bytes_in_flight).within(descriptors, 4)
        return Bounds(settings.api_connections, settings.api_bytes_in_flight).within(descriptors, 8)


async def start(
    app: web.Application,
    settings: ServerSettings,
    ssl_context: ssl.SSLContext | None = None,
    name: PortName | None = None,
) -> tuple[Listener, int]:
    """Listen on a port, by TLS if there is a context. Default name: verbs by plain HTTP, webhooks by TLS.

    Returns the listener, which the caller must clean up, and the port's number. Raises OSError if the address is taken.
    """
    name = name or (PortName.VERBS if ssl_context is None else PortName.WEBHOOKS)
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    listener = Listener(
        app,
        name,
        name.bounds(settings, descriptors),
        idle_seconds=settings.keepalive_seconds,
        stop_seconds=settings.shutdown_seconds,
    )
    address, wanted = name.where(settings)
    number = await listener.start(address, wanted, ssl_context)
    app[PORTS].append(listener.connections)
    return listener, number
