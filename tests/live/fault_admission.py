"""A team whose pods are created through the webhooks, and that wants more than its quota.

It exists because admission, filter and bind judge by the same quota at different moments, and a fault can come between
any two. It must not choose which replica is asked. Invariant: the quota counts the team's pods alone, by their
PriorityClass.
"""

import base64
from collections.abc import Iterable
from typing import Protocol

import msgspec

from extender.admission.http import answered
from extender.admission.service import Admission
from extender.cluster import Cluster
from extender.wire.admission_v1 import decode_review
from tests.admission.reviews import patched, review
from tests.extender.objects import MEMORY, Json, pod, quota

TEAM, QUOTA_MIB, POD_MIB = "team", 500, 200


class Live(Protocol):
    """The live parts of a replica."""

    cluster: Cluster

    def is_synced(self) -> bool:
        """Whether quotas can be checked."""
        ...


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


def reviewed(live: Live, made: Json) -> str:
    """Let a replica's webhooks judge a new pod: "allowed", "denied: why", or "unavailable" where it cannot tell."""
    admission = Admission(live.cluster, is_synced=live.is_synced)
    for name, judge in (("mutate", admission.mutate), ("validate", admission.validate)):
        body = msgspec.json.encode(review(made, namespace="default"))
        answer, is_judged = answered(name, admission, judge, decode_review(body))
        said = msgspec.json.decode(answer)["response"]
        assert is_judged, said
        if not said["allowed"]:
            return f"denied: {said['status']['message']}" if live.is_synced() else "unavailable"
        made = patched(made, msgspec.json.decode(base64.b64decode(said.get("patch", "W10="))))
    return "allowed"


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
