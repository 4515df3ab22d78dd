"""The image's root file system, started as the kubelet would start the container of the manifests, and asked.

It exists because a container engine is not everywhere, and an image that nobody started is a guess. It must not use the
checkout's environment. Invariants: the root file system is what image/Containerfile gives; the root is read-only, the
user is 65532 without capabilities and cannot gain any, the arguments are those of the manifests, and all that can be
written is the volume `run`. Needs root, mmdebstrap and Debian's package archive.
"""

import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import __version__
from tests.e2e.containerfile import Image, build, missing_programs
from tests.e2e.control_plane import ControlPlane
from tests.e2e.processes import ROOT, Child, answers, free_ports
from tests.install.rendering import INSTALL

pytestmark = [pytest.mark.scenario("image"), pytest.mark.timeout(1800)]

Json = dict[str, Any]
_CONTAINERFILE = ROOT / "image" / "Containerfile"
_SBOM = "usr/share/gpu-extender/sbom.cdx.json"
_MB = 10**6
_MOST_MB = 150
#: Mounts that a container has beside its volumes, then the program as its user, who cannot become another.
_ENTER = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t proc proc "$1/proc"
mount --bind "$2/tls" "$1/etc/gpu-extender/tls"
mount --bind "$2/account" "$1/var/run/secrets/kubernetes.io/serviceaccount"
mount --bind "$2/run" "$1/var/run/gpu-extender"
mount -o remount,bind,ro "$1/etc/gpu-extender/tls"
mount -o remount,bind,ro "$1/var/run/secrets/kubernetes.io/serviceaccount"
shift 2
exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid env -i "$@"
"""
#: What a process in the container must find: who it is, what it may, and where it can write.
_PROBE = """
import os, sys
said = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
written = []
for folder in ("/", "/tmp", "/opt/gpu-extender", "/etc/gpu-extender/tls", "/var/run/gpu-extender"):
    try:
        open(folder + "/tried", "w").close(); written.append(folder)
    except OSError:
        pass
print({"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "effective": said["CapEff"].strip(),
       "no new privileges": said["NoNewPrivs"].strip(), "written": written, "shell": os.path.exists("/bin/sh")})
"""


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, figures: dict[str, Any]) -> Iterator[Image]:
    missing = [f"the package {name}" for name in missing_programs(_CONTAINERFILE)]
    missing += [f"the program {name}" for name in ("make", "setpriv", "unshare") if shutil.which(name) is None]
    if os.getuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}")
    context, work = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("image")
    (context / "image").symlink_to(_CONTAINERFILE.parent)
    # The wheel and the SBOM, as before `make image`.
    making = ["make", "--no-print-directory", "wheel", f"VENV={sys.prefix}", f"DIST={context / 'dist'}"]
    subprocess.run(making, cwd=ROOT, check=True)
    begun = time.monotonic()
    made = build(_CONTAINERFILE, context, work)
    figures["image"] = {"seconds to build": round(time.monotonic() - begun)}
    for folder in ("etc/gpu-extender/tls", "var/run/secrets/kubernetes.io/serviceaccount", "var/run/gpu-extender"):
        (made.root / folder).mkdir(parents=True, exist_ok=True)
    yield made
    shutil.rmtree(work)


@pytest.fixture
def rootfs(image: Image) -> Path:
    return image.root


def entered(image: Image, volumes: Path, *command: str, environment: dict[str, str] | None = None) -> list[str]:
    """The command that runs another one in the container, with the image's environment and this one."""
    for name in ("tls", "account", "run"):
        (volumes / name).mkdir(parents=True, exist_ok=True)
    os.chown(volumes / "run", 65532, 65532)
    variables = [f"{name}={value}" for name, value in (image.environment | (environment or {})).items()]
    chroot = [str(shutil.which("chroot")), f"--userspec={image.user}", "--groups=", str(image.root)]
    # One process after another under one id, so that a signal reaches the program.
    isolated = ["unshare", "--mount", "--propagation=private", "sh", "-c", _ENTER, "sh"]
    return [*isolated, str(image.root), str(volumes), *variables, *chroot, *command]


def test_it_is_small(rootfs: Path, figures: dict[str, Any], tmp_path: Path) -> None:
    unpacked = sum(each.stat().st_size for each in rootfs.rglob("*") if each.is_file() and not each.is_symlink())
    with tarfile.open(tmp_path / "layer.tar.gz", "w:gz") as archive:
        archive.add(rootfs, ".")
    packed = (tmp_path / "layer.tar.gz").stat().st_size
    figures["image"] |= {"MB unpacked": round(unpacked / _MB), "MB packed": round(packed / _MB)}
    assert unpacked / _MB < _MOST_MB


def test_it_runs_as_nobody_on_a_root_that_cannot_be_written(image: Image, tmp_path: Path) -> None:
    command = entered(image, tmp_path, "/usr/bin/python3", "-c", _PROBE)
    said = subprocess.run(command, capture_output=True, check=False, text=True)
    assert said.returncode == 0, said.stderr
    assert yaml.safe_load(said.stdout) == {
        "uid": 65532,
        "gid": 65532,
        "groups": [],
        "effective": "0000000000000000",
        "no new privileges": "1",
        "written": ["/var/run/gpu-extender"],
        "shell": False,
    }


