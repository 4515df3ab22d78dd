"""Runs the API server for tests as a process of its own.

It exists for benchmarks and for tests that kill their client. It must not do more than start the server. Invariant:
once the line with the URL is printed, the server answers.

    python -m tests.apiserver [--port 0] [--load FILE] [--kubeconfig FILE] ...
"""

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.loading import read_dump
from tests.apiserver.server import ApiServer


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver", description="An API server for tests.")
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument(
        "--load", type=Path, action="append", default=[], metavar="FILE", help="a List in JSON or YAML, or JSON lines"
    )
    parser.add_argument(
        "--serve", action="append", default=[], metavar="GROUP/VERSION", help="also this API, such as kubevirt.io/v1"
    )
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="write a kubeconfig for this server")
    parser.add_argument("--history", type=int, default=10_000, help="events kept per resource")
    parser.add_argument("--bookmark-seconds", type=float, default=60.0, help="between two bookmarks")
    parser.add_argument(
        "--expired-start-is-event", action="store_true", help="410 of a watch's start as an ERROR event, not a status"
    )
    parser.add_argument("--seed", type=int, default=0, help="of UIDs, generated names and faults")
    arguments = parser.parse_args(argv)
    try:
        asyncio.run(_serve(arguments))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    server = ApiServer(
        history_limit=arguments.history,
        bookmark_seconds=arguments.bookmark_seconds,
        expired_start_is_event=arguments.expired_start_is_event,
        seed=arguments.seed,
    )
    server.serve(*arguments.serve)
    for path in arguments.load:
        server.load(read_dump(path))
    # The loaded objects stay. A collector that walked them again and again would hold up the loop.
    gc.collect()
    gc.freeze()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await server.start(arguments.host, arguments.port)
    if arguments.kubeconfig is not None:
        write_kubeconfig(arguments.kubeconfig, server.url)
    sys.stdout.write(f"listens on {server.url}\n")
    sys.stdout.flush()
    await stopped.wait()
    await server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
