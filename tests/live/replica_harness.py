"""Replicas of the extender that are as apart as processes: each has an event loop and a network of its own.

It exists to stop a replica at any await and for any time, as SIGSTOP or a slow machine does, while the others and the
API server go on. It must not look into what a replica believes. Invariants: a stopped replica executes nothing at all;
what was on the network when it was cut is delivered late or never, as networks do; time passes at its real pace, or
jumps when a test says so, so that no test must be quicker than a lease.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from extender.config import Settings
from extender.kube.client import Fence, Fenced, KubeClient
from extender.live.app import LiveExtender
from extender.live.leading.leadership import LeaseHolder, steady_seconds
from extender.live.settings import LiveSettings
from extender.wire.extender_v1 import BindingArgs
from tests.live.harness import eventually
from tests.live.kube_harness import connection_to

T = TypeVar("T")
Json = dict[str, Any]
_SECONDS = 60.0
_TURNS = 50


class Network:
    """A TCP connection to the API server that can fail: a proxy on loopback."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._held = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Break every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        self.heal()
        self.break_connections()
        await asyncio.sleep(0)

    def hold(self) -> None:
        """Hold back everything in both directions until `heal`; nothing is lost."""
        self._open.clear()

    def heal(self) -> None:
        """Deliver what was held, and everything from now on."""
        self._open.set()

    def break_connections(self) -> None:
        """Break every connection; what was held is lost."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def drained(self) -> None:
        """Wait until what was held is delivered and carried out. Only for a network that was healed."""
        await eventually(lambda: not self._held, "the network is drained")
        for _ in range(_TURNS):
            # The API server shares this event loop, and needs a few turns for a request that has arrived.
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        with suppress(ConnectionError):
            back, there = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers |= {writer, there}
            await asyncio.gather(self._pipe(reader, there), self._pipe(back, writer))
        for end in (writer, there):
            if end is not None:
                self._writers.discard(end)
                end.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                self._held += 1
                try:
                    await self._open.wait()
                    writer.write(data)
                    await writer.drain()
                finally:
                    self._held -= 1
        writer.close()


class Time:
    """The time of all replicas: their clocks and all their timers."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.loops: set[asyncio.AbstractEventLoop] = set()

    def seconds(self) -> float:
        """Return what the replicas' clocks show."""
        return steady_seconds() + self.ahead

    def passes(self, seconds: float) -> None:
        """Let that much time pass now."""
        self.ahead += seconds
        for loop in self.loops:
            # It waits for the next timer by the time from before.
            loop.call_soon_threadsafe(_do_nothing)


class _Loop(asyncio.SelectorEventLoop):
    """The event loop of a replica."""

    def __init__(self, time: Time) -> None:
        self._replicas_time = time
        super().__init__()

    def time(self) -> float:
        return super().time() + self._replicas_time.ahead


def _do_nothing() -> None:
    """Default callback: does nothing."""


def _go_on() -> None:
    """Default fence: nothing stops the write."""


class _StoppingClient(KubeClient):
    """A client whose process can be stopped while it sends a Binding."""

    def __init__(self, url: str) -> None:
        super().__init__(connection_to(url))
        self.before_request: Callable[[], None] = _do_nothing
        """Called when bind has asked whether it may write, before the request begins."""
        self.before_write: Callable[[], None] = _do_nothing
        """Called after the last check, before the first byte leaves, once every fence has let the write through."""

    async def request(self, method: str, path: str, *, body: bytes | Fenced | None = None, **more: Any) -> Any:  # noqa: ANN401 - as the real one
        if isinstance(body, Fenced):
            self.before_request()
            fence = body.fence
            body = body._replace(fence=lambda: self._asked(fence))
        return await super().request(method, path, body=body, **more)

    def _asked(self, fence: Fence) -> bool:
        passed = fence()
        if passed:
            self.before_write()
        return passed


class Replica:
    """A replica in a thread of its own."""

    def __init__(self, url: str, settings: LiveSettings, time: Time) -> None:
        self.stopped = threading.Event()
        """Set while the replica is stopped."""
        self.wrote = threading.Event()
        """Set when the first byte of a Binding is about to leave, unless the replica is stopped there."""
        self._url = url
        self._settings = settings
        self._time = time
        self._go_on = threading.Event()
        self._loop = _Loop(time)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.client: _StoppingClient
        self.live: LiveExtender

    async def start(self) -> None:
        """Start the thread and the extender in it."""
        self._thread.start()
        await self._do(self._boot)

    async def end(self, *, seconds: float = 0.0) -> None:
        """End it without time to settle, as a killed process."""
        self.resume()
        if not self._thread.is_alive():
            return
        await self._do(lambda: self.live.stop(seconds))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, _SECONDS)

    def stop_now(self) -> None:
        """Stop it at its next await."""
        self._go_on.clear()
        self._loop.call_soon_threadsafe(self._hang)

    async def stop(self) -> None:
        """Stop it at its next await; it is stopped when this returns. It must not be stopped already."""
        # The end of an earlier stop may still be under way.
        await eventually(lambda: not self.stopped.is_set(), "the replica goes on")
        self.stop_now()
        await eventually(self.stopped.is_set, "the replica is stopped")

    def stop_before_request(self) -> None:
        """Stop it at its next Binding, when bind has asked whether it may write and nothing is sent yet."""
        self._go_on.clear()
        self.client.before_request = self._hang_once

    def stop_at_write(self) -> None:
        """Stop it at its next Binding, after the last check and before the first byte leaves."""
        self._go_on.clear()
        self.client.before_write = self._hang_once

    def resume(self) -> None:
        """Let it go on."""
        self._go_on.set()

    @property
    def answers(self) -> bool:
        """Whether it would answer a verb now, as far as another thread can see."""
        return not self.stopped.is_set() and not self.live.hooks.why_not_ready()

    async def bind(self, pod: Json, node: str) -> str:
        """Ask it to bind, as the server would; return the Error."""
        meta = pod["metadata"]
        args = BindingArgs(meta["name"], meta["namespace"], meta["uid"], node)

        async def bind() -> str:
            return self.live.hooks.why_not_ready() or await self.live.binder.bind(args)

        return await self._do(bind)

    async def list_again(self) -> None:
        """Make it list everything."""

        async def list_again() -> None:
            await asyncio.gather(*(reflector.list_again() for reflector in self.live.reflectors))

        await self._do(list_again)

    async def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))

    async def _boot(self) -> None:
        self.client = _StoppingClient(self._url)
        self.client.before_write = self.wrote.set
        self.live = LiveExtender(self.client, Settings(), self._settings)
        assert isinstance(self.live.leadership, LeaseHolder)
        self.live.leadership._clock = self._time.seconds
        await self.live.start()

    def _hang_once(self) -> None:
        self.client.before_request = self.client.before_write = _do_nothing
        self._hang()

    def _hang(self) -> None:
        self.stopped.set()
        self._go_on.wait(_SECONDS)
        self.stopped.clear()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._time.loops.add(self._loop)
        self._loop.run_forever()
        self._time.loops.discard(self._loop)
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


@asynccontextmanager
async def replica(url: str, settings: LiveSettings, time: Time) -> AsyncIterator[Replica]:
    """Run a replica."""
    made = Replica(url, settings, time)
    await made.start()
    try:
        yield made
    finally:
        await made.end()


@asynccontextmanager
async def network(port: int) -> AsyncIterator[Network]:
    """Run a network to the API server on that port."""
    made = Network(port)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
