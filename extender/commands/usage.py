"""Usage records of a serving process: added up at intervals, kept in a file, closed when their owners are gone.

It must not compute amounts. Invariants: if the file cannot be read the process does not start, so that it is never
overwritten; the file is replaced as a whole or not at all; the event loop is never blocked for more than a few
milliseconds.
"""

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from accounting.holders import Record
from extender.cluster import Cluster
from extender.commands.arguments import natural, path
from extender.convert import InputError, read_usage, usage_lines
from extender.logs import logger

_PASS_SECONDS = 1.0
_PASSES_PER_SAVE = 60
_LINES_PER_STEP = 500
_DAY_NS = 24 * 3600 * 10**9


class UsageKeeper:
    """The ledger of one cluster and its file, if it has one."""

    def __init__(
        self,
        cluster: Cluster,
        file: str | None,
        days: int,
        is_synced: Callable[[], bool] = lambda: True,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`days`: for which closed records are kept. Raises `InputError` for a file that is there and no such file."""
        self._path = None if file is None else Path(file)
        self._days = days
        self._is_synced = is_synced
        self._closed_unknown = False
        self._why_not = ""
        earlier = [] if self._path is None or not self._path.exists() else _read(self._path)
        self.ledger = cluster.keep_usage(earlier, now_ns)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Add up and save while the block runs, and at its end."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self.run_pass()
            await self.save()

    async def run_pass(self) -> None:
        """Add up what happened; the first time after everything was listed, close what is gone."""
        for _ in self.ledger.steps():
            await asyncio.sleep(0)
        if not self._closed_unknown and self._is_synced():
            self.ledger.close_unknown()
            self._closed_unknown = True

    async def save(self) -> None:
        """Write the file anew. Before everything was listed there is nothing new to say."""
        if self._path is None or not self._closed_unknown:
            return
        now = self.ledger.now_ns()
        self.ledger.records.drop_closed_before(now - self._days * _DAY_NS)
        parts, lines = [], usage_lines(self.ledger.records.unordered(), now)
        for number, line in enumerate(lines):
            parts.append(line)
            if number % _LINES_PER_STEP == 0:
                await asyncio.sleep(0)
        try:
            await asyncio.to_thread(_replace, self._path, b"".join(parts))
        except OSError as error:
            if self._why_not != str(error):
                self._why_not = str(error)
                logger().error("usage records not written", path=str(self._path), why=self._why_not)
            return
        self._why_not = ""

    async def _run(self) -> None:
        passes = 0
        while True:
            await asyncio.sleep(_PASS_SECONDS)
            await self.run_pass()
            passes += 1
            if passes % _PASSES_PER_SAVE == 0:
                await self.save()


def _read(file: Path) -> list[Record]:
    try:
        return read_usage(file.read_bytes())
    except OSError as error:
        raise InputError("--usage-file", str(file), error.strerror or str(error)) from None
    except ValueError as error:
        raise InputError("--usage-file", str(file), str(error)) from None


class NoUsage:
    """In the place of a keeper where no records are kept."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do nothing."""
        yield


def usage_keeper(
    arguments: argparse.Namespace, cluster: Cluster, is_synced: Callable[[], bool] = lambda: True
) -> UsageKeeper | NoUsage:
    """Return the keeper that the flags ask for. Raises `InputError`."""
    if not arguments.usage_records and arguments.usage_file is None:
        return NoUsage()
    return UsageKeeper(cluster, arguments.usage_file, arguments.usage_days, is_synced)


def add_usage(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("usage records: what pods and VMs have had, and for how long")
    group.add_argument("--usage-records", action="store_true", help="keep them in memory")
    group.add_argument("--usage-file", type=path, metavar="FILE", help="keep them in a file as well, over restarts")
    group.add_argument(
        "--usage-days", type=natural, default=90, metavar="DAYS", help="for which closed records are kept; default: 90"
    )


def _replace(file_path: Path, text: bytes) -> None:
    """Put a text in a file's place. Raises OSError."""
    beside = file_path.with_name(f".{file_path.name}.new")
    with beside.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(file_path)
