"""Replaces three replicas one after another while pods arrive, and says for how long nobody scheduled.

It exists because an upgrade must cost no pod and no card. It must not decide what is right: the audit computes every
card anew at every write. Invariants: replicas are processes, old ones of a commit of their own; they end as a pod does,
by SIGTERM and with the shutdown delay of the manifests; the caller is as kube-scheduler is: one filter at a time, binds
beside it, and another try after an Error.

    python -m benchmarks.rolling_update [--old COMMIT] [--rate 50] [-o docs/rolling_update.json]
"""

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender.objects import card, node, pod
from tests.extender.serving import asked, binding
from tests.live.harness import Kube
from tests.live.harness_audit import Audit
from tests.virtual_time import until

ROOT = Path(__file__).resolve().parents[1]
REPLICAS = 3
NODES = 60
#: As the manifests have it: longer than endpoints take to be withdrawn.
FLAGS = ("--shutdown-delay=5",)
POD_MIB, CARD_MIB = 100, 100_000
RETRY_SECONDS = 0.2


class Replica:
    """One process."""

    def __init__(self, name: str, code: Path, kubeconfig: Path, version: str, flags: Sequence[str] = FLAGS) -> None:
        self.name, self.version = name, version
        self.url = ""
        self._code, self._kubeconfig, self._flags = code, kubeconfig, flags
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(self._code), "POD_NAME": self.name}
        serve = ["serve", f"--kubeconfig={self._kubeconfig}", "--port=0", "--lock-mode=none", "--log-level=warning"]
        command = [sys.executable, "-P", "-m", "extender", *serve, *self._flags]
        self._process = await asyncio.create_subprocess_exec(
            *command, cwd=self._code, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        found = re.search(rb"http://\S+", await self._process.stdout.readline())
        assert found is not None, f"{self.name} ended at its start"
        self.url = found[0].decode()
        self.session = await self._stack.enter_async_context(aiohttp.ClientSession(self.url))
        await until(self._has_read_the_cluster)

    async def _has_read_the_cluster(self) -> bool:
        return await self.get("/api/v1/nodes") is not None

    async def get(self, path: str) -> bytes | None:
        """The body of a 200."""
        with suppress(aiohttp.ClientError, OSError):
            async with self.session.get(path) as response:
                return await response.read() if response.status == 200 else None
        return None

    async def post(self, verb: str, body: object) -> dict[str, Any]:
        """An answer, an Error where there is none."""
        if self.session.closed:
            return {"Error": "no answer: ended"}
        try:
            async with self.session.post(f"/{verb}", data=orjson.dumps(body)) as response:
                answer: dict[str, Any] = orjson.loads(await response.read())
                return answer
        except (aiohttp.ClientError, OSError) as error:
            return {"Error": f"no answer: {type(error).__name__}"}

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        await self._process.wait()
        await self._stack.aclose()


class Scheduler:
    """Asks as kube-scheduler does, and remembers when it was answered."""

    def __init__(self, replicas: list[Replica], names: list[str]) -> None:
        self.errors: Counter[str] = Counter()
        self.bound = 0
        self.answered: list[float] = []
        self._replicas, self._names = replicas, names
        self._one = asyncio.Lock()
        self._last: Replica | None = None

    async def place(self, made: dict[str, Any]) -> None:
        """Place a pod, however often it takes."""
        while not await self._tried(made):  # noqa: ASYNC110 - nobody tells a scheduler when to try again
            await asyncio.sleep(RETRY_SECONDS)
        self.bound += 1

    async def _tried(self, made: dict[str, Any]) -> bool:
        async with self._one:
            # Over a connection that is kept, to where it led last; after an Error a new one goes to whoever is ready.
            if self._last is None:
                self._last = await self.ready()
            asked_one = self._last
            if asked_one is None:
                self.errors["filter: no replica is ready"] += 1
                return False
            answer = await asked_one.post("filter", asked(made, *self._names))
            if answer.get("Error"):
                self._failed("filter", answer["Error"])
                return False
            self.answered.append(time.monotonic())
            found = answer.get("NodeNames") or []
            if not found:
                self.errors["filter: no node"] += 1
                return False
        answer = await asked_one.post("bind", binding(made, found[hash(made["metadata"]["uid"]) % len(found)]))
        if answer["Error"]:
            self._failed("bind", answer["Error"])
        return not answer["Error"]

    def _failed(self, verb: str, error: str) -> None:
        self.errors[f"{verb}: {error.partition(':')[0][:60]}"] += 1
        self._last = None

    async def has_a_leader(self) -> bool:
        """Whether a replica leads."""
        return await self.ready() is not None

    async def ready(self) -> Replica | None:
        for each in list(self._replicas):
            if await each.get("/readyz") is not None:
                return each
        return None


async def roll(old: Path, new: Path, rate: float, folder: Path) -> dict[str, Any]:
    """Replace every replica of the old code by one of the new while pods arrive."""
    async with ApiServer() as api:
        names = [f"n{number}" for number in range(NODES)]
        api.load([_node(name) for name in names])
        kube, audit = Kube(api), Audit(api)
        kubeconfig = write_kubeconfig(folder / "kc", api.url)
        replicas = [Replica(f"old-{number}", old, kubeconfig, "old") for number in range(REPLICAS)]
        try:
            await asyncio.gather(*(each.start() for each in replicas))
            scheduler = Scheduler(replicas, names)
            await until(scheduler.has_a_leader)
            load = asyncio.create_task(_load(kube, scheduler, rate))
            await asyncio.sleep(2)
            began = time.monotonic()
            skew = await _replace(replicas, new, kubeconfig)
            ended = time.monotonic()
            await asyncio.sleep(2)
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
            placing = [task for task in asyncio.all_tasks() if task.get_name() == "place"]
            await asyncio.gather(*placing)
        finally:
            await asyncio.gather(*(each.end() for each in replicas))
        audit.close()
        moments = scheduler.answered
        gaps = [after - before for before, after in pairwise(moments)]
        pods = kube.pods()
        return {
            "replicas": REPLICAS,
            "offered_pods_per_second": rate,
            "seconds": round(ended - began, 1),
            "leaders_ended": skew,
            "pods": len(pods),
            "pods_not_bound": sum(not each["spec"].get("nodeName") for each in pods),
            "errors_then_tried_again": dict(sorted(scheduler.errors.items())),
            "cards_overcommitted": len(audit.overcommitted),
            "longest_without_an_answer_seconds": round(max(gaps), 2),
        }


def _node(name: str) -> dict[str, Any]:
    """A node that is never full: what is measured is no queue for room."""
    return node(name, [card(f"GPU-{name}-{at}", at, memory=CARD_MIB, slots=1000) for at in range(8)])


async def _load(kube: Kube, scheduler: Scheduler, rate: float) -> None:
    """Offer pods at a steady rate."""
    number, began = 0, time.monotonic()
    while True:
        made = kube.create(pod(f"p{number}", memory=POD_MIB))
        # Found again by its name.
        _placing = asyncio.create_task(scheduler.place(made), name="place")  # noqa: RUF006
        number += 1
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))


