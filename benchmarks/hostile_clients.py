"""Measures filter while other clients abuse the server, and what the abuse costs in memory and descriptors.

It exists because the lease, the verbs, the webhooks and the lists share one process: what one client can take from
another has to be measured. It must not judge; the tests in tests/server do. Invariants: quiet calls and those beside
each kind of client take turns, since a machine is slower in some minutes than in others; nothing but loopback is used.

python -m benchmarks.hostile_clients [--nodes 5000] [--pods 36000] [--calls 600] [-o FIGURES.json]
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import multiprocessing.synchronize
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson
from rich.console import Console
from rich.progress import track

from benchmarks import clusters, processes
from benchmarks.figures import Size
from benchmarks.http_load import Address, Connection
from benchmarks.measure import ask
from benchmarks.options import positive
from benchmarks.questions import INIT_SIDECAR_APP, Questions

_SEED: Final = 1
_SETTLE_SECONDS: Final = 1.0
_ROUNDS: Final = 6
_LISTS: Final = ("/api/v1/pods", "/api/v1/nodes", "/api/v1/verify")
_BODY: Final = b"x" * (15 << 20)


def _lists(address: Address, stop: multiprocessing.synchronize.Event) -> None:
    """Read the long lists one after another."""
    with Connection(address) as connection:
        while not stop.is_set():
            for path in _LISTS:
                connection.call("GET", path)


def _half_sent(address: Address, stop: multiprocessing.synchronize.Event) -> None:
    """Hold 60 requests of 16 MB whose last MB never comes; reopen those that are dropped."""
    held: list[socket.socket] = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            made = socket.create_connection(address, 5)
            held.append(made)
            made.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (16 << 20))
            made.sendall(_BODY)
        for each in held[:-60]:
            each.close()
        del held[:-60]


def _aborted(address: Address, stop: multiprocessing.synchronize.Event) -> None:
    """Send 15 of 16 MB and disconnect."""
    while not stop.is_set():
        with contextlib.suppress(OSError), socket.create_connection(address, 5) as made:
            made.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (16 << 20))
            made.sendall(_BODY)


def _connecting(address: Address, stop: multiprocessing.synchronize.Event) -> None:
    """Open connections as fast as they are accepted, and keep 2,000 idle."""
    held: list[socket.socket] = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(address, 5))
        if len(held) > 2000:
            held.pop(0).close()


CLIENTS: Final[dict[str, tuple[Callable[[Address, multiprocessing.synchronize.Event], None], int]]] = {
    "lists": (_lists, 4),
    "half-sent bodies": (_half_sent, 1),
    "aborted bodies": (_aborted, 1),
    "idle connections": (_connecting, 1),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--nodes", type=positive, default=5000)
    parser.add_argument("--pods", type=positive, default=36_000)
    parser.add_argument("--calls", type=positive, default=600)
    parser.add_argument("--checkout", type=Path, default=processes.ROOT, help="measure another checkout's extender")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        dump = clusters.dump(Size(arguments.nodes, arguments.pods), _SEED, Path(folder))
        with processes.extender([dump], arguments.checkout) as server:
            figures = _figures(server, arguments.calls)
    text = orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if arguments.output is not None:
        arguments.output.write_bytes(text)
    sys.stdout.write(text.decode())
    return 0


class _Seen:
    """What was seen beside one kind of client, in all rounds."""

    def __init__(self) -> None:
        self.times: list[float] = []
        """Milliseconds of filter."""
        self.resident_mib = self.descriptors = 0
        """The most."""

    def figures(self) -> dict[str, Any]:
        times = sorted(self.times)
        shares = {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "max": times[-1]}
        return {
            "filter_ms": {name: round(value, 2) for name, value in shares.items()},
            "resident_mib": self.resident_mib,
            "file_descriptors": self.descriptors,
        }


def _figures(server: processes.Server, calls: int) -> dict[str, Any]:
    with Connection(server.address) as connection:
        names = [each["node"] for each in connection.call("GET", "/api/v1/nodes").json()]
        questions = Questions(names, INIT_SIDECAR_APP, seed=_SEED)
        seen = {name: _Seen() for name in ("quiet", *CLIENTS)}
        each = -(-calls // _ROUNDS)
        for _ in track(range(_ROUNDS), "rounds", console=Console(stderr=True)):
            _measure(server, connection, questions, each, seen["quiet"])
            for name, (client, count) in CLIENTS.items():
                with _running(client, count, server.address):
                    _measure(server, connection, questions, each, seen[name])
    return {"nodes": len(names), "calls": each * _ROUNDS} | {name: one.figures() for name, one in seen.items()}


@contextmanager
def _running(
    client: Callable[[Address, multiprocessing.synchronize.Event], None], count: int, address: Address
) -> Iterator[None]:
    stop = multiprocessing.Event()
    started = [multiprocessing.Process(target=client, args=(address, stop)) for _ in range(count)]
    for each in started:
        each.start()
    time.sleep(_SETTLE_SECONDS)
    try:
        yield
    finally:
        stop.set()
        for each in started:
            each.join()


def _measure(server: processes.Server, connection: Connection, questions: Questions, calls: int, seen: _Seen) -> None:
    for number in range(calls):
        seen.times.append(ask(connection, questions.next())[0]["filter"] / 1e6)
        if number % 10 == 0:
            seen.resident_mib = max(seen.resident_mib, server.resident_mib() or 0)
    seen.descriptors = max(seen.descriptors, sum(1 for _ in Path(f"/proc/{server.pid}/fd").iterdir()))


if __name__ == "__main__":
    sys.exit(main())
