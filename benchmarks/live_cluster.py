"""Starts a live cluster as processes: an API server, the extender, and a maker of events.

It exists so that benchmarks of a live extender measure the same thing. It must not measure. Invariant: what was started
ends with the block.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks import live_dump, processes
from benchmarks.figures import Size
from benchmarks.http_load import Address


def api_server(dump: live_dump.Dump, kubeconfig: Path) -> AbstractContextManager[processes.Server]:
    """Run an API server over a dump; it writes the kubeconfig."""
    arguments = ["--port", "0", "--load", str(dump.path), "--kubeconfig", str(kubeconfig)]
    return processes.running(["tests.apiserver", *arguments])


def extender(kubeconfig: Path, flags: Sequence[str] = ()) -> AbstractContextManager[processes.Server]:
    """Run the extender on an API server."""
    always = ["--kubeconfig", str(kubeconfig), "--no-leader-elect", "--lock-mode", "none"]
    return processes.running(["extender", "serve", "--port", "0", *always, *flags])


@contextmanager
def events(
    api: Address, dump: live_dump.Dump, kind: str, *, count: int = 0, per_second: int = 0, skip: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process that makes events; without a number it runs until the block ends."""
    command = [sys.executable, "-m", "benchmarks.live_events", str(api), str(dump.targets), "--kind", kind]
    command += ["--skip", str(skip)]
    command += ["--events", str(count)] if count else []
    command += ["--per-second", str(per_second)] if per_second else []
    process = subprocess.Popen(command, cwd=processes.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def size(text: str) -> Size:
    """Read NODESxPODS for argparse."""
    try:
        return Size.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be like 1000x10000, with 1 to 20000 nodes") from None
