"""What helm and kubectl install, on a real API server: it takes every object, keeps Pod Security, and can be upgraded.

It exists because only an API server knows whether it takes an object. There is no kubelet here, so no pod runs: every
installation is one whose image cannot be had, until a test starts what the pods would run. Invariant: what was
installed is gone after the test.
"""

import base64
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from accounting.vendor import NVIDIA
from extender.admission.configurations import Target, configurations
from extender.admission.settings import AdmissionSettings
from tests.e2e.clients import find_client
from tests.e2e.control_plane import ControlPlane
from tests.e2e.language import node_of
from tests.e2e.processes import ROOT, Child, answers, free_ports
from tests.extender.objects import asks, container
from tests.install.rendering import COMPONENTS, INSTALL, MODES, Objects, by_helm, by_kustomize, values_of

pytestmark = pytest.mark.scenario("install")

Json = dict[str, Any]
NAMESPACE = "gpu-system"
#: A machine that does other things beside takes minutes.
_SECONDS = 600
_SECRETS = "/api/v1/namespaces/kube-system/secrets"
_ENFORCE = "pod-security.kubernetes.io/enforce"
#: Kinds of operators that are not there.
_OF_OPERATORS = ("Certificate", "Issuer", "PrometheusRule", "ServiceMonitor")


@pytest.fixture(scope="session")
def kubectl() -> Path:
    return find_client("kubectl")


@pytest.fixture(scope="session")
def helm() -> Path:
    return find_client("helm")


@pytest.fixture
def bare(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane without the roles that other tests need."""
    roles = [each for each in yaml.safe_load_all((INSTALL.parent / "live" / "rbac.yaml").read_text()) if each]
    for each in roles:
        plane.remove(each)
    yield plane
    for each in roles:
        plane.apply(each)


@pytest.fixture
def restricted(bare: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane that keeps Pod Security `restricted` where the extender is installed."""
    for name in (NAMESPACE, "kube-system"):
        _enforce(bare, name, "restricted")
    yield bare
    _enforce(bare, "kube-system", "privileged")


def _enforce(plane: ControlPlane, namespace: str, level: str) -> None:
    labels = {_ENFORCE: level, _ENFORCE.replace("enforce", "warn"): level}
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})


def _run(
    plane: ControlPlane, program: Path, *arguments: str, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(program), f"--kubeconfig={plane.kubeconfig('admin')}", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=False, text=True, timeout=_SECONDS)


def _dry_run(plane: ControlPlane, kubectl: Path, objects: Objects) -> list[str]:
    """Apply all of them on the server without storing anything; the warnings."""
    known = [each for name, each in objects.items() if name.kind not in _OF_OPERATORS]
    flags = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    done = _run(plane, kubectl, *flags, given=yaml.safe_dump_all(known))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("serverside-applied (server dry run)") == len(known)
    return [line for line in done.stderr.splitlines() if "Warning" in line]


@pytest.mark.parametrize("mode", MODES)
def test_the_api_server_takes_every_object(
    restricted: ControlPlane, kubectl: Path, helm: Path, mode: str, tmp_path: Path
) -> None:
    choices = [(), *((name,) for name in COMPONENTS if name != "monitoring"), tuple(COMPONENTS)]
    for components in choices if mode != "embedded" else [()]:
        made = by_kustomize(kubectl, mode, components, tmp_path)
        charted = by_helm(helm, *values_of(mode, components), namespace=NAMESPACE)
        assert len(made) == len(charted)
        for objects in (made, charted):
            warnings = _dry_run(restricted, kubectl, objects)
            assert len(warnings) == (1 if mode == "sidecar" else 0), warnings
            assert all("would violate PodSecurity" in line for line in warnings)


@pytest.mark.parametrize("mode", MODES)
def test_pod_security_restricted_lets_the_pods_in(restricted: ControlPlane, helm: Path, mode: str) -> None:
    objects = by_helm(helm, *values_of(mode, ()), namespace=NAMESPACE)
    for name, spec in _pods(objects):
        status, text = _create(restricted, spec)
        if (mode, name) == ("sidecar", "gpu-extender"):
            # That it is on the node's network, and nothing else.
            assert status == 403
            assert json.loads(text)["message"].partition('"restricted:latest": ')[2] == (
                'host namespaces (hostNetwork=true), hostPort (container "gpu-extender" uses hostPort 9443)'
            )
        else:
            assert status == 201, text
        loose = deepcopy(spec)
        del loose["containers"][0]["securityContext"]["allowPrivilegeEscalation"]
        assert _create(restricted, loose)[0] == 403


