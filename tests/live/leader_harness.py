"""Candidates for a Lease, a clock that can be moved, and the Lease itself.

It exists for tests of leadership alone, in which a leader does nothing. It must not decide who should lead. Invariant:
every candidate's requests go over a connection of its own, which can be cut.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from extender.kube.client import JSON, Answer, Fenced, KubeClient, Unknown
from extender.live.leading.election import LeaderElector
from extender.live.leading.following import LeaseFollower
from extender.live.leading.leadership import LeaseHolder, steady_seconds
from extender.live.leading.lease import LeaseSettings
from tests.apiserver.resources import LEASES
from tests.apiserver.server import ApiServer
from tests.live.harness import Kube, eventually
from tests.live.kube_harness import connection_to
from tests.virtual_time import passes

Json = dict[str, Any]
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE_PATH = f"{LEASES_PATH}/gpu-extender"
#: One second: the API has no shorter lease. A loaded machine may miss it, and no test depends on that.
SHORT = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=0.3)
#: A lease too long for a test to wait for its end.
LONG = LeaseSettings(duration_seconds=600.0, retry_seconds=0.05, write_deadline_seconds=0.2)


class CutClient(KubeClient):
    """A client whose network can fail: requests are lost, or are carried out and get no answer."""

    def __init__(self, url: str) -> None:
        super().__init__(connection_to(url))
        self.cut = False
        self.loses_answers = False
        self.answers_lost = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout_seconds: float,
        query: Mapping[str, str] | None = None,
        body: bytes | Fenced | None = None,
        content_type: str = JSON,
        urgent: bool = False,
    ) -> Answer | Unknown:
        """Send one request, if the network lets it."""
        if self.cut:
            await passes(0.01)
            return Unknown("cut off", sent=False)
        answer = await super().request(
            method,
            path,
            timeout_seconds=timeout_seconds,
            query=query,
            body=body,
            content_type=content_type,
            urgent=urgent,
        )
        if self.loses_answers and method != "GET":
            self.answers_lost += 1
            return Unknown("the answer is lost")
        return answer


class Clock:
    """A steady clock that can be moved on, as it appears to a process that was stopped."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return steady_seconds() + self.ahead


@dataclass
class Candidate:
    """A candidate, and what happened to it. Times are those of `steady_seconds`."""

    holder: LeaseHolder
    client: CutClient
    clock: Clock
    elected: list[float] = field(default_factory=list)
    """When each preparation began to list."""
    others_unknown: list[bool] = field(default_factory=list)
    """For each preparation, whether there may have been writes that no Lease shows."""
    breaks: int = 0
    """How many of the next preparations fail by a bug."""
    given_up: int = 0
    """How many preparations were cancelled."""
    may_list: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """Whether it is leader now."""
        return self.holder.is_leader()

    async def stop(self) -> None:
        """End without releasing, as a killed process does."""
        if self.running is not None:
            self.running.cancel()
            with suppress(asyncio.CancelledError):
                await self.running
            self.running = None

    async def list_everything(self) -> None:
        """Do what an elected candidate does before it leads."""
        self.elected.append(steady_seconds())
        if self.breaks > 0:
            self.breaks -= 1
            raise RuntimeError("a bug")
        try:
            await self.may_list.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise


@asynccontextmanager
async def candidate(
    api: ApiServer,
    name: str,
    settings: LeaseSettings = SHORT,
    *,
    follows: bool = False,
    gone: frozenset[str] = frozenset(),
) -> AsyncIterator[Candidate]:
    """Run a candidate; with `follows`, it follows the scheduler of the host `name`."""
    client, clock = CutClient(api.url), Clock()
    made: Candidate

    async def on_elected(others_unknown: bool) -> None:
        made.others_unknown.append(others_unknown)
        await made.list_everything()

    holder: LeaseHolder
    if follows:
        holder = LeaseFollower(client, name, settings, on_elected, clock)
    else:
        holder = LeaderElector(client, name, settings, on_elected, clock, gone)
    made = Candidate(holder, client, clock)
    made.may_list.set()
    made.running = asyncio.create_task(holder.run())
    try:
        yield made
    finally:
        await made.stop()
        holder._step_down("the test is over")
        await asyncio.sleep(0)
        await client.close()


def lease_of(api: ApiServer) -> Json | None:
    """Return the Lease as it is now."""
    row = api.store.get(LEASES, "kube-system/gpu-extender")
    return None if row is None else row.decode()


def holder_of(api: ApiServer) -> str | None:
    """Return the holder of the Lease."""
    lease = lease_of(api)
    return None if lease is None else lease["spec"].get("holderIdentity")


def write_lease(api: ApiServer, holder: str, duration: int | None = 1, **more: object) -> Json:
    """Make or renew the Lease as another process does."""
    kube, known = Kube(api), lease_of(api)
    before = known["spec"] if known else {}
    now = f"2026-11-29T10:00:00.{api.store.version:06}Z"
    spec: Json = {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": now}
    changed = known is not None and before.get("holderIdentity") != holder
    spec["leaseTransitions"] = (before.get("leaseTransitions") or 0) + changed
    obj = {"metadata": {"name": "gpu-extender", "namespace": "kube-system"}, "spec": spec | more}
    if known is None:
        return kube.send("POST", LEASES_PATH, obj)
    return kube.send("PUT", LEASE_PATH, known | {"spec": obj["spec"]})


def delete_lease(api: ApiServer) -> None:
    """Delete the Lease by hand."""
    Kube(api).send("DELETE", LEASE_PATH)


async def leads(one: Candidate) -> None:
    """Wait until a candidate leads."""
    await eventually(lambda: one.leads, "a candidate leads")


async def wait_rounds(api: ApiServer, rounds: int = 4) -> None:
    """Wait until candidates have looked at the Lease that often."""
    enough = api.requests.count(resource="leases") + rounds
    await eventually(lambda: api.requests.count(resource="leases") >= enough)
