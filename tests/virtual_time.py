"""An event loop whose time passes only while nothing else can happen, and the wait for a fact.

It exists so that a test that needs seconds (leases, pauses, deadlines) takes none, and says the same on a busy machine:
work takes no time here, and waiting takes no work. It must not know what is tested. Invariants: time passes when no
callback is due, no socket of this process has anything to read and no thread works for the loop; on a loop that is
always busy it passes every few turns. A wait ends at the first such moment at which its fact holds.
"""

import asyncio
import fcntl
import selectors
import termios
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack
from unittest import mock

import pytest

from extender.live.leading import leadership

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

#: How long loopback may need to hand over what was sent, on a busy machine.
_GRACE_SECONDS = 0.0001
#: A peer that does not read takes no more at some point. After so many graces time passes all the same.
_MOST_GRACES = 10
_EMPTY = bytes(4)
#: On a loop that is always busy, so many turns take so long.
_BUSY_TURNS, _BUSY_SECONDS = 100, 0.001
#: How often a loop of real time checks a fact.
_LOOK_SECONDS = 0.005
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
_Fact = tuple[Callable[[], bool], "asyncio.Future[None]"]


class _Selector(selectors.DefaultSelector):
    """Lets time pass instead of waiting."""

    loop: "VirtualTimeLoop"
    busy_turns = 0
    is_settled = False
    """Whether a grace has brought nothing, and no socket has done anything since."""

    def register(self, fileobj: "FileDescriptorLike", events: int, data: object = None) -> selectors.SelectorKey:
        self.is_settled = False
        return super().register(fileobj, events, data)

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        self.is_settled = False
        return super().unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            self.is_settled = self.is_settled and not found
            # Something may be due at every turn for as long as a test lasts.
            self.busy_turns += 1
            if self.busy_turns % _BUSY_TURNS == 0:
                self.loop.settle_facts()
                self.loop.pass_by(_BUSY_SECONDS)
            return found
        if self.loop.settle_facts():
            return []
        if timeout is None or self.loop.threads_at_work:
            return super().select(None)
        if self.loop.is_alone and self.is_settled and not self._is_something_under_way():
            self.loop.pass_by(timeout)
            return []
        for _ in range(_MOST_GRACES):
            # The selector's own wait is a millisecond at least.
            time.sleep(_GRACE_SECONDS)
            found = super().select(0)
            if found:
                self.is_settled = False
                return found
            if not self._is_something_under_way():
                break
        self.is_settled = True
        self.loop.pass_by(timeout)
        return []

    def _is_something_under_way(self) -> bool:
        """Whether a socket has sent what has not arrived: on a busy machine loopback itself has to wait."""
        for descriptor in self.get_map():
            try:
                if fcntl.ioctl(descriptor, termios.TIOCOUTQ, _EMPTY) != _EMPTY:
                    return True
            except OSError:
                # Only sockets have such a queue.
                continue
        return False


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The event loop. It starts at the machine's own time."""

    def __init__(self) -> None:
        self._now = time.monotonic()
        self.threads_at_work = 0
        self.is_alone = False
        """Whether all peers run in this loop: then nothing comes after a grace but what this loop has caused."""
        self._facts: list[_Fact] = []
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._now

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], T], *args: *Arguments
    ) -> "asyncio.Future[T]":
        """Run in a thread; until it is done, no time passes."""
        done = super().run_in_executor(executor, func, *args)
        self.threads_at_work += 1
        done.add_done_callback(self._is_back)
        return done

    def _is_back(self, _: object) -> None:
        self.threads_at_work -= 1

    async def shutdown_default_executor(self, *bound: float) -> None:
        """Wait for the threads; from Python 3.12 on the runner bounds this wait, and no time may pass in it."""
        self.threads_at_work += 1
        try:
            await super().shutdown_default_executor(*bound)
        finally:
            self.threads_at_work -= 1

    async def holds(self, fact: Callable[[], bool]) -> None:
        """Wait until a fact holds while nothing is left to do."""
        found: asyncio.Future[None] = self.create_future()
        self._facts.append((fact, found))
        try:
            await found
        finally:
            self._facts = [each for each in self._facts if each[1] is not found]

    def settle_facts(self) -> bool:
        """End the waits whose facts hold; return whether there was one."""
        settled = False
        for fact, found in self._facts:
            if found.done():
                continue
            try:
                if not fact():
                    continue
            except Exception as error:  # noqa: BLE001 - it belongs to who waits
                found.set_exception(error)
            else:
                found.set_result(None)
            settled = True
        return settled


async def eventually(fact: Callable[[], bool], what: str = "", *, seconds: float = float("inf")) -> float:
    """Wait until a fact holds; return the seconds that passed. `seconds` bounds them only where time is virtual.

    In real time nothing bounds the wait but the test's own timeout: how long a machine takes says nothing about the
    code.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    if fact():
        return 0.0
    if isinstance(loop, VirtualTimeLoop):
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await loop.holds(fact)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s: {what or fact}") from None
    else:
        while not fact():  # noqa: ASYNC110 - it may be a fact of another thread or process
            await asyncio.sleep(_LOOK_SECONDS)
    return loop.time() - began


async def until(asked: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes."""
    while not await asked():  # noqa: ASYNC110 - whoever is asked tells of no change
        await asyncio.sleep(_LOOK_SECONDS)


async def passes(seconds: float) -> None:
    """Let that much virtual time pass; it takes no real time."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "here it would take that long"
    await asyncio.sleep(seconds)


def stall(seconds: float) -> None:
    """Let that much time pass while the loop does nothing else, as a long computation would."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.pass_by(seconds)


@contextmanager
def leases_in_virtual_time() -> Iterator[None]:
    """Make the clock that times leases show the time of the loop."""

    def clock_gettime(clock: int) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.clock_gettime(clock)

    shown = SimpleNamespace(CLOCK_BOOTTIME=time.CLOCK_BOOTTIME, clock_gettime=clock_gettime)
    with mock.patch.object(leadership, "time", shown):
        yield


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give each test its event loop: of virtual time, or with the mark `real_time` of the machine's.

    A hook of pytest-asyncio for conftest files.
    """
    del config
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}
