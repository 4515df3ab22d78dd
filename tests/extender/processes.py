"""Runs the commands as processes of their own, as a person or a pod starts them.

It exists because exit statuses, standard streams and signals are an interface. It must not import the code under test.
Invariant: every process started here has ended, or was ended by its own id, when the test is over.
"""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.forked import ROOT, Child
from tests.virtual_time import eventually

__all__ = ["ROOT", "Result", "Served", "checked_refusal", "refusal", "run", "run_fresh", "served"]


class Result(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: bytes
    err: str

    def json(self) -> Any:  # noqa: ANN401 - whatever the command said
        """Return its standard output as JSON."""
        return json.loads(self.out)


def run(
    *arguments: str | Path, stdin: bytes = b"", module: str = "extender", env: Mapping[str, str] | None = None
) -> Result:
    """Run `python -m MODULE` to its end."""
    child = Child(module, [str(each) for each in arguments], env)
    try:
        with ThreadPoolExecutor(2) as threads:
            out, err = threads.submit(child.stdout.read), threads.submit(child.stderr.read)
            # A command that refuses its arguments does not read standard input.
            with suppress(BrokenPipeError):
                child.stdin.write(stdin)
                child.stdin.flush()
            with suppress(BrokenPipeError):
                child.stdin.close()
            return Result(child.wait(), out.result(), err.result().decode())
    finally:
        child.close()


def run_fresh(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """Run it in a fresh interpreter. This takes a second and a half, so it is done once for each command."""
    command = [sys.executable, "-m", "extender", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr.decode())


def refusal(*arguments: str | Path, stdin: bytes = b"") -> str:
    """Run a command that refuses its input; return its one line.

    Nothing may be on standard output, and the status is 2.
    """
    return checked_refusal(run(*arguments, stdin=stdin))


def checked_refusal(result: Result) -> str:
    """Check that a result is a refusal; return its one line."""
    assert (result.status, result.out) == (2, b"")
    line, end, rest = result.err.partition("\n")
    assert (end, rest) == ("\n", "")
    assert re.fullmatch(r"error: [^:].*: .+: .+", line)
    return line


class Served:
    """A running `serve`: where it listens, and what it has logged so far."""

    def __init__(self, process: Child) -> None:
        self._process = process
        self._log = bytearray()
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()
        self.welcome = self._read_welcome()
        found = re.search(r"http://[0-9.]+:[0-9]+", self.welcome)
        assert found is not None
        self.url = found[0]

    @property
    def log(self) -> str:
        """Return everything on standard error so far."""
        return self._log.decode()

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    async def logged(self, text: str, times: int = 1) -> None:
        """Wait until a text has been logged that often."""

        def is_there() -> bool:
            assert self._process.poll() is None, self.log
            return self.log.count(text) >= times

        await eventually(is_there, text)

    async def get(self, path: str) -> Any:  # noqa: ANN401 - whatever the server said
        """Return what a list says."""
        async with aiohttp.ClientSession(self.url) as session, session.get(path) as response:
            assert response.status == 200
            return await response.json()

    async def post(self, path: str, body: object) -> Any:  # noqa: ANN401 - whatever the server said
        """Return the answer to a JSON body."""
        async with aiohttp.ClientSession(self.url) as session, session.post(path, json=body) as response:
            assert response.status < 400
            return await response.json()

    def stop(self) -> int:
        """End it by SIGTERM; return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait()
        self._reader.join()
        return status

    def close(self) -> None:
        """End it, whatever state it is in."""
        self._process.close()
        self._reader.join()

    def _read_welcome(self) -> str:
        lines: list[str] = []
        for line in self._process.stdout:
            lines.append(line.decode())
            if "SIGHUP" in lines[-1]:
                break
        return "".join(lines)

    def _read_log(self) -> None:
        for line in self._process.stderr:
            self._log.extend(line)


@contextmanager
def served(*arguments: str | Path) -> Iterator[Served]:
    """Run `serve` on a free port of loopback."""
    server = Served(Child("extender", ["serve", "--port", "0", *map(str, arguments)]))
    try:
        yield server
    finally:
        server.close()
