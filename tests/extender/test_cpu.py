"""CPU requests as kube-scheduler counts them."""

import msgspec
import pytest

from extender.config import Settings
from extender.convert.cpu import pod_cpu_milli
from extender.convert.node import convert_node
from extender.convert.pod import convert_pod
from extender.wire import core_v1


def _container(cpu: object, *, sidecar: bool = False, limit: object = None) -> dict:
    resources: dict = {"requests": {} if cpu is None else {"cpu": cpu}}
    if limit is not None:
        resources["limits"] = {"cpu": limit}
    return {"name": "c", "resources": resources} | ({"restartPolicy": "Always"} if sidecar else {})


@pytest.mark.parametrize(
    "spec,milli",
    [
        ({"containers": [_container("1"), _container("250m")]}, 1250),
        ({"containers": [_container(None, limit="2")]}, 2000),
        ({"containers": [_container(1.5)]}, 1500),
        ({"containers": [{"name": "c"}]}, 0),
        ({"containers": [_container("no")]}, 0),
        ({"initContainers": [_container("3")], "containers": [_container("1")]}, 3000),
        ({"initContainers": [_container("1", sidecar=True), _container("3")], "containers": [_container("1")]}, 4000),
        ({"initContainers": [_container("3"), _container("1", sidecar=True)], "containers": [_container("1")]}, 3000),
        ({"containers": [_container("1")], "overhead": {"cpu": "100m"}}, 1100),
        ({"containers": [_container("1")], "resources": {"requests": {"cpu": "5"}}}, 5000),
        ({"containers": [_container("1")], "resources": {"requests": {"memory": "5"}}}, 1000),
    ],
)
def test_pod_cpu_milli(spec: dict, milli: int) -> None:
    assert pod_cpu_milli(msgspec.convert(spec, core_v1.PodSpec)) == milli


@pytest.mark.parametrize("allocatable,milli", [({"cpu": "64"}, 64_000), ({"cpu": "63500m"}, 63_500), ({}, None)])
def test_allocatable(allocatable: dict, milli: int | None) -> None:
    wire = msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}, core_v1.Node)
    assert convert_node(wire, Settings()).cpu_milli == milli


def test_convert_pod_has_it() -> None:
    wire = msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": [_container("2")]}}, core_v1.Pod)
    assert convert_pod(wire, Settings()).cpu_milli == 2000