def _pods(objects: Objects) -> Iterator[tuple[str, Json]]:
    for name, each in objects.items():
        if "template" in each.get("spec", {}):
            yield name.name, each["spec"]["template"]["spec"]


def _create(plane: ControlPlane, spec: Json) -> tuple[int, str]:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}, "spec": spec}
    return plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", body)


def test_helm_installs_and_upgrades_and_a_failed_install_lets_pods_in(bare: ControlPlane, helm: Path) -> None:
    chart = str(INSTALL.parents[1] / "charts" / "gpu-extender")
    given = ("gpu-extender", chart, f"--namespace={NAMESPACE}")
    try:
        done = _run(bare, helm, "install", *given, "--create-namespace")
        assert done.returncode == 0, done.stderr
        assert "The webhooks are off until the extender answers" in done.stdout
        # Nothing runs here, so this is an installation that has failed.
        assert _webhooks(bare) == 0
        _lets_pods_in(bare)
        _schedules_ordinary_pods(bare)
        # The next version has other images and other flags.
        more = (
            "--set=global.imageTag=9.9.9",
            "--set=scheduler.kubeScheduler.image.tag=v1.99.0",
            "--set=mode=leader-election",
        )
        for change in (more[:1], more[:2], more):
            done = _run(bare, helm, "upgrade", *given, *change)
            assert done.returncode == 0, done.stderr
        _switched_on_stays_on(bare, lambda: _run(bare, helm, "upgrade", *given))
    finally:
        done = _run(bare, helm, "uninstall", "gpu-extender", f"--namespace={NAMESPACE}")
    assert done.returncode == 0, done.stderr
    _nothing_is_left(bare)


@pytest.mark.parametrize("mode", MODES)
def test_kubectl_installs_and_upgrades(bare: ControlPlane, kubectl: Path, mode: str, tmp_path: Path) -> None:
    for tag in ("1.0.0", "2.0.0"):
        folder = tmp_path / tag
        folder.mkdir()
        by_kustomize(kubectl, mode, (), folder)
        path = folder / "kustomization.yaml"
        images = {"images": [{"name": "gpu-extender", "newTag": tag}]}
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | images))
    try:
        for tag in ("1.0.0", "2.0.0"):
            done = _run(bare, kubectl, "apply", "-k", str(tmp_path / tag))
            assert done.returncode == 0, done.stderr
        if mode != "embedded":
            assert _webhooks(bare) == 0
            _lets_pods_in(bare)
            _switched_on_stays_on(bare, lambda: _run(bare, kubectl, "apply", "-k", str(tmp_path / "1.0.0")))
    finally:
        done = _run(bare, kubectl, "delete", "--wait=false", "-k", str(tmp_path / "2.0.0"))
    assert done.returncode == 0, done.stderr
    _nothing_is_left(bare)


