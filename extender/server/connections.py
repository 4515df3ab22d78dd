"""All connections of one port, and which one is dropped at a bound.

Why it exists: anybody who can reach the pod can open connections, send half a request and wait. It must not know
requests. Invariants: at most `bounds.connections` are open and at most `bounds.bytes_in_flight` bytes are held; at a
bound the oldest connection of the address that costs most is dropped, and never one that is being answered; a deadline
is enforced at most a second late.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.logs import every_line
from extender.server.bounds import Bounds
from extender.server.connection import Connection, Doing

_LOOK_SECONDS = 0.5
_SAID_EVERY_SECONDS = 10.0
#: The order of dropping. A connection that is being answered is not dropped.
_PATIENCE = {Doing.HANDSHAKE: 0, Doing.IDLE: 0, Doing.LEAVING: 1, Doing.RECEIVING: 2}


class Noted(NamedTuple):
    """How often something happened, and from which address it last did."""

    times: int
    peer: str


class Connections:
    """Connections of one port."""

    def __init__(self, name: str, bounds: Bounds) -> None:
        """`name`: the port's, in logs and metrics."""
        self.name = name
        self.bounds = bounds
        self.loop = asyncio.get_running_loop()
        self.dropped: Counter[str] = Counter()
        """Numbers dropped or refused so far, by reason."""
        self._open: set[Connection] = set()
        self._bytes = 0
        self._unsaid: dict[str, Noted] = {}
        self._said_at: dict[str, float] = {}
        self._looking = self.loop.call_later(_LOOK_SECONDS, self._look)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of all requests that are being received or answered."""
        return self._bytes

    def admit(self, peer: str) -> bool:
        """Make room for a connection; returns whether there is room."""
        if len(self._open) < self.bounds.connections:
            return True
        counts = Counter(each.peer for each in self._open)
        most = max(counts.values())
        greedy = {name for name, count in counts.items() if count == most}
        victim = self._first_to_go(each for each in self._open if each.peer in greedy) or self._first_to_go(self._open)
        if victim is None:
            self.note("refused, all connections are busy", peer)
            return False
        self.drop(victim, "gave way to a new connection")
        return True

    def opened(self, connection: Connection) -> None:
        """Count a connection."""
        self._open.add(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a connection; a second call does nothing."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        self.release(connection)
        if connection.doing is Doing.RECEIVING:
            self.note("broken off by the client", connection.peer)

    def take(self, connection: Connection, count: int) -> bool:
        """Count bytes; returns whether the connection is still open."""
        connection.received += count
        self._bytes += count
        while self._bytes > self.bounds.bytes_in_flight and connection in self._open:
            sizes: Counter[str] = Counter()
            for each in self._open:
                sizes[each.peer] += each.received
            most = max(sizes.values())
            receiving = (each for each in self._open if sizes[each.peer] == most and each.doing is Doing.RECEIVING)
            victim = self._first_to_go(receiving) or connection
            self.drop(victim, "held too many bytes")
        return connection in self._open

    def release(self, connection: Connection) -> None:
        """Stop counting the bytes of a connection."""
        self._bytes -= connection.received
        connection.received = 0

    def drop(self, connection: Connection, why: str) -> None:
        """End a connection."""
        self.note(why, connection.peer)
        self._open.discard(connection)
        self.release(connection)
        connection.abort()

    def note(self, why: str, peer: str) -> None:
        """Count an incident of a client; the log gets one line for all of the same reason."""
        self.dropped[why] += 1
        known = self._unsaid.get(why)
        self._unsaid[why] = Noted(1 if known is None else known.times + 1, peer)

    def stop(self) -> None:
        """End all requests that are arriving: refused where a handler waits for the body, else closed."""
        self._looking.cancel()
        for connection in list(self._open):
            if connection.doing is Doing.RECEIVING:
                connection.stop_receiving()
            elif connection.doing is Doing.HANDSHAKE:
                connection.abort()
        self._say(all_of_it=True)

    def _look(self) -> None:
        """Drop the connections that have missed a deadline."""
        now, bounds = self.loop.time(), self.bounds
        self._looking = self.loop.call_later(_LOOK_SECONDS, self._look)
        for each in list(self._open):
            if each.doing in (Doing.RECEIVING, Doing.LEAVING) and now - each.since > bounds.receive_seconds:
                self.drop(each, "sent a request too slowly")
            elif each.blocked_since is not None and now - each.blocked_since > bounds.send_seconds:
                self.drop(each, "did not read the answer")
        self._say()

    def _say(self, *, all_of_it: bool = False) -> None:
        """Log what was noted: each reason at once for the first time, then every ten seconds with a sum."""
        now = self.loop.time()
        for why, noted in list(self._unsaid.items()):
            if not all_of_it and now - self._said_at.get(why, -_SAID_EVERY_SECONDS) < _SAID_EVERY_SECONDS:
                continue
            self._said_at[why] = now
            del self._unsaid[why]
            every_line().warning(
                "connections dropped", port=self.name, why=why, count=noted.times, last_peer=noted.peer
            )

    @staticmethod
    def _first_to_go(candidates: Iterable[Connection]) -> Connection | None:
        droppable = (each for each in candidates if each.doing in _PATIENCE)
        return min(droppable, key=lambda each: (_PATIENCE[each.doing], each.since), default=None)


class ConnectionCollector(Collector):
    """Metrics of the ports that are open."""

    def __init__(self, ports: Sequence[Connections]) -> None:
        self._ports = ports

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        count = GaugeMetricFamily("gpu_extender_connections", "Open connections, by port.", labels=["port"])
        text = "Bytes of requests that are being received or answered, by port."
        held = GaugeMetricFamily("gpu_extender_bytes_in_flight", text, labels=["port"])
        text = "Connections that were dropped or refused, by port and reason."
        dropped = CounterMetricFamily("gpu_extender_connections_dropped", text, labels=["port", "why"])
        for port in self._ports:
            count.add_metric([port.name], len(port))
            held.add_metric([port.name], port.bytes_in_flight)
            for why, times in sorted(port.dropped.items()):
                dropped.add_metric([port.name, why], times)
        yield from (count, held, dropped)
