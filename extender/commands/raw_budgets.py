"""The file of --raw-budgets, read again when it changes.

Why it exists: a budget is changed while the extender runs, as a file or as a mounted ConfigMap, which the kubelet
replaces behind a link. It must not judge. Invariant: a file that cannot be used leaves the budgets as they were, and
is told once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from extender.cluster import Cluster
from extender.convert import InputError, read_raw_budgets
from extender.logs import logger

_LOOK_SECONDS = 5.0


class RawBudgetFile:
    """One file and the cluster whose budgets it holds; without a file there are none."""

    def __init__(self, path: str | None, cluster: Cluster) -> None:
        """Read it for the first time. Raises `InputError`."""
        self._path = path
        self._cluster = cluster
        self._why_not = ""
        self._last = "" if path is None else self._text(path)
        if path is not None:
            self._take(path, self._last)

    def look(self) -> None:
        """Read it again if it has changed."""
        if self._path is None:
            return
        try:
            text = self._text(self._path)
            if text == self._last:
                return
            self._last = text
            self._take(self._path, text)
        except InputError as error:
            if self._why_not != str(error):
                self._why_not = str(error)
                logger().error("raw budgets not read again", why=self._why_not)
            return
        self._why_not = ""
        logger().info("raw budgets read again", path=self._path)

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Look for changes while the block runs."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()

    def _take(self, path: str, text: str) -> None:
        budgets = read_raw_budgets(text, self._cluster.settings.raw_keys, f"--raw-budgets {path}")
        self._cluster.set_raw_budgets(budgets)

    def _text(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("--raw-budgets", path, str(getattr(error, "strerror", "") or error)) from None
