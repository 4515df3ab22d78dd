"""A team whose pods are created through the webhooks, and that wants more than its quota.

It exists because admission, filter and bind judge by the same quota at different moments, and a fault can come between
any two. It must not judge. Invariants: the quota counts the team's pods alone, by their PriorityClass; a webhook is
asked over HTTPS, and one that cannot be reached refuses, as under failurePolicy Fail.
"""

import asyncio
import base64
from collections.abc import Iterable
from http import HTTPStatus
from random import Random

import msgspec

from tests.admission.reviews import patched, review
from tests.apiserver.resources import PODS
from tests.extender.objects import MEMORY, Json, pod, quota
from tests.live.fault_certificates import Webhooks
from tests.live.fault_cycles import Cycles
from tests.live.fault_harms import Harms
from tests.live.fault_world import World
from tests.live.harness import Extender
from tests.virtual_time import passes

TEAM, QUOTA_MIB, POD_MIB = "team", 500, 200
_PODS, _TRIES = 3, 3


class Team:
    """What a team does while something goes wrong."""

    def __init__(self, world: World, webhooks: Webhooks, cycles: Cycles, harms: Harms) -> None:
        self._world, self._webhooks, self._cycles, self._harms = world, webhooks, cycles, harms
        self._chance = Random(f"{world.outcome.seed} team")
        self._beyond: list[str] = []
        """Every write after which the team held more than its quota."""

    async def begin(self) -> None:
        """Make the quota."""
        self._world.kube.create(team_quota())
        self._world.api.store.listen(PODS, self._written)

    async def play(self) -> None:
        """Create pods through the webhooks; together they want more than the team may have."""
        self._world.outcome.activities["admission"] += 1
        for number in range(_PODS):
            creating = asyncio.create_task(self._create(team_pod(number)))
            await asyncio.sleep(0)
            await self._harms.any()
            await creating
        self._check()

    async def settle(self) -> None:
        """Every replica judges by the quota again; whoever has room under it is placed."""
        world = self._world
        for made in [each for each in world.kube.pods() if _is_of_team(each)]:
            if made["spec"].get("nodeName"):
                continue
            if over_quota(world.kube.pods(), made):
                world.outcome.activities["over quota"] += 1
                world.kube.delete_pod(made["metadata"]["name"])
            else:
                # It takes the room that the next one then lacks.
                await self._cycles.place(made)
        self._check()
        await self._judged(team_pod(8, QUOTA_MIB + 1), "denied")
        for each in [each for each in world.kube.pods() if _is_of_team(each)]:
            world.kube.delete_pod(each["metadata"]["name"])
        await self._judged(team_pod(9, QUOTA_MIB), "allowed")

    async def _create(self, made: Json) -> None:
        """Create a pod as a controller does, again where no webhook answers; place it if it is admitted."""
        said = "unavailable"
        for _ in range(_TRIES):
            replicas = list(self._world.replicas.values())
            if replicas:
                said = await self._reviewed(self._chance.choice(replicas), made)
            if said != "unavailable":
                break
            await passes(1.0)
        self._world.outcome.activities[f"reviews {said.partition(':')[0]}"] += 1
        if said == "allowed":
            await self._cycles.once(self._world.kube.create(made))

    async def _judged(self, made: Json, wanted: str) -> None:
        """Wait until every replica says what it must."""
        for one in list(self._world.replicas.values()):
            said = ""
            for _ in range(100):
                said = await self._reviewed(one, made)
                if said.startswith(wanted):
                    break
                await passes(1.0)
            self._world.must(said.startswith(wanted), f"a pod of {_memory(made)} MiB: {said} instead of {wanted}")

    async def _reviewed(self, one: Extender, made: Json) -> str:
        """Let a replica's webhooks judge a new pod: "allowed", "denied: why", or "unavailable" where it cannot tell."""
        for path in ("/mutate", "/validate"):
            answer = await self._webhooks.ask(one, path, msgspec.json.encode(review(made, namespace="default")))
            if answer is None:
                return "unavailable"
            said = msgspec.json.decode(answer)["response"]
            if not said["allowed"]:
                code, why = said["status"]["code"], said["status"]["message"]
                self._world.must(code != HTTPStatus.INTERNAL_SERVER_ERROR, f"{path}: {why}")
                return "unavailable" if code == HTTPStatus.SERVICE_UNAVAILABLE else f"denied: {why}"
            made = patched(made, msgspec.json.decode(base64.b64decode(said.get("patch", "W10="))))
        return "allowed"

    def _written(self) -> None:
        held = charged(self._world.kube.pods())
        if held > QUOTA_MIB:
            self._beyond.append(f"{held} MiB of {QUOTA_MIB}")

    def _check(self) -> None:
        self._world.must(not self._beyond, f"the team held {self._beyond[:3]}")


def team_quota() -> Json:
    """What all pods of the team may hold together."""
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": [TEAM]}
    hard = {f"requests.{MEMORY}": str(QUOTA_MIB)}
    return quota(hard, name=TEAM, scopeSelector={"matchExpressions": [expression]})


def team_pod(number: int, memory: int = POD_MIB) -> Json:
    """A pod of the team."""
    made = pod(f"{TEAM}-{number}", memory=memory)
    made["spec"]["priorityClassName"] = TEAM
    return made


def charged(pods: Iterable[Json]) -> int:
    """Return what the team's pods hold that are on nodes, in MiB, by their objects."""
    return sum(_memory(each) for each in pods if _is_of_team(each) and each["spec"].get("nodeName") and _runs(each))


def over_quota(pods: Iterable[Json], made: Json) -> bool:
    """Whether a pod that waits would take the team over its quota."""
    return charged(pods) + _memory(made) > QUOTA_MIB


def _memory(made: Json) -> int:
    return sum(int(each["resources"]["limits"][MEMORY]) for each in made["spec"]["containers"])


def _is_of_team(made: Json) -> bool:
    return bool(made["spec"].get("priorityClassName") == TEAM)


def _runs(made: Json) -> bool:
    return made.get("status", {}).get("phase") not in ("Succeeded", "Failed")
