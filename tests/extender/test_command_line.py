"""What the commands show a person: help, bounded tables, lines that fit, templates, pods by name.

They exist because 40,000 lines hide the one that matters. They must not test what is computed. Invariant: JSON has
everything; text is bounded for clusters of any size.
"""

import argparse
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from extender.cli import _parser
from extender.commands import terminal
from extender.commands.terminal import MOST_ROWS, fitted, some, wrapped
from tests.extender.objects import asks, bound, container, listed, node, pod, sidecar
from tests.extender.processes import run

COMMANDS = dict(next(each.choices for each in _parser()._actions if isinstance(each.choices, dict)))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_has_a_text_and_shared_ones_come_last(name: str) -> None:
    command: argparse.ArgumentParser = COMMANDS[name]
    assert [each.dest for each in command._actions if not each.help] == []
    titles = [group.title for group in command._action_groups]
    assert titles[-2:] == ["defaults, as in HAMi's scheduler and device configuration", "cards"]


_POLICIES = {"--node-scheduler-policy", "--gpu-scheduler-policy"}
_REQUESTS = {"--memory-factor", "--default-memory", "--default-cores"}
_NAMES = {"--vendors", "--vendor-config"}
_ALL = _POLICIES | _REQUESTS | _NAMES | {"--expected-workload", "--reserved-memory"}


@pytest.mark.parametrize(
    "name, shown",
    [
        ("serve", _ALL),
        ("explain", _ALL),
        ("account", _REQUESTS | _NAMES),
        ("verify", _REQUESTS | _NAMES | {"--reserved-memory"}),
        ("simulate", _ALL - _POLICIES),
        ("replay", _ALL - {"--expected-workload"}),
        ("webhooks", _NAMES),
        ("scheduler-config", _NAMES),
        ("certs", set()),
        ("completion", set()),
    ],
)
def test_help_shows_the_shared_options_that_matter_to_a_command(name: str, shown: set[str]) -> None:
    command: argparse.ArgumentParser = COMMANDS[name]
    text = command.format_help()
    assert {option for option in _ALL if f" {option}" in text.replace("[", " ")} == shown
    # All commands share one set of flags.
    taken = {option for action in command._actions for option in action.option_strings}
    assert taken >= _ALL


def crowd(path: Path, nodes: int) -> Path:
    pods = [bound(f"p{number}", "n0", "GPU-n0-0", 1) for number in range(30)]
    path.write_text(listed(*(node(f"n{number}", 8) for number in range(nodes)), *pods), encoding="utf-8")
    return path


def test_text_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    cluster = crowd(tmp_path / "cluster.json", 300)
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(pod("q")), encoding="utf-8")
    verify = run("verify", "--cluster", cluster).out.decode()
    assert len(verify.splitlines()) < MOST_ROWS + 50
    assert "... and 2,360 more cards; -o json has them all" in verify
    assert "2400 cards" in verify
    assert verify.splitlines()[1].split()[:2] == ["n0", "GPU-n0-0"]
    explain = run("explain", "-f", manifest, "--cluster", cluster).out.decode()
    assert len(explain.splitlines()) < MOST_ROWS + 10
    assert "... and 260 more nodes that fit; -o json has them all" in explain
    manifest.write_text(json.dumps(pod("q", [container("main", asks(1, 5000))])), encoding="utf-8")
    refused = run("explain", "-f", manifest, "--cluster", cluster).out.decode()
    assert "299 nodes refused: n1, n10, n100, n101, n102 and 294 more" in refused
    assert max(map(len, refused.splitlines())) <= 120


def test_problems_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1"), bound("p", "n1", "GPU-lost")), encoding="utf-8")
    text = run("verify", "--problems", "--cluster", path)
    assert (text.status, text.out.decode().splitlines()[0]) == (1, "1 problem")
    assert "GPU-n1-0" not in text.out.decode()
    assert run("verify", "--problems", "--cluster", path, "-o", "json").json().keys() == {"problems"}
    whole = run("verify", "--cluster", path).out.decode()
    assert "1 card, and 1 held that no node registers any more" in whole