async def _replace(replicas: list[Replica], new: Path, kubeconfig: Path) -> int:
    """Start a new replica, then end an old one, the leader if it is old; three times. Returns how often it was."""
    leaders = 0
    for number in range(REPLICAS):
        started = Replica(f"new-{number}", new, kubeconfig, "new")
        await started.start()
        replicas.append(started)
        olds = [each for each in replicas if each.version == "old"]
        leading = [each for each in olds if await each.get("/readyz") is not None]
        leaders += len(leading)
        ending = (leading or olds)[0]
        await ending.end()
        replicas.remove(ending)
    return leaders


def unpacked(commit: str, folder: Path) -> Path:
    """The code of a commit."""
    packed = subprocess.run(
        ["git", "archive", commit, "accounting", "extender"], cwd=ROOT, check=True, capture_output=True
    )
    subprocess.run(["tar", "--extract", "--directory", folder], input=packed.stdout, check=True)
    return folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rolling_update", description=__doc__.partition("\n")[0])
    parser.add_argument("--old", metavar="COMMIT", help="code of the old replicas (default: this checkout's)")
    parser.add_argument("--rate", type=float, default=50.0, help="pods per second (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "old").mkdir()
        old = ROOT if options.old is None else unpacked(options.old, folder / "old")
        figures = {"old": options.old or "this", "new": "this"} | asyncio.run(roll(old, ROOT, options.rate, folder))
    print(orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode())
    if options.output is not None:
        options.output.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    held = figures["pods_not_bound"] == figures["cards_overcommitted"] == 0
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
