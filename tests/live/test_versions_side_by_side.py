"""An old and a new replica beside each other, one leading after the other: an upgrade, and its way back.

It exists because a rolling update has both for a while, and a rollback has the old one read what the new one wrote. The
old code is that of a commit, before the chart and its upgrade. Invariants: replicas are processes of their own code;
they meet only at the API server; the audit computes every card anew at every write.
"""

import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from accounting.reference.state import Amounts
from benchmarks.rolling_update import ROOT, Replica, Scheduler, unpacked
from extender.cli import main
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender.objects import asks, card, container, node, pod, sidecar
from tests.live.harness import Kube, report
from tests.live.harness_audit import Audit
from tests.virtual_time import until

pytestmark = pytest.mark.real_time

OLD = "aa75e3c1645f159eaf64e187ae649bc98f084f79"
NODES = ("n1", "n2", "n3")
PODS = 8


class Cluster:
    """An API server, and replicas of either code."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.kube, self.audit = Kube(api), Audit(api)
        self.folder = folder
        self.journal = folder / "journal"
        self.replicas: list[Replica] = []
        self.scheduler = Scheduler(self.replicas, list(NODES))
        self._kubeconfig = write_kubeconfig(folder / "kc", api.url)
        self._placed = 0

    async def start(self, name: str, code: Path) -> Replica:
        made = Replica(name, code, self._kubeconfig, name, (f"--journal={self.journal}.{name}",))
        await made.start()
        self.replicas.append(made)
        return made

    async def end_the_leader(self, leader: Replica, other: Replica) -> float:
        """End it as a pod ends; for how many seconds nobody led."""
        assert (await self.leads(leader), await self.leads(other)) == (True, False)
        self.replicas.remove(leader)
        began = time.monotonic()
        await leader.end()
        await until(lambda: self.leads(other))
        return time.monotonic() - began

    async def leads(self, replica: Replica) -> bool:
        return await replica.get("/readyz") is not None

    async def place(self) -> None:
        """Place some pods of every kind."""
        for number in range(self._placed, self._placed + PODS):
            inits = [sidecar("s", asks(1, 50)), container("i", asks(1, 300))] if number % 2 else []
            app = container("a", asks(1, 100, 10))
            await self.scheduler.place(self.kube.create(pod(f"p{number}", [app], inits=inits)))
        self._placed += PODS

    async def all_count_alike(self) -> None:
        """Wait until every replica says of every card what the audit says."""
        for each in self.replicas:
            await until(partial(self._counts_as_the_audit, each))
        assert self.audit.overcommitted == []

    async def _counts_as_the_audit(self, replica: Replica) -> bool:
        text = await replica.get("/api/v1/nodes")
        cards = [each for one in json.loads(text or b"[]") for each in one["devices"]]
        found = {each["uuid"]: Amounts(**each["requested"]) for each in cards}
        return {uuid: amounts for uuid, amounts in found.items() if any(amounts)} == self.audit.holding()


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer() as api:
        api.load([node(name, [card(f"GPU-{name}-{at}", at, memory=10_000) for at in range(4)]) for name in NODES])
        made = Cluster(api, tmp_path)
        try:
            yield made
        finally:
            for each in made.replicas:
                await each.end()
            made.audit.close()


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed, so the code before cannot be unpacked")
    known = subprocess.run(["git", "cat-file", "-e", OLD], cwd=ROOT, capture_output=True, check=False)
    if known.returncode:
        pytest.skip(f"the code before is that of commit {OLD[:7]}, and this is no checkout that has it")
    return unpacked(OLD, tmp_path_factory.mktemp("old"))


async def test_an_upgrade_and_its_way_back_count_every_card_alike(cluster: Cluster, old: Path) -> None:
    first = await cluster.start("first", old)
    await until(lambda: cluster.leads(first))
    await cluster.place()
    new = await cluster.start("new", ROOT)
    await cluster.all_count_alike()
    over = await cluster.end_the_leader(first, new)
    await cluster.place()
    again = await cluster.start("again", old)
    # What the new one has written, the old one reads.
    await cluster.all_count_alike()
    back = await cluster.end_the_leader(new, again)
    await cluster.place()
    await cluster.all_count_alike()
    assert len(cluster.audit.bound()) == 3 * PODS
    report(f"without a leader: {over:.1f} s from old to new, {back:.1f} s from new to old")
    assert max(over, back) < 5.0
    # A journal that the old one has written is read and answered alike.
    for name in ("first", "new"):
        assert main(["replay", f"{cluster.journal}.{name}"]) == 0
