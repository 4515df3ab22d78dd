"""A scenario from its first step to its last.

It exists so that every scenario is judged alike at its end, and leaves something to look at when it fails. It must not
have verbs. Invariants: at the end the extender and the objects agree on every card, nothing was over-committed after
any watch event, and the journal gives the same answers again; a scenario that fails leaves its logs, objects and
journals in one folder.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.control_plane import ControlPlane
from tests.e2e.doing import Doing
from tests.e2e.expecting import Expecting
from tests.e2e.language import Scenario, pod_of, priorities_in, priority_class
from tests.e2e.processes import ROOT
from tests.e2e.telling import PODS, PRIORITIES, WITHIN_SECONDS, Json, as_list
from tests.e2e.world import NAMESPACE, Refusal, World

#: Outcomes of a bind that another pod's bind has brought about.
_NO_ROOM: Final = ("Insufficient", "ExclusiveConflict")


class Story(Doing, Expecting):
    """All verbs, and the order of steps."""

    async def _play(self) -> Json:
        """Run all steps; return the figures. Raises AssertionError."""
        try:
            await self.nodes(self._scenario.nodes)
            await self.quotas(self._scenario.quotas or {})
            await self._priorities()
            if self._scenario.evicts:
                await asyncio.to_thread(self._world.plane.permit_evictions)
            for number, step in enumerate([*self._scenario.steps] * self._scenario.times, 1):
                await self._take(number, step)
            await self._agrees()
        finally:
            self._world.beside.stop()
            for manifest in reversed(self._applied):
                await asyncio.to_thread(self._world.plane.remove, manifest)
        return self._figures

    async def _priorities(self) -> None:
        """Make the PriorityClasses, and wait until the API server's admission knows them."""
        for value in priorities_in(self._scenario):
            name = priority_class(value)
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
            with suppress(Refusal):
                # It stays when the scenario is over.
                await self._kube.send("POST", PRIORITIES, body | {"metadata": {"name": name}})
            pod = pod_of("asks-for-a-priority", {"containers": "app nothing", "priority": value}, NAMESPACE)
            await self._poll(partial(self._would_be_taken, pod), lambda said: said)

    async def _would_be_taken(self, pod: Json) -> str:
        """Return why the API server would not take a pod; empty if it would."""
        try:
            await self._kube.send("POST", f"{PODS}?dryRun=All", pod)
        except Refusal as refusal:
            return str(refusal)
        return ""

    async def _take(self, number: int, step: Mapping[str, Any]) -> None:
        self._seconds, self._step_began = float(step.get("within", WITHIN_SECONDS)), time.monotonic()
        self._world.audit.timeline.append(f"-------- step {number}: {dict(step)}")
        for verb, argument in step.items():
            try:
                await getattr(self, verb.replace(" ", "_"))(argument)
            except (AssertionError, Refusal) as error:
                raise AssertionError(f"step {number}, {verb}: {error}") from error

    async def _agrees(self) -> None:
        def differs(held: Mapping[str, Sequence[int]]) -> str:
            wanted = {card: tuple(use) for card, use in self._world.audit.held().items()}
            found = {card: tuple(use) for card, use in held.items() if any(use)}
            return "" if found == wanted else f"the extender counts {found}, the objects say {wanted}"

        self._seconds = WITHIN_SECONDS
        await self._poll(self._extender_held, differs)
        kills = [what for step in self._scenario.steps for what in as_list(step.get("kill", ()))]
        assert not self._world.audit.gaps or "api server" in kills, "watch events were lost"
        if self._victims is not None:
            assert self._have_gone() == self._victims, f"victims are {self._have_gone()}, not {self._victims}"
            self._figures["victims"] = self._victims
        if not self._scenario.overcommits:
            assert not self._world.audit.overcommitted, self._world.audit.overcommitted[:5]
        outcomes = await self._world.extender.metric("gpu_extender_binds_total")
        binds = {name.partition('"')[2].rstrip('"}'): int(count) for name, count in outcomes.items()}
        refused = sum(count for outcome, count in binds.items() if outcome.startswith(_NO_ROOM))
        self._figures["binds"] = binds
        self._figures["share of binds refused for lack of room"] = round(refused / max(1, sum(binds.values())), 4)
        self._figures["watch events"] = sum(self._world.audit.events.values())


VERBS: Final = {name.replace("_", " ") for name in dir(Story) if not name.startswith("_")}


async def play(scenario: Scenario, plane: ControlPlane, folder: Path, *, lock: str = "none") -> Json:
    """Run a scenario on a control plane; return the figures. Raises AssertionError, with the evidence in `folder`."""
    options = ["--lock-mode", lock, *(["--preemption", "evict"] if scenario.evicts else []), *scenario.options]
    seconds = scenario.lease_seconds
    if seconds is not None:
        options += ["--lease-duration", f"{seconds:g}", "--lease-retry", f"{seconds / 10:g}"]
    world = World(
        plane,
        folder,
        replicas=scenario.replicas,
        options=options,
        http_timeout_seconds=10.0 if seconds is None else seconds / 2,
        scheduler=scenario.scheduler or {},
    )
    async with world:
        world.write("scenario.yaml", yaml.safe_dump(dict(vars(scenario)), sort_keys=False))
        try:
            figures = await Story(scenario, world)._play()
        except BaseException:
            await world.write_evidence()
            raise
    for extender in world.extenders:
        await asyncio.to_thread(replays, extender.journal)
    return figures


def replays(journal: Path) -> None:
    """Check that a journal gives the same answers again. Raises AssertionError."""
    command = [sys.executable, "-m", "extender", "replay", str(journal)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{journal.name}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
