"""Where the programs that render are looked for."""

import shutil
from pathlib import Path

import pytest

from tests.e2e import clients
from tests.e2e.clients import PACKAGES, main, renderer


def _program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


def _environment(folder: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": str(folder / "bin")}


@pytest.mark.parametrize("name", PACKAGES)
def test_what_was_built_comes_first(tmp_path: Path, name: str) -> None:
    environment = _environment(tmp_path)
    _program(tmp_path / "bin", name)
    built = _program(clients._folder(name, environment), name)
    assert renderer(name, environment) == built


def test_a_kubectl_of_the_machine_renders_and_another_helm_does_not(tmp_path: Path) -> None:
    """Another helm could leave out what it does not know."""
    environment = _environment(tmp_path)
    assert renderer("kubectl", environment) is None
    kubectl, _ = _program(tmp_path / "bin", "kubectl"), _program(tmp_path / "bin", "helm")
    assert (renderer("kubectl", environment), renderer("helm", environment)) == (kubectl, None)


@pytest.mark.parametrize("flags, status", [([], 1), (["--where-possible"], 0)])
def test_without_go_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], status: int
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name, path=None: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(clients, "renderer", lambda _name: None)
    assert main(flags) == status
    assert "there is no go to build it with" in capsys.readouterr().err
