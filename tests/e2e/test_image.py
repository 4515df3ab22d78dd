"""The image's root file system, started as the kubelet would start the container of the manifests, and asked.

It exists because a container engine is not everywhere, and an image that nobody started is a guess. It must not use the
checkout's environment. Invariants: the root is read-only, the user is 65532 without capabilities and cannot gain any,
the arguments are those of the manifests, and all that can be written is the volume `run`. Needs root, mmdebstrap and
Debian's package archive.
"""

import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane import ControlPlane
from tests.e2e.processes import ROOT, Child, free_ports
from tests.install.rendering import INSTALL

pytestmark = [pytest.mark.scenario("image"), pytest.mark.timeout(1800)]

Json = dict[str, Any]
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
root=$1
shift 2
exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid \\
    chroot --userspec=65532:65532 --groups= "$root" "$@"
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
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    missing = [name for name in ("mmdebstrap", "setpriv", "strip", "unshare") if shutil.which(name) is None]
    if os.getuid() != 0 or missing:
        pytest.skip(
            f"needs root and {', '.join(missing) or 'nothing else'} (Debian: apt-get install binutils mmdebstrap)"
        )
    work = tmp_path_factory.mktemp("image")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-twheel", "-d", work], cwd=ROOT, check=True)
    (wheel,) = work.glob("*.whl")
    target = work / "rootfs"
    subprocess.run([ROOT / "image" / "rootfs.sh", target, wheel, "bookworm"], check=True)
    for folder in ("etc/gpu-extender/tls", "var/run/secrets/kubernetes.io/serviceaccount", "var/run/gpu-extender"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    yield target
    shutil.rmtree(target)


def entered(rootfs: Path, volumes: Path, *command: str) -> list[str]:
    """The command that runs another one in the container."""
    for name in ("tls", "account", "run"):
        (volumes / name).mkdir(parents=True, exist_ok=True)
    os.chown(volumes / "run", 65532, 65532)
    isolated = ["unshare", "--mount", "--propagation=private", "--fork", "--kill-child"]
    return [*isolated, "sh", "-c", _ENTER, "sh", str(rootfs), str(volumes), *command]


def test_it_is_small(rootfs: Path, figures: dict[str, Any], tmp_path: Path) -> None:
    unpacked = sum(each.stat().st_size for each in rootfs.rglob("*") if each.is_file() and not each.is_symlink())
    with tarfile.open(tmp_path / "layer.tar.gz", "w:gz") as archive:
        archive.add(rootfs, ".")
    packed = (tmp_path / "layer.tar.gz").stat().st_size
    figures["image"] = {"MB unpacked": round(unpacked / _MB), "MB packed": round(packed / _MB)}
    sys.stdout.write(f"{figures['image']}\n")
    assert unpacked / _MB < _MOST_MB


def test_it_runs_as_nobody_on_a_root_that_cannot_be_written(rootfs: Path, tmp_path: Path) -> None:
    command = entered(rootfs, tmp_path, "/usr/bin/python3", "-c", _PROBE)
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


def test_only_the_lock_is_installed(rootfs: Path) -> None:
    locked = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "image" / "requirements.lock").read_text().splitlines()
        if "==" in line
    }
    found = {each.name.partition("-")[0].lower().replace("_", "-") for each in (rootfs / "opt").rglob("*.dist-info")}
    assert found == locked | {"gpu-extender"}


def test_it_serves_the_example_by_the_arguments_of_a_laptop(rootfs: Path, tmp_path: Path) -> None:
    (deployment, _) = yaml.safe_load_all((INSTALL / "embedded" / "deployment.yaml").read_text())
    (port,) = free_ports(1)
    changed: Json = {"--port": port, "--bind-address": "127.0.0.1"}
    child = _contained(rootfs, tmp_path, _arguments(deployment, changed), {})
    child.start()
    try:
        child.wait_until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"), "ready", 120)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/nodes") as response:
            assert len(json.load(response)) == 14
    finally:
        child.end()


def _arguments(deployment: Json, changed: Json) -> list[str]:
    given = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return [f"{name}={changed.get(name, value)}" if value else name for name, _, value in map(_parts, given)]


def _contained(rootfs: Path, folder: Path, arguments: list[str], environment: dict[str, str]) -> Child:
    """The program in the container, not started yet."""
    variables = environment | {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin"}
    clean = [str(shutil.which("env")), "-i", *(f"{name}={value}" for name, value in variables.items())]
    command = entered(rootfs, folder, "/usr/local/bin/gpu-extender", *arguments)
    return Child("image", [*clean, *command], folder / "log")


def test_it_serves_by_the_arguments_of_the_manifests(rootfs: Path, plane: ControlPlane, tmp_path: Path) -> None:
    (deployment, _) = yaml.safe_load_all((INSTALL / "base" / "deployment.yaml").read_text())
    port, webhooks = free_ports(2)
    changed = {"--port": port, "--webhook-port": webhooks, "--webhook-bind-address": "127.0.0.1", "--shutdown-delay": 0}
    host, _, api = plane.url.removeprefix("https://").rpartition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": api, "POD_NAME": "x", "POD_UID": "y"}
    child = _contained(rootfs, tmp_path, _arguments(deployment, changed), environment)
    for name, text in (("token", "extender-token"), ("namespace", "kube-system")):
        (tmp_path / "account" / name).write_text(text)
    shutil.copy(plane.certificate, tmp_path / "account" / "ca.crt")
    _certificate(tmp_path / "tls")
    child.start()
    try:
        context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.crt")
        child.wait_until(lambda: _answers(f"https://127.0.0.1:{webhooks}/readyz", context), "ready", 120)
        child.wait_until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"), "leading", 120)
        assert (tmp_path / "run" / "lock").stat().st_uid == 65532
    finally:
        child.end()


def _parts(flag: str) -> tuple[str, str, str]:
    return flag.partition("=")


def _certificate(folder: Path) -> None:
    command = [sys.executable, "-m", "extender", "certs", "--directory", str(folder), "--host", "127.0.0.1"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for each in folder.iterdir():
        os.chown(each, 65532, 65532)


def _answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1, context=context) as response:  # noqa: S310 - loopback
            return bool(response.status == 200)
    except OSError:
        return False
