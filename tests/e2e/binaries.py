"""Finds etcd, kube-apiserver and kube-scheduler of one Kubernetes minor, or builds them.

It exists because no distribution has all three at a pinned version. It must not start them. Invariants: they are looked
for in KUBEBUILDER_ASSETS (the convention of controller-runtime's envtest, plus kube-scheduler), then in a cache outside
the repository, then built from the Go module proxy as toolchain/<minor>/go.mod pins them; what the cache holds under a
name was built from exactly those files; nothing is ever built into the repository.

    python -m tests.e2e.binaries [MINOR...]     find or build, and say where they are
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

TOOLCHAIN: Final = Path(__file__).with_name("toolchain")
#: Name and main package, the quickest to build first.
PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
_ASSETS: Final = "KUBEBUILDER_ASSETS"
_PROGRESS_SECONDS: Final = 10.0
_OLDEST_GO: Final = (1, 21)


class Binaries(NamedTuple):
    """The three programs, and the version of Kubernetes that they are of."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path
    version: str

    @property
    def minor(self) -> str:
        """Such as 1.37."""
        return ".".join(self.version.split(".")[:2])


class Unavailable(Exception):
    """The programs are not available; the text says why."""


class NoGo(Unavailable):
    """The programs must be built, and there is no Go to build them with."""


def minors() -> list[str]:
    """The minors that can be built, the newest first."""
    found = [path.name for path in TOOLCHAIN.iterdir() if (path / "go.mod").exists()]
    return sorted(found, key=lambda minor: [int(part) for part in minor.split(".")], reverse=True)


def default_minors(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return what runs by default: the minor of KUBEBUILDER_ASSETS, else the newest and the oldest pinned one."""
    assets = _assets(environment)
    return [minors()[0], minors()[-1]] if assets is None else [assets.minor]


def find(minor: str, environment: Mapping[str, str] = os.environ) -> Binaries:
    """Return the programs of a minor, built if need be. Raises Unavailable."""
    assets = _assets(environment)
    if assets is not None and assets.minor == minor:
        return assets
    if minor not in minors():
        raise Unavailable(f"Kubernetes {minor}: neither in {_ASSETS} nor in {TOOLCHAIN.name}/ ({', '.join(minors())})")
    version = pinned_version(minor)
    folder = cache(environment) / f"{version}-{_digest(TOOLCHAIN / minor)}"
    if not _complete(folder):
        _build(minor, version, folder)
    return _binaries(folder, version)


def pinned_version(minor: str) -> str:
    """The version that a minor's go.mod pins, such as 1.37.2."""
    found = re.search(r"^require k8s\.io/kubernetes v(\S+)|^\tk8s\.io/kubernetes v(\S+)", _go_mod(minor), re.MULTILINE)
    if found is None:
        raise Unavailable(f"{TOOLCHAIN.name}/{minor}/go.mod: requires no k8s.io/kubernetes")
    return found[1] or found[2]


def _go_mod(minor: str) -> str:
    return (TOOLCHAIN / minor / "go.mod").read_text()


# ------------------------------------------------------------------------------------------------------------- finding


def _assets(environment: Mapping[str, str]) -> Binaries | None:
    given = environment.get(_ASSETS)
    if not given:
        return None
    folder = Path(given)
    missing = [name for name in PACKAGES if not (folder / name).is_file()]
    if missing:
        # What envtest itself fetches has no kube-scheduler, and versions are not mixed.
        _say(f"{_ASSETS}: {given}: has no {', '.join(missing)}; not used")
        return None
    said = subprocess.run([folder / "kube-apiserver", "--version"], capture_output=True, check=False, text=True).stdout
    found = re.search(r"v(\d+\.\d+\.\d+)", said)
    if found is None:
        _say(f"{_ASSETS}: {given}: kube-apiserver --version says {said.strip()!r}; not used")
        return None
    return _binaries(folder, found[1])


def cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return Path(home) / "gpu-extender" / "e2e"


def _digest(folder: Path) -> str:
    parts = [*((folder / name).read_bytes() for name in ("go.mod", "go.sum")), str(_ldflags("")).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in PACKAGES)


def _binaries(folder: Path, version: str) -> Binaries:
    return Binaries(folder / "etcd", folder / "kube-apiserver", folder / "kube-scheduler", version)


# ------------------------------------------------------------------------------------------------------------ building


def build_program(name: str, package: str, module: Path, folder: Path, ldflags: Sequence[str]) -> Path:
    """The program of a module at folder/name, built if it is not there. Raises Unavailable."""
    target = folder / name
    if not target.is_file():
        go = _go(f"{name} is not in {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder), tempfile.TemporaryDirectory(dir=folder) as work:
            if not target.is_file():
                begun = time.monotonic()
                _say(f"building {name} from the Go module proxy")
                _go_build(go, module, ldflags, package, Path(work) / name)
                (Path(work) / name).rename(target)
                _say(f"built {name}, {time.monotonic() - begun:.0f} s")
    return target


def _build(minor: str, version: str, folder: Path) -> None:
    """Build what is missing, each into its place in one step. Raises Unavailable."""
    go = _go(f"Kubernetes {minor} is neither in {_ASSETS} nor in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder), tempfile.TemporaryDirectory(dir=folder) as work:
        for name, package in PACKAGES.items():
            if (folder / name).is_file():
                continue
            begun = time.monotonic()
            _say(f"building {name} of Kubernetes {version} from the Go module proxy")
            _go_build(go, TOOLCHAIN / minor, _ldflags(version), package, Path(work) / name)
            (Path(work) / name).rename(folder / name)
            _say(f"built {name}, {time.monotonic() - begun:.0f} s")


def _go(why: str) -> str:
    """A go that can fetch the version of itself that a go.mod asks for. Raises NoGo."""
    go = shutil.which("go")
    if go is None:
        raise NoGo(f"{why}, and there is no go to build it with")
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, check=False, text=True).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_GO:
        raise NoGo(f"{why}, and {go} is {said.strip() or 'no go'}: 1.21 or newer is needed")
    return go


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a build: a second run that needs it waits for the first, and finds everything."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_build(go: str, module: Path, ldflags: Sequence[str], package: str, target: Path) -> None:
    command = [go, "build", "-v", "-trimpath", "-ldflags", " ".join(ldflags), "-o", str(target), package]
    environment = os.environ | {"CGO_ENABLED": "0"}
    last: list[str] = []
    packages, said = 0, time.monotonic()
    with subprocess.Popen(
        command, cwd=module, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            last = [*last[-20:], line.rstrip()]
            # `go build -v` names each package when it is compiled.
            packages += " " not in line.strip()
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                _say(f"  {target.name}: {packages} packages compiled, now {line.strip()}")
    if process.returncode:
        text = "\n".join(last)
        raise Unavailable(f"{module.name}: go build {package} failed:\n{text}")


def _ldflags(version: str) -> list[str]:
    """Without symbols; with the version, which a build from source does not know."""
    major, _, rest = version.partition(".")
    stamp = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": rest.partition(".")[0],
        "gitTreeState": "clean",
    }
    return ["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Find or build; exit status 1 if something is not available."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.binaries", description="Find or build a control plane.")
    parser.add_argument("minor", nargs="*", help="such as 1.37; default: all that are pinned")
    try:
        for minor in parser.parse_args(argv).minor or default_minors():
            found = find(minor)
            sys.stdout.write(f"{found.version}: {found.etcd.parent}\n")
    except Unavailable as why:
        sys.stderr.write(f"error: {why}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
