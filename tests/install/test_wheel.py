"""The wheel in an environment of its own: everything that is needed is in it, and it runs from any folder.

It exists because a checkout hides what a wheel lacks. It must not import the code under test. Dependencies are those of
this environment, seen by a path, so that nothing is fetched; tests/e2e/image.py installs them from the lock file.
Invariant: the processes run in an empty folder, and the checkout is not on their path.
"""

import json
import os
import re
import signal
import site
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from extender import __version__

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).resolve().parents[2]


class Installed(NamedTuple):
    """An environment with the wheel in it."""

    folder: Path
    wheel: Path
    sdist: Path

    @property
    def packages(self) -> Path:
        (found,) = (self.folder / "lib").glob("python*/site-packages")
        return found

    def command(self, *arguments: str) -> list[str]:
        return [str(self.folder / "bin" / arguments[0]), *arguments[1:]]

    def run(self, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder / "elsewhere",
            env=environment(path),
            capture_output=True,
            check=False,
            text=True,
        )


def environment(path: str = "") -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | ({"PYTHONPATH": path} if path else {})


def build(source: Path, target: Path, *kinds: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target), *(f"-t{kind}" for kind in kinds)],
        cwd=source,
        capture_output=True,
        check=True,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    work = tmp_path_factory.mktemp("wheel")
    build(ROOT, work / "dist", "sdist", "wheel")
    (wheel,), (sdist,) = (work / "dist").glob("*.whl"), (work / "dist").glob("*.tar.gz")
    venv.create(work / "venv", with_pip=False, symlinks=True)
    made = Installed(work / "venv", wheel, sdist)
    (made.folder / "elsewhere").mkdir()
    # A path that is added so is not searched for further .pth files, such as that of an editable installation.
    (made.packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", str(made.folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    return made


def test_the_version_is_that_of_the_package(installed: Installed) -> None:
    assert installed.wheel.name == f"gpu_extender-{__version__}-py3-none-any.whl"
    assert installed.run("gpu-extender", "--version").stdout == f"gpu-extender {__version__}\n"
    where = installed.run("python", "-c", "import extender, accounting; print(extender.__file__, accounting.__file__)")
    assert all(Path(each).is_relative_to(installed.packages) for each in where.stdout.split())


@contextmanager
def serving(installed: Installed) -> Iterator[str]:
    process = subprocess.Popen(
        installed.command("gpu-extender", "serve", "--port=0"),
        cwd=installed.folder / "elsewhere",
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def get(url: str) -> str:
    with urllib.request.urlopen(url) as response:  # noqa: S310 - a URL of loopback
        text: str = response.read().decode()
        return text


def test_it_serves_from_any_folder_and_has_its_page_and_its_example(installed: Installed) -> None:
    with serving(installed) as url:
        page = get(f"{url}/")
        parts = re.findall(r'(?:src|href)="/?(page/[^"]+)"', page)
        assert parts
        assert all(get(f"{url}/{part}") for part in parts)
        assert len(json.loads(get(f"{url}/api/v1/nodes"))) == 14
        assert get(f"{url}/readyz") == "ok"
        assert json.loads(get(f"{url}/openapi.json"))["info"]["version"] == __version__


@pytest.mark.parametrize(
    "command",
    [("scheduler-config",), ("webhooks",), ("explain", "-f", "-", "--cluster", "-"), ("kubectl-gpu_extender",)],
    ids=lambda command: command[0],
)
def test_every_command_finds_what_it_needs(installed: Installed, command: tuple[str, ...]) -> None:
    name = command if command[0].startswith("kubectl") else ("gpu-extender", command[0])
    arguments = ("--help",) if len(command) > 1 or command[0].startswith("kubectl") else ()
    done = installed.run(*name, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_source_distribution_gives_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    # tarfile's filters are newer than Python 3.11.2, which is Debian 12's.
    subprocess.run(["tar", "--extract", "--file", installed.sdist, "--directory", tmp_path], check=True)
    (source,) = tmp_path.iterdir()
    assert not (source / "tests").exists()
    build(source, tmp_path / "dist", "wheel")
    (again,) = (tmp_path / "dist").glob("*.whl")
    assert names(again) == names(installed.wheel)


def names(wheel: Path) -> list[tuple[str, int]]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted((each.filename, each.CRC) for each in archive.infolist())


# -- foreign packages of our names -------------------------------------------------------------------------------------


def test_it_refuses_to_share_a_folder_with_a_foreign_package_of_its_name(installed: Installed) -> None:
    foreign = installed.packages / "ledgers-2.0.dist-info"
    foreign.mkdir()
    (foreign / "RECORD").write_text("accounting/ledger.py,,\nledgers-2.0.dist-info/RECORD,,\n")
    try:
        for name in ("gpu-extender", "kubectl-gpu_extender"):
            done = installed.run(name, "--version")
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
            assert done.stderr.startswith(f"error: distribution ledgers-2.0: {installed.packages.resolve()}: ")
        (foreign / "RECORD").write_text("accounting_tools/ledger.py,,\nmy/accounting/ledger.py,,\n")
        assert installed.run("gpu-extender", "--version").returncode == 0
    finally:
        (foreign / "RECORD").unlink()
        foreign.rmdir()


def test_it_refuses_a_foreign_package_that_is_found_first(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "accounting").mkdir()
    (tmp_path / "accounting" / "__init__.py").write_text("raise SystemExit('foreign code ran')\n")
    done = installed.run("gpu-extender", "--version", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: package accounting: {tmp_path.resolve() / 'accounting'}: ")
