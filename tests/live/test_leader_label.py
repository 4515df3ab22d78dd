"""The label by which a Service finds the leader is on one pod at a time, whichever is killed.

It exists because without it a Service of the verbs has no endpoints. It must not look at a Service. Invariant: a
replica that leads gets the label, and then no other has it.
"""

from dataclasses import replace

import pytest

from extender.cli import main
from extender.live.leading import LeaseSettings, OwnPod
from extender.live.leading.label import LABEL
from extender.live.settings import LiveSettings
from tests.apiserver.server import ApiServer
from tests.extender.objects import node, pod
from tests.live.harness import Extender, Kube, eventually, live_settings

LEASE = LeaseSettings(duration_seconds=1.0, retry_seconds=0.05, write_deadline_seconds=0.2)
PODS = ("replica-a", "replica-b")


def settings(name: str) -> LiveSettings:
    return replace(live_settings(), lease=LEASE, leader_elect=True, identity=name, labelled_pod=OwnPod("default", name))


def labelled(kube: Kube) -> list[str]:
    """Return the pods with the label."""
    objects = (kube.send("GET", f"/api/v1/namespaces/default/pods/{name}") for name in PODS)
    return [each["metadata"]["name"] for each in objects if LABEL in each["metadata"].get("labels", {})]


async def test_the_label_is_where_the_leader_is(capsys: pytest.CaptureFixture[str]) -> None:
    async with ApiServer() as api:
        api.load([node("n1"), *(pod(name) for name in PODS)])
        kube = Kube(api)
        first = await Extender.boot(api.url, settings("replica-a"))
        await eventually(lambda: labelled(kube) == ["replica-a"], "the first has the label")
        second = await Extender.boot(api.url, settings("replica-b"))
        await eventually(second.live.is_synced)
        assert labelled(kube) == ["replica-a"]
        # A killed replica cannot take its label off.
        await first.kill()
        await eventually(lambda: labelled(kube) == ["replica-b"], "the second alone has the label")
        again = await Extender.boot(api.url, settings("replica-a"))
        await eventually(again.live.is_synced)
        assert labelled(kube) == ["replica-b"]
        await second.kill()
        await again.kill()


async def test_a_label_that_cannot_be_written_is_tried_again() -> None:
    async with ApiServer() as api:
        api.load([node("n1"), *(pod(name) for name in PODS)])
        kube = Kube(api)
        refused = api.faults.add(fault="status", code=500, verb="patch", resource="pods", times=2)
        extender = await Extender.boot(api.url, settings("replica-a"))
        await eventually(lambda: labelled(kube) == ["replica-a"])
        assert refused.hits == 2
        await extender.kill()


def test_without_a_pod_it_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setenv("POD_NAMESPACE", "default")
    assert main(["serve", "--in-cluster", "--leader-label"]) == 2
    assert "error: --leader-label: default/: POD_NAMESPACE and POD_NAME: " in capsys.readouterr().err