def locked() -> dict[str, str]:
    """Name and version of each locked dependency."""
    lines = (ROOT / "image" / "requirements.lock").read_text().splitlines()
    return {
        _plain(name): version.split()[0] for name, _, version in (line.partition("==") for line in lines) if version
    }


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


def test_only_the_lock_is_installed(rootfs: Path) -> None:
    parts = (each.name.removesuffix(".dist-info").rpartition("-") for each in (rootfs / "opt").rglob("*.dist-info"))
    found = {_plain(name): version for name, _, version in parts}
    assert found == locked() | {"gpu-extender": __version__}


def test_the_sbom_lists_what_is_in_it(rootfs: Path) -> None:
    text = (rootfs / _SBOM).read_text()
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    bom = json.loads(text)
    assert JsonStrictValidator(SchemaVersion.from_version(bom["specVersion"])).validate_str(text) is None
    assert (bom["metadata"]["component"]["name"], bom["metadata"]["component"]["type"]) == (
        "gpu-extender",
        "application",
    )
    kinds: Json = {"pypi": {}, "deb": {}}
    for each in bom["components"]:
        kinds[each["purl"].partition("/")[0].removeprefix("pkg:")][_plain(each["name"])] = each["version"]
    assert kinds["pypi"] == locked()
    # What Python and its libraries come from, and nothing of what only unpacking needs.
    assert {"ca-certificates", "libc6", "libssl3", "libstdc++6", "python3-11-minimal"} <= kinds["deb"].keys()
    assert not {"apt", "bash", "debconf", "dpkg", "tar"} & kinds["deb"].keys()


def test_it_is_started_as_the_manifests_say(image: Image) -> None:
    """What runs it here is what the pods' security contexts ask for."""
    (deployment, _) = yaml.safe_load_all((INSTALL / "base" / "deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    assert (
        image.user == f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == "65532:65532"
    )
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert image.entrypoint == ["gpu-extender"]
    folders = image.environment["PATH"].split(":")
    assert any((image.root / folder.lstrip("/") / "gpu-extender").is_file() for folder in folders)
    assert (image.root / image.environment["SSL_CERT_FILE"].lstrip("/")).read_text().count("BEGIN CERTIFICATE") > 50


def test_it_serves_the_example_by_the_arguments_of_a_laptop(image: Image, tmp_path: Path) -> None:
    (deployment, _) = yaml.safe_load_all((INSTALL / "embedded" / "deployment.yaml").read_text())
    (port,) = free_ports(1)
    changed: Json = {"--port": port, "--bind-address": "127.0.0.1"}
    child = _contained(image, tmp_path, _arguments(deployment, changed), {})
    child.start()
    try:
        child.wait_until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "ready", 120)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/nodes") as response:
            assert len(json.load(response)) == 14
    finally:
        child.end()
    assert not answers(f"http://127.0.0.1:{port}/livez")


def _arguments(deployment: Json, changed: Json) -> list[str]:
    given = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return [f"{name}={changed.get(name, value)}" if value else name for name, _, value in map(_parts, given)]


def _contained(image: Image, folder: Path, arguments: list[str], environment: dict[str, str]) -> Child:
    """The program in the container, not started yet."""
    command = entered(image, folder, *image.entrypoint, *arguments, environment=environment)
    return Child("image", [str(shutil.which(command[0])), *command[1:]], folder / "log")


def test_it_serves_by_the_arguments_of_the_manifests(image: Image, plane: ControlPlane, tmp_path: Path) -> None:
    (deployment, _) = yaml.safe_load_all((INSTALL / "base" / "deployment.yaml").read_text())
    port, webhooks = free_ports(2)
    changed = {"--port": port, "--webhook-port": webhooks, "--webhook-bind-address": "127.0.0.1", "--shutdown-delay": 0}
    host, _, api = plane.url.removeprefix("https://").rpartition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": api, "POD_NAME": "x", "POD_UID": "y"}
    child = _contained(image, tmp_path, _arguments(deployment, changed), environment)
    for name, text in (("token", "extender-token"), ("namespace", "kube-system")):
        (tmp_path / "account" / name).write_text(text)
    shutil.copy(plane.certificate, tmp_path / "account" / "ca.crt")
    _certificate(tmp_path / "tls")
    child.start()
    try:
        context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.crt")
        child.wait_until(lambda: answers(f"https://127.0.0.1:{webhooks}/readyz", context), "ready", 120)
        child.wait_until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "leading", 120)
        assert (tmp_path / "run" / "lock").stat().st_uid == 65532
    finally:
        child.end()
    assert not answers(f"http://127.0.0.1:{port}/livez")


def _parts(flag: str) -> tuple[str, str, str]:
    return flag.partition("=")


def _certificate(folder: Path) -> None:
    command = [sys.executable, "-m", "extender", "certs", "--directory", str(folder), "--host", "127.0.0.1"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for each in folder.iterdir():
        os.chown(each, 65532, 65532)
