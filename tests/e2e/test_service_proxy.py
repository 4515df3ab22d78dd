"""`kubectl gpu-extender` through the service proxy of a real kube-apiserver, by a user who may do nothing else.

It exists because only the API server itself shows that the Role in the docs is enough, and that the proxy passes on
what the plugin asks. It must not know tables beyond their words. Invariant: the extender, the Service and the Role are
gone when the test is over.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane import ControlPlane
from tests.e2e.processes import ROOT, Child, answers, free_ports
from tests.extender.objects import asks, bound, card, container, listed, node, pod

pytestmark = pytest.mark.scenario("proxy")
Json = dict[str, Any]
_MODEL = "A & B, 10%"
_OBJECTS = [
    node("n1", [card("GPU-1", type=_MODEL)]),
    node("n2"),
    bound("holder", "n1", "GPU-1", 900),
    pod("waits", [container("main", asks(1, 5000))]),
]
_META = {"name": "gpu-extender", "namespace": "kube-system"}


def own_address() -> str:
    """An address of this machine that is not loopback: the API server proxies to no other. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address beside loopback, and the API server proxies to no loopback")
        return str(probe.getsockname()[0])


def service(address: str, port: int) -> list[Json]:
    """A pod, a Service, and what a controller would make of them; older API servers read Endpoints."""
    ports = [{"name": "http", "port": port}]
    target = {"kind": "Pod"} | _META
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _META,
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]},
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": _META, "spec": {"ports": [{"name": "http", "port": 8888}]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _META | {"labels": {"kubernetes.io/service-name": "gpu-extender"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "targetRef": target}],
        },
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": _META,
            "subsets": [{"addresses": [{"ip": address, "targetRef": target}], "ports": ports}],
        },
    ]


def run_pod(plane: ControlPlane, address: str) -> None:
    """Say what a kubelet would: the API server proxies to addresses of pods only."""
    path = "/api/v1/namespaces/kube-system/pods/gpu-extender"
    pod_object = yaml.safe_load(plane.request("GET", path)[1])
    pod_object["status"] = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    status, text = plane.request("PUT", f"{path}/status", pod_object)
    assert status == 200, text


def documented_role() -> list[Json]:
    """The Role of docs/kubectl.md, bound to the user."""
    found = re.search(r"\n((?:    .*\n)+)", (ROOT / "docs" / "kubectl.md").read_text())
    assert found is not None
    role = yaml.safe_load(found[1])
    assert role["kind"] == "Role"
    binding = {
        "apiVersion": role["apiVersion"],
        "kind": "RoleBinding",
        "metadata": role["metadata"],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
    }
    return [role, binding]


@pytest.fixture
def proxied(plane: ControlPlane, folder: Path) -> Iterator[Path]:
    """The kubeconfig of somebody who has the documented Role, beside an extender behind a Service."""
    address, (port,) = own_address(), free_ports(1)
    cluster = folder / "cluster.json"
    cluster.write_text(listed(*_OBJECTS))
    flags = ["--cluster", str(cluster), "--bind-address", address, "--port", str(port)]
    process = Child("gpu-extender", [sys.executable, "-m", "extender", "serve", *flags], folder / "extender.log")
    objects = [*service(address, port), *documented_role()]
    try:
        process.start()
        process.wait_until(lambda: answers(f"http://{address}:{port}/readyz"), "ready", 120.0)
        for each in objects:
            plane.apply(each)
        run_pod(plane, address)
        yield plane.kubeconfig("reader")
    finally:
        for each in objects:
            plane.remove(each)
        process.end()


def plugin(kubeconfig: Path, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "extender.kubectl", *arguments],
        cwd=ROOT,
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.quick
def test_every_verb_works_with_the_documented_role_alone(proxied: Path, plane: ControlPlane) -> None:
    status, nodes, error = plugin(proxied, "top", "nodes", "--model", _MODEL, "--context", "e2e")
    assert (status, error) == (0, ""), error
    assert [line.split()[0] for line in nodes.splitlines()] == ["NODE", "n1"]
    for arguments, expected, said in (
        (["top", "pods"], 0, "holder"),
        (["why", "waits", "-n", "default"], 0, "no node would take it even with every pod gone"),
        (["verify", "--problems"], 0, "No problems."),
        (["usage"], 0, "default"),
    ):
        status, out, error = plugin(proxied, *arguments)
        assert (status, error) == (expected, ""), arguments
        assert said in out, arguments
    manifest = yaml.safe_dump(pod("small", [container("main", asks(1, 50))]))
    status, out, error = plugin(proxied, "what-if", "-f", "-", stdin=manifest)
    assert (status, error) == (0, "")
    assert "would go to n" in out
    status, out, error = plugin(proxied, "why", "nobody", "-n", "default")
    assert (status, out) == (2, "")
    assert "404 pod: default/nobody: not found" in error
    # The Role permits only this path.
    status, out, error = plugin(proxied, "top", "nodes", "--service", "another")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert "403" in error