@pytest.mark.parametrize("kind", ["Deployment", "Job", "StatefulSet"])
def test_workloads_are_explained_and_accounted_by_their_template(kind: str, tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x", [container("main", asks(1, 500))])["spec"]}
    manifest = tmp_path / "workload.yaml"
    manifest.write_text(yaml.safe_dump({"kind": kind, "metadata": {"name": "w"}, "spec": {"template": template}}))
    cluster = tmp_path / "cluster.json"
    cluster.write_text(listed(node("n1"), node("n2", memory=400)), encoding="utf-8")
    answer = run("explain", "-f", manifest, "--cluster", cluster, "-o", "json").json()
    assert (answer["pod"], [each["fits"] for each in answer["nodes"]]) == ("default/w", [True, False])
    assert run("account", "-f", manifest, "-o", "json").json()["total"]["peak"]["memory"] == 500
    manifest.write_text(yaml.safe_dump({"kind": kind, "metadata": {"name": "w"}, "spec": {}}))
    assert run("explain", "-f", manifest, "--cluster", cluster).status == 2


def test_a_pod_of_the_cluster_is_explained_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1"), bound("p", "n1", "GPU-n1-0", 900, namespace="team")), encoding="utf-8")
    answer = run("explain", "p", "-n", "team", "--cluster", path, "-o", "json").json()
    assert (answer["pod"], answer["nodes"][0]["fits"]) == ("team/p", True)
    missing = run("explain", "p", "--cluster", path)
    assert (missing.status, missing.out) == (2, b"")
    assert "default/p: there is no such pod" in missing.err
    for wrong in (["explain", "--cluster", str(path)], ["explain", "p", "-f", "x", "--cluster", str(path)]):
        assert run(*wrong).status == 2


def test_a_pod_without_cards_yet_shows_what_each_container_asks_for(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.json"
    containers = [container("main", asks(2, 500, 10)), container("whole", asks(1)), container("none")]
    manifest.write_text(json.dumps(pod("p", containers, inits=[sidecar("side", asks(1, percentage=30))])))
    lines = [line.split() for line in run("account", "-f", manifest).out.decode().splitlines()]
    assert ["main", "app", "2", "cards,", "500", "MiB", "and", "10", "cores", "each"] in lines
    assert ["side", "sidecar", "1", "card,", "30%", "of", "the", "memory"] in lines
    assert ["whole", "app", "1", "card,", "the", "whole", "memory"] in lines
    assert ["none", "app", "-"] in lines


def test_tables_fit_the_terminal(tmp_path: Path) -> None:
    cluster = crowd(tmp_path / "cluster.json", 3)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "extender", "verify", "--cluster", str(cluster)],
        stdout=theirs,
        env=os.environ | {"COLUMNS": "60"},
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how a terminal ends on Linux
            break
        text += part
    os.close(ours)
    assert process.wait() == 1
    assert max(map(len, text.decode().replace("\r", "").splitlines())) <= 60
    assert "…" in text.decode()


def test_widths_and_names() -> None:
    assert fitted([10, 30, 30], 62) == [10, 24, 24]
    assert fitted([10, 30], None) == [10, 30]
    assert fitted([10, 30], 5) == [6, 6]
    assert some(["a", "b"], 2) == "a, b"
    assert some(["a", "b", "c"], 2) == "a, b and 1 more"
    assert wrapped("word " * 40, "  ")[1].startswith("    word")
    assert wrapped("a\x1b[2Jb") == ["a\\x1b[2Jb"]


class _Terminal:
    """Standard error that claims to be a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Do nothing: no output is buffered."""


def test_signs_of_life_come_after_two_seconds_and_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, clock = _Terminal(), iter(range(100))
    monkeypatch.setattr(sys, "stderr", watcher)
    monkeypatch.setattr("extender.commands.terminal.time.monotonic", lambda: next(clock))
    assert list(terminal.watched(range(3), "nodes")) == [0, 1, 2]
    assert "nodes: 3" in watcher.text
    assert "nodes: 2" not in watcher.text
    assert watcher.text.endswith("\r\x1b[K")
    assert list(terminal.watched(range(6), "nodes", 6)) == list(range(6))
    assert "[####################..........] 4 of 6" in watcher.text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete_the_command(shell: str, tmp_path: Path) -> None:
    script = tmp_path / shell
    script.write_bytes(run("completion", shell).out)
    assert "explain" in script.read_text()
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed, so its script is not read by it")
    assert subprocess.run([program, "-n", str(script)], check=False).returncode == 0


@pytest.mark.parametrize(
    "module, words, expected",
    [
        ("extender", "gpu-extender exp", "explain"),
        ("extender", "gpu-extender verify --prob", "--problems"),
        ("extender.kubectl", "kubectl-gpu_extender what", "what-if"),
        ("extender.kubectl", "kubectl-gpu_extender top no", "nodes"),
    ],
)
def test_bash_completes_what_is_typed(module: str, words: str, expected: str, tmp_path: Path) -> None:
    script, name = tmp_path / "script", words.partition(" ")[0]
    script.write_bytes(run("completion", "bash", module=module).out)
    words_of = f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}"
    asking = f'source "$1"; {words_of}; _shtab_{name.replace("-", "_")}; echo "${{COMPREPLY[@]}}"'
    said = subprocess.run(["bash", "-c", asking, "bash", str(script)], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [expected]


@pytest.mark.parametrize("command", ["account", "explain", "simulate"])
def test_a_command_waits_for_nothing_that_it_does_not_need(command: str) -> None:
    code = f"import sys; from extender.cli import _parser; _parser({command!r}); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & {"aiohttp", "kubernetes_asyncio", "extender.server"} == set()
