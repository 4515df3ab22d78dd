"""Where the control plane's programs are searched, and in which order."""

import shutil
from pathlib import Path

import pytest

from tests.e2e import binaries
from tests.e2e.binaries import PACKAGES, NoGo, Unavailable, default_minors, find, minors, pinned_version


def _programs(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in PACKAGES:
        (folder / name).write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)


def test_two_minors_are_pinned_and_the_newest_comes_first() -> None:
    assert len(minors()) >= 2
    assert [pinned_version(minor).startswith(f"{minor}.") for minor in minors()] == [True] * len(minors())
    assert default_minors({}) == [minors()[0], minors()[-1]]


def test_the_assets_come_first(tmp_path: Path) -> None:
    newest = minors()[0]
    assets = _programs(tmp_path / "assets", f"{newest}.99")
    found = find(newest, {"KUBEBUILDER_ASSETS": str(assets), "XDG_CACHE_HOME": str(tmp_path)})
    assert (found.kube_scheduler, found.version) == (assets / "kube-scheduler", f"{newest}.99")


def test_the_assets_say_which_minor_they_are(tmp_path: Path) -> None:
    environment = {"KUBEBUILDER_ASSETS": str(_programs(tmp_path / "assets", "1.99.1"))}
    assert default_minors(environment) == ["1.99"]
    assert find("1.99", environment).minor == "1.99"


def test_assets_without_a_scheduler_are_not_used_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assets = _programs(tmp_path / "assets", "1.99.1")
    (assets / "kube-scheduler").unlink()
    assert default_minors({"KUBEBUILDER_ASSETS": str(assets)}) == [minors()[0], minors()[-1]]
    assert "has no kube-scheduler; not used" in capsys.readouterr().err


@pytest.mark.usefixtures("no_go")
def test_the_cache_comes_second_and_go_last(tmp_path: Path) -> None:
    minor, environment = minors()[0], {"XDG_CACHE_HOME": str(tmp_path)}
    with pytest.raises(NoGo, match="no go to build it with"):
        find(minor, environment)
    digest = binaries._digest(binaries.TOOLCHAIN / minor)
    cached = _programs(tmp_path / "gpu-extender" / "e2e" / f"{pinned_version(minor)}-{digest}", pinned_version(minor))
    assert find(minor, environment).etcd == cached / "etcd"


def test_a_minor_that_nobody_pinned_is_refused() -> None:
    with pytest.raises(Unavailable, match=r"1\.2"):
        find("1.2", {})
