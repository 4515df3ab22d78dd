"""A program that a test starts and ends.

It exists so that no process outlives its test, however that ends. It must not know what the program does. Invariants:
every process is ended by its own id; on Linux the kernel ends it when the test process is gone; all that it says goes
to one file.
"""

import http.client
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_POLL_SECONDS: Final = 0.05
_END_SECONDS: Final = 15.0
#: Asks the kernel for SIGKILL at the parent's end (PR_SET_PDEATHSIG), then becomes the program; the id stays.
_TIED: Final = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
#: Below the ports that systems take for outgoing connections (Linux: from 32768 on).
_PORTS: Final = range(20_000, 32_000)
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Child:
    """One program, which may be started again after its end."""

    def __init__(self, name: str, command: Sequence[object], log: Path) -> None:
        self.name = name
        self.log = log
        self.command = [str(part) for part in command]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> "Child":
        """Start it; it need not be ready yet. Only the main thread may: the kernel ends it with the thread."""
        assert not self.running, f"{self.name} runs already"
        assert threading.current_thread() is threading.main_thread()
        tie = [sys.executable, "-c", _TIED] if sys.platform == "linux" else []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*tie, *self.command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait; a program that does not heed it is killed."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """The processor time that it has used (Linux)."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Wait for a result of the program. Raises RuntimeError with the end of its log."""
        end = time.monotonic() + seconds
        while not holds():
            if not self.running or time.monotonic() > end:
                raise RuntimeError(f"{self.name}: not {what}:\n{self.last_words()}")
            time.sleep(_POLL_SECONDS)

    def last_words(self, size: int = 3000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody listens on, and that the system gives to no connection until they are used."""
    found: list[int] = []
    while len(found) < number:
        port = random.choice(_PORTS)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


def answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=1, context=context) as response:  # noqa: S310 - a URL of loopback
            return bool(response.status == 200)
    except (OSError, http.client.HTTPException):
        return False
