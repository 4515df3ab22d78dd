"""Starts a server of this project as a process of its own, and ends it.

It exists so that benchmarks and trials meet the extender as kube-scheduler does: over a socket, in another process. It
must not know requests. Invariant: every server that was started ends, also when its user fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.http_load import Address

ROOT: Final = Path(__file__).resolve().parents[1]
_LISTENS: Final = re.compile(r"listens on http://([0-9.]+):(\d+)\n")
#: Asks the kernel for SIGKILL at the parent's end (PR_SET_PDEATHSIG), then becomes the program; the id stays.
_TIED: Final = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
_START_SECONDS: Final = 300
_STOP_SECONDS: Final = 15
_OUTPUT_BYTES: Final = 1 << 16


class Server(NamedTuple):
    """A running server, and how it started."""

    address: Address
    pid: int
    start_seconds: float

    def resident_mib(self) -> int | None:
        """Return the memory of the process now; None where the system does not say."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return None if found is None else int(found[1]) // 1024


def python(*arguments: str) -> list[str]:
    """Return the command `python -m ARGUMENTS`; on Linux it ends with the thread that starts it, however that ends."""
    tie = [sys.executable, "-c", _TIED] if sys.platform == "linux" else []
    return [*tie, sys.executable, "-m", *arguments]


@contextmanager
def running(arguments: Sequence[str], root: Path = ROOT) -> Iterator[Server]:
    """Run `python -m ARGUMENTS` in a checkout until the block ends. Raises RuntimeError if it does not listen."""
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = subprocess.Popen(python(*arguments), cwd=root, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            address = _address(process, output.fileno(), started + _START_SECONDS)
            yield Server(address, process.pid, time.monotonic() - started)
        finally:
            _stop(process)


@contextmanager
def extender(clusters: Sequence[Path], root: Path = ROOT) -> Iterator[Server]:
    """Run the extender on cluster files, at a free port; without files it runs on its example cluster."""
    files = [argument for path in clusters for argument in ("--cluster", str(path))]
    with running(["extender", "serve", "--port", "0", *files], root) as server:
        yield server


def _address(process: subprocess.Popen[bytes], output: int, deadline: float) -> Address:
    while True:
        # pread, because the process shares this file's offset.
        text = os.pread(output, _OUTPUT_BYTES, 0).decode(errors="replace")
        found = _LISTENS.search(text)
        if found is not None:
            return Address(found[1], int(found[2]))
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server does not listen: {text.strip() or f'exit status {process.returncode}'}")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