def test_webhooks_come_to_life_when_the_extender_answers_and_not_before(
    bare: ControlPlane, kubectl: Path, folder: Path, tmp_path: Path
) -> None:
    """What the two Deployments run, under the accounts that were installed for them."""
    by_kustomize(kubectl, "second-scheduler", (), tmp_path)
    port, webhook_port = free_ports(2)
    address = f"https://127.0.0.1:{webhook_port}"
    certs = ["certs", f"--kubeconfig={bare.kubeconfig('certs')}", "--secret=kube-system/gpu-extender-webhook-tls"]
    certs += ["--host=127.0.0.1", "--webhooks", f"--url={address}"]
    serve = ["serve", f"--kubeconfig={bare.kubeconfig('extender')}", f"--port={port}", f"--webhook-port={webhook_port}"]
    serve += [f"--tls-cert-file={folder / 'tls.crt'}", f"--tls-private-key-file={folder / 'tls.key'}"]
    extender = Child("gpu-extender", [sys.executable, "-m", "extender", *serve], folder / "extender.log")
    try:
        done = _run(bare, kubectl, "apply", "-k", str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert "does not answer, so the webhooks stay off" in ours(*certs, status=2)
        assert _webhooks(bare) == 0
        assert _created(bare, asks(1, 5))["spec"]["schedulerName"] == "default-scheduler"
        secret = yaml.safe_load(bare.request("GET", f"{_SECRETS}/gpu-extender-webhook-tls")[1])
        for name, text in secret["data"].items():
            (folder / name).write_bytes(base64.b64decode(text))
        extender.start()
        ca = ssl.create_default_context(cafile=folder / "ca.crt")
        extender.wait_until(lambda: answers(f"{address}/readyz", ca), "ready", _SECONDS)
        ours(*certs)
        assert _webhooks(bare) == 5
        # The API server reads its webhooks from a cache.
        extender.wait_until(
            lambda: _created(bare, asks(1, 5))["spec"]["schedulerName"] == "gpu-scheduler", "admitting", _SECONDS
        )
        assert _created(bare, {})["spec"]["schedulerName"] == "default-scheduler"
    finally:
        extender.end()
        done = _run(bare, kubectl, "delete", "--wait=false", "-k", str(tmp_path))
        bare.request("DELETE", f"{_SECRETS}/gpu-extender-webhook-tls")
    assert done.returncode == 0, done.stderr
    _nothing_is_left(bare)


def ours(*arguments: str, status: int = 0) -> str:
    """What a command of ours says on standard error."""
    command = [sys.executable, "-m", "extender", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=_SECONDS)
    assert done.returncode == status, done.stderr
    return done.stderr


def _created(plane: ControlPlane, resources: Json) -> Json:
    """What a pod would be, if it were created."""
    spec = {"containers": [container("a", resources)]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    status, text = plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", body)
    assert status == 201, text
    made: Json = json.loads(text)
    return made


def _schedules_ordinary_pods(plane: ControlPlane) -> None:
    """The cluster's own scheduler does, which knows nothing of the extender."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": "default"}}
    where = "/api/v1/namespaces/default/pods/plain"
    plane.apply(node_of("plain", "1 card of 24"))
    plane.apply(pod | {"spec": {"containers": [container("a")], "terminationGracePeriodSeconds": 0}})
    api = "kubescheduler.config.k8s.io/v1"
    election = {"leaderElection": {"leaderElect": False}}
    scheduler = plane.start_scheduler({"apiVersion": api, "kind": "KubeSchedulerConfiguration"} | election)
    try:
        scheduler.wait_until(
            lambda: json.loads(plane.request("GET", where)[1])["spec"].get("nodeName") == "plain",
            "scheduling",
            _SECONDS,
        )
    finally:
        plane.stop_scheduler()
        plane.request("DELETE", f"{where}?gracePeriodSeconds=0")
        plane.request("DELETE", "/api/v1/nodes/plain")


def _lets_pods_in(plane: ControlPlane) -> None:
    """A plain pod, and one with a share of a card."""
    for one in (container("a"), container("a", asks(1, 5))):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [one]}}
        status, text = plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", body)
        assert status == 201, text


def _webhooks(plane: ControlPlane) -> int:
    """How many are on."""
    count = 0
    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gpu-extender"
        status, text = plane.request("GET", path)
        assert status == 200, text
        count += len(yaml.safe_load(text).get("webhooks") or ())
    return count


def _switched_on_stays_on(plane: ControlPlane, apply: Any) -> None:  # noqa: ANN401 - a command to run
    """What `certs --webhooks` has written is not taken away by the next `apply`."""
    for each in configurations((NVIDIA,), AdmissionSettings(), Target()):
        kind = f"{each['kind'].lower()}s"
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/gpu-extender"
        found = yaml.safe_load(plane.request("GET", path)[1])
        status, text = plane.request("PUT", path, found | {"webhooks": each["webhooks"]})
        assert status == 200, text
    done = apply()
    assert done.returncode == 0, done.stderr
    assert _webhooks(plane) == 5


def _nothing_is_left(plane: ControlPlane) -> None:
    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/gpu-extender"
        assert plane.request("GET", path)[0] == 404
    _lets_pods_in(plane)
