"""What the clients of one port may cost, and how the process's file descriptors are shared between ports.

It must not do I/O. Invariant: all ports together leave file descriptors for the API server, files and the loop.
"""

from dataclasses import dataclass

MIB = 2**20
#: For the API server's connections and watches, the journal, certificates, the loop itself, and connections that are
#: accepted only to be refused.
_RESERVED_DESCRIPTORS = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one port. At a bound a connection of the client that costs most is dropped, not the newest one."""

    connections: int
    """The most open at a time. Each costs a file descriptor, and with TLS 256 KiB of buffers."""
    bytes_in_flight: int
    """The most bytes of all requests that are being received or answered, as sent over the wire."""
    receive_seconds: float = 10.0
    """Limit from a request's first byte to its last: the default httpTimeout and the default timeout of a webhook,
    after which nobody reads the answer."""
    send_seconds: float = 10.0
    """How long a client may leave an answer unread."""
    handshake_seconds: float = 5.0
    """Limit of a TLS handshake."""

    def within(self, descriptors: int, share: int) -> "Bounds":
        """Return the bounds for a process with so many file descriptors, of which the port gets one part in `share`."""
        most = max(1, (descriptors - _RESERVED_DESCRIPTORS) // share)
        return Bounds(
            min(self.connections, most),
            self.bytes_in_flight,
            self.receive_seconds,
            self.send_seconds,
            self.handshake_seconds,
        )
