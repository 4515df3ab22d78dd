"""The played kubelet writes a kubelet's statuses, and the played plugin the rows and lock of HAMi's plugin."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.apiserver.node_actor import NODE_LOCK, TO_ALLOCATE, NodeActor, blank_next_row, has_rows
from tests.apiserver.pod_statuses import Running, Waiting
from tests.apiserver_tests.helpers import NODES, PODS, Client

ROW = "GPU-a,NVIDIA,1000,10:"
FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that moves on by a second each time it is read."""

    def __init__(self) -> None:
        self.moment = FIRST_MOMENT

    def __call__(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


@pytest.fixture
def actor(client: Client) -> NodeActor:
    return NodeActor(client.session, Clock())


async def bound_pod(client: Client, *, policy: str = "Always", **annotations: str) -> None:
    spec = {
        "restartPolicy": policy,
        "initContainers": [
            {"name": "warm-up", "image": "i"},
            {"name": "cache", "image": "i", "restartPolicy": "Always"},
            {"name": "convert", "image": "i"},
        ],
        "containers": [{"name": "app", "image": "i"}],
    }
    await client.ok("POST", PODS, {"metadata": {"name": "a"}, "spec": spec})
    assert (await client.bind("a", annotations=annotations))[0] == 201


def states(pod: dict[str, Any]) -> dict[str, str]:
    status = pod["status"]
    return {
        one["name"]: next(iter(one["state"])) for one in status["initContainerStatuses"] + status["containerStatuses"]
    }


def conditions(pod: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in pod["status"]["conditions"]}


async def test_inits_sidecars_and_apps_in_turn(client: Client, actor: NodeActor) -> None:
    await bound_pod(client)
    pod = await actor.start("ns", "a", "warm-up")
    assert states(pod) == {"warm-up": "running", "cache": "waiting", "convert": "waiting", "app": "waiting"}
    assert (pod["status"]["phase"], conditions(pod)["Initialized"]) == ("Pending", "False")
    pod = await actor.end("ns", "a", "warm-up")
    ended = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["startedAt"] < ended["finishedAt"]) == (0, True)
    pod = await actor.run("ns", "a")
    assert states(pod) == {"warm-up": "terminated", "cache": "running", "convert": "terminated", "app": "running"}
    assert pod["status"]["phase"] == "Running"
    assert conditions(pod) == dict.fromkeys(("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True")
    times = [one["state"].get("terminated") for one in pod["status"]["initContainerStatuses"]]
    assert times[0]["finishedAt"] < times[2]["startedAt"]


@pytest.mark.parametrize(
    "policy, exit_code, phase",
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded"), ("Always", 0, "Running")],
)
async def test_terminal_phases(client: Client, actor: NodeActor, policy: str, exit_code: int, phase: str) -> None:
    await bound_pod(client, policy=policy)
    await actor.run("ns", "a")
    assert (await actor.finish("ns", "a", exit_code))["status"]["phase"] == phase


async def test_a_pod_has_not_ended_while_a_sidecar_runs(client: Client, actor: NodeActor) -> None:
    await bound_pod(client, policy="Never")
    await actor.run("ns", "a")
    assert (await actor.end("ns", "a", "app"))["status"]["phase"] == "Running"
    assert (await actor.end("ns", "a", "cache", exit_code=143))["status"]["phase"] == "Succeeded"


async def test_a_failed_init_is_restarted_or_ends_the_pod(client: Client, actor: NodeActor) -> None:
    await bound_pod(client)
    await actor.start("ns", "a", "warm-up")
    await actor.end("ns", "a", "warm-up", exit_code=1)
    pod = await actor.set_states("ns", "a", {"warm-up": Waiting("CrashLoopBackOff")})
    first = pod["status"]["initContainerStatuses"][0]
    assert (first["restartCount"], first["lastState"]["terminated"]["exitCode"]) == (1, 1)
    pod = await actor.set_states("ns", "a", {"warm-up": Running(actor.time())})
    assert (pod["status"]["phase"], pod["status"]["initContainerStatuses"][0]["restartCount"]) == ("Pending", 1)


async def test_the_plugin_blanks_rows_and_gives_the_lock_back(client: Client, actor: NodeActor) -> None:
    lock = "2026-11-29T16:18:33Z,ns,a"
    await client.ok("POST", NODES, {"metadata": {"name": "n", "annotations": {NODE_LOCK: lock}}})
    rows = {TO_ALLOCATE: f"{ROW};;;{ROW};", "hami.io/vgpu-devices-allocated": f"{ROW};;;{ROW};"}
    await bound_pod(client, **rows, **{"hami.io/bind-phase": "allocating"})
    await actor.allocate("ns", "a")
    annotations = (await client.ok("GET", f"{PODS}/a"))["metadata"]["annotations"]
    assert annotations[TO_ALLOCATE] == ";;;;;;"
    assert annotations["hami.io/bind-phase"] == "success"
    assert annotations["hami.io/vgpu-devices-allocated"] == rows["hami.io/vgpu-devices-allocated"]
    assert "annotations" not in (await client.ok("GET", f"{NODES}/n"))["metadata"]


async def test_a_lock_of_another_pod_stays(client: Client, actor: NodeActor) -> None:
    await client.ok("POST", NODES, {"metadata": {"name": "n", "annotations": {NODE_LOCK: "2026-11-29T16:18:33Z,ns,b"}}})
    await bound_pod(client, **{TO_ALLOCATE: f"{ROW};"})
    await actor.fail_allocation("ns", "a")
    assert NODE_LOCK in (await client.ok("GET", f"{NODES}/n"))["metadata"]["annotations"]
    assert (await client.ok("GET", f"{PODS}/a"))["metadata"]["annotations"]["hami.io/bind-phase"] == "failed"


def test_rows_are_blanked_as_the_plugin_writes_them() -> None:
    text = f"{ROW};{ROW};"
    assert has_rows(text)
    assert blank_next_row(text) == f";{ROW};;"
    assert blank_next_row(blank_next_row(text)) == ";;;;"
    assert not has_rows(";;;;")
