"""One scenario's cluster: a fresh kube-scheduler, fresh extenders, and clients.

It exists so that a scenario says what happens and not how. It must not know a scenario. Invariants: all processes that
it starts have ended when it is left; the API server is then as empty as before, except for events.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from tests.apiserver.beside import Beside
from tests.apiserver.node_actor import NodeActor
from tests.e2e.audit import Audit
from tests.e2e.control_plane import ControlPlane, scheduler_configuration
from tests.e2e.processes import Child, answers, free_ports
from tests.e2e.service import Service
from tests.e2e.webhook import BindingWebhook

Json = dict[str, Any]
NAMESPACE: Final = "default"
_CLEAN_SECONDS: Final = 30.0
_READY_SECONDS: Final = 180.0
_PATCHES: Final = {"Content-Type": "application/merge-patch+json"}
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Refusal(Exception):
    """The API server's refusal of a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Kube:
    """A short client that may do everything."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def send(self, method: str, path: str, body: object = None) -> Json:
        """One request. Raises Refusal."""
        data = None if body is None else orjson.dumps(body)
        headers = _PATCHES if method == "PATCH" else {"Content-Type": "application/json"}
        async with self.session.request(method, path, data=data, headers=headers) as response:
            answer: Json = orjson.loads(await response.read() or b"{}")
        if response.status >= 400:
            raise Refusal(response.status, str(answer.get("message", answer)))
        return answer

    async def items(self, path: str) -> list[Json]:
        """The objects of a list."""
        found: list[Json] = (await self.send("GET", path))["items"]
        return found


class Extender:
    """One replica."""

    def __init__(self, plane: ControlPlane, folder: Path, number: int, options: Sequence[str]) -> None:
        port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{port}"
        self.journal = folder / f"journal-{number}.jsonl"
        kubeconfig = plane.kubeconfig("extender")
        command = [sys.executable, "-m", "extender", "serve", "--kubeconfig", kubeconfig, "--port", port]
        command += ["--journal", self.journal, *options]
        self.child = Child(f"extender-{number}", command, folder / f"extender-{number}.log")

    def start(self) -> None:
        """Start it, also after its end."""
        self.child.start()

    def is_ready(self) -> bool:
        """Whether it answers kube-scheduler."""
        return self.child.running and answers(f"{self.url}/readyz")

    def wait_ready(self) -> None:
        """Wait until it is ready."""
        self.child.wait_until(self.is_ready, "ready")

    async def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """What one of its lists says."""
        async with aiohttp.ClientSession(self.url) as session, session.get(path) as response:
            response.raise_for_status()
            return orjson.loads(await response.read())

    async def metric(self, name: str) -> dict[str, float]:
        """The samples of a metric, by their labels."""
        async with aiohttp.ClientSession(self.url) as session, session.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        found = (
            line.removeprefix(name).rpartition(" ") for line in lines if line.startswith((f"{name} ", f"{name}{{"))
        )
        return {labels: float(value) for labels, _, value in found}


class World:
    """The cluster of one scenario."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        replicas: int = 1,
        options: Sequence[str] = (),
        http_timeout_seconds: float = 10.0,
        scheduler: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.plane = plane
        self.folder = folder
        timeout = ("--http-timeout", f"{http_timeout_seconds:g}")
        self.extenders = [Extender(plane, folder, number, (*timeout, *options)) for number in range(replicas)]
        self.service = Service(self.extenders) if replicas > 1 else None
        self._http_timeout_seconds = http_timeout_seconds
        self._url = self.extenders[0].url
        self._profile = scheduler or {}
        self.webhook = BindingWebhook(plane)
        self.beside = Beside()
        """Work beside the scenario; if it fails, the scenario fails at once."""

    async def __aenter__(self) -> Self:
        """Start everything and wait until it is ready."""
        await self.beside.__aenter__()
        self._session = self.plane.session()
        self.kube = Kube(self._session)
        self.audit = Audit(self.plane.session())
        self.actor = NodeActor(self._session)
        try:
            if not self.plane.api_server.running:
                # An earlier scenario ended before it started it again.
                self.plane.api_server.start()
                await asyncio.to_thread(self.plane.wait_ready)
            await self.clean()
            for extender in self.extenders:
                extender.start()
            if self.service is not None:
                self._url = await self.service.start()
            self.start_scheduler()
            await asyncio.to_thread(self._wait_ready)
            self.beside.start(self.audit.follow())
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    def start_scheduler(self) -> None:
        """Start kube-scheduler, also after its end."""
        configuration = scheduler_configuration(self._url, http_timeout_seconds=self._http_timeout_seconds)
        configuration["profiles"][0] |= self._profile
        self.plane.start_scheduler(configuration, self.folder / "kube-scheduler.log")

    def _wait_ready(self) -> None:
        end = time.monotonic() + _READY_SECONDS
        while not any(extender.is_ready() for extender in self.extenders):
            if time.monotonic() > end:
                raise RuntimeError(f"no extender is ready:\n{self.extenders[0].child.last_words()}")
            time.sleep(0.05)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything and empty the API server. Raises ExceptionGroup if something beside it has failed."""
        try:
            await self.beside.__aexit__(kind, error, trace)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        await asyncio.to_thread(self._end_processes)
        if self.service is not None:
            await self.service.stop()
        await self.webhook.stop()
        with suppress(aiohttp.ClientError, Refusal, OSError):
            await self.clean()
        await self.audit.close()
        await self._session.close()

    def _end_processes(self) -> None:
        self.plane.stop_scheduler()
        for extender in self.extenders:
            extender.child.resume()
            extender.child.end()

    @property
    def extender(self) -> Extender:
        """The replica that is ready; while none is, the first."""
        return next((one for one in self.extenders if one.is_ready()), self.extenders[0])

    async def clean(self) -> None:
        """Remove what scenarios create. Raises TimeoutError if some of it stays."""
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        quotas = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
        with suppress(Refusal):
            await self.kube.send("DELETE", f"{_LEASES}/gpu-extender")
        async with asyncio.timeout(_CLEAN_SECONDS):
            for path in (pods, "/api/v1/nodes", quotas):
                while await self.kube.items(path):
                    await self.kube.send("DELETE", f"{path}?gracePeriodSeconds=0", {"gracePeriodSeconds": 0})

    # -- evidence -----------------------------------------------------------------------------------------------------

    def write(self, name: str, text: str | bytes) -> None:
        """Leave a file in the folder."""
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    async def write_evidence(self) -> Path:
        """Write the objects beside the logs and the journal; the folder."""
        paths = {
            "nodes": "/api/v1/nodes",
            "pods": "/api/v1/pods",
            "quotas": "/api/v1/resourcequotas",
            "events": "/apis/events.k8s.io/v1/events",
            "leases": "/apis/coordination.k8s.io/v1/leases",
        }
        for name, path in paths.items():
            with suppress(aiohttp.ClientError, Refusal, OSError):
                listed = await self.kube.send("GET", path)
                self.write(f"{name}.json", orjson.dumps(listed, option=orjson.OPT_INDENT_2))
        for extender in self.extenders:
            for name in ("nodes", "pods", "quotas", "verify"):
                with suppress(aiohttp.ClientError, OSError):
                    said = orjson.dumps(await extender.get(f"/api/v1/{name}"), option=orjson.OPT_INDENT_2)
                    self.write(f"{extender.child.name}-{name}.json", said)
        self.write("timeline.txt", "\n".join([*self.audit.timeline, *self.audit.overcommitted]) + "\n")
        for child in (self.plane.api_server, self.plane.etcd):
            self.write(child.log.name, child.last_words(2_000_000))
        return self.folder
