"""Runs `python -m MODULE` as a process of its own that imports nothing again: its parent has imported everything.

It exists because a fresh interpreter spends more than a second on imports, and commands are run by the hundred. It must
not know what a command does. Invariants: a child has its own arguments, environment, standard streams and signals, as
one started by a shell; it ends with this process, however this one ends.
"""

import ctypes
import gc
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["extender.cli", "extender.commands.serve_live", "extender.kubectl.main", "tests.apiserver.server", __name__]
)
_PR_SET_PDEATHSIG = 1


class Child:
    """A process that runs a module, as `subprocess.Popen` would give it with its three streams as pipes."""

    def __init__(self, module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        pipes = [_CONTEXT.Pipe(duplex=False) for _ in range(3)]
        theirs = pipes[0][0], pipes[1][1], pipes[2][1]
        ours = pipes[0][1], pipes[1][0], pipes[2][0]
        self._process = _CONTEXT.Process(
            target=_run, args=(module, list(arguments), dict(os.environ) | dict(env or {}), *theirs), daemon=True
        )
        self._process.start()
        for end in theirs:
            end.close()
        self.stdin: BinaryIO = _file(ours[0], "wb")
        self.stdout: BinaryIO = _file(ours[1], "rb")
        self.stderr: BinaryIO = _file(ours[2], "rb")
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """Wait for its end; return the exit status."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        """End it if it still runs, and close its streams."""
        self.send_signal(signal.SIGKILL)
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self._process.close()


def _file(end: "Connection[bytes, bytes]", mode: str) -> BinaryIO:
    """Make a file of one end of a pipe."""
    with end:
        return os.fdopen(os.dup(end.fileno()), mode)  # type: ignore[return-value]  # binary by its mode


def _run(
    module: str,
    arguments: list[str],
    env: dict[str, str],
    stdin: "Connection[bytes, bytes]",
    stdout: "Connection[bytes, bytes]",
    stderr: "Connection[bytes, bytes]",
) -> None:
    """Run the module in the child."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, end in enumerate((stdin, stdout, stderr)):
        with end:
            os.dup2(end.fileno(), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    # What was left open warns now, as at the end of an interpreter.
    gc.collect()
