"""Logs have one format, no terminal control codes, and no floods.

It exists because names and annotations that strangers write end up in the terminal of the person on call. It must not
depend on the wording of messages. Invariant: as JSON every line is an object; as text no line has a control character,
and only the first line of an entry looks like one.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from extender.cli import main
from extender.log_repeats import BURST, WINDOW_SECONDS, Repeats, RepeatsCollector
from extender.printable import cut, printable
from tests.extender.objects import bound, listed, node, pod
from tests.extender.processes import ROOT, served
from tests.extender.serving import serving

EVIL = "x\x1b[2J\x1b]0;gone\x07\r\n2026-11-30T08:00:00Z [error    ] forged\u202e\x9b31m\u2028end"
#: The beginning of an entry in text logs.
ENTRY = re.compile(r"^\S*\d{4}-\d\d-\d\dT\S+ \[")


def logged(program: str, *, as_json: bool, level: str = "info") -> list[str]:
    """Return what a process logs that runs these statements."""
    lines = [
        "from extender.logs import announce, configure_logs, every_line, logger, take_over_the_process",
        f"configure_logs(json={as_json}, level={level!r})",
        "take_over_the_process()",
        f"EVIL = {EVIL!r}",
        program,
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, check=False)
    return done.stderr.decode().split("\n")[:-1]


@given(st.text())
def test_what_is_printable_is_one_line_without_control_characters_and_stays_so(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert shown == text or not text.isprintable()


def test_ordinary_text_is_left_as_it_is() -> None:
    assert printable("nodé-1 50 % c:\\x") == "nodé-1 50 % c:\\x"
    assert printable("a\x1b[2J\nb\u202e") == "a\\x1b[2J\\nb\\u202e"
    assert cut("a" * 10, 10) == "a" * 10
    assert cut("a" * 11, 10) == f"{'a' * 10}... (11 characters)"


def test_whatever_is_logged_is_one_entry_in_the_format_that_is_set() -> None:
    programs = [
        "logger().warning('a', name=EVIL)",
        "logger().warning('b', names=[EVIL], nested={EVIL: EVIL})",
        "logger().warning('c', **{EVIL: 1})",
        "logger().warning(EVIL)",
        "try: raise ValueError(EVIL)\nexcept ValueError: logger().exception('d', name=EVIL)",
        "import logging; logging.getLogger('a.library').error('%s', EVIL)",
        "logging.getLogger('a.library').error('%d', EVIL)",
        "import warnings; warnings.warn(EVIL)",
        "import threading\ndef bug(): raise ValueError(EVIL)\nt = threading.Thread(target=bug); t.start(); t.join()",
        "class A:\n def __del__(self): raise ValueError(EVIL)\na = A(); del a",
        # Ends the process.
        "raise ValueError(EVIL)",
    ]
    text = logged("\n".join(programs), as_json=False)
    assert [line for line in text if not line.isprintable()] == []
    assert len([line for line in text if ENTRY.match(line)]) == len(programs)
    lines = logged("\n".join(programs), as_json=True)
    assert len(lines) == len(programs)
    assert all({"event", "level", "timestamp"} <= json.loads(line).keys() and line.isascii() for line in lines)


def test_a_long_value_is_cut() -> None:
    (line,) = logged("logger().warning('message', name='a' * 300_000)", as_json=False)
    assert len(line) < 2_200
    assert "(300000 characters)" in line


@pytest.mark.parametrize("loss", ["sys.stderr.close()", "os.close(2)", "sys.stderr = None"])
def test_a_line_that_cannot_be_written_fails_nothing(loss: str) -> None:
    """A request that logs is answered even if the reader of the log is gone."""
    program = f"""
import os, sys
from extender.logs import configure_logs, logger
configure_logs(json=True)
{loss}
logger().warning("a")
try:
    raise ValueError
except ValueError:
    logger().exception("b")
print("answered")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"answered\n", b"")


@pytest.mark.parametrize("level, shown", [("debug", "abcd"), ("warning", "cd")])
def test_the_level_says_what_is_logged(level: str, shown: str) -> None:
    program = "l = logger(); l.debug('a'); l.info('b'); l.warning('c'); l.error('d')"
    assert [json.loads(line)["event"] for line in logged(program, as_json=True, level=level)] == list(shown)


# -- repeats -----------------------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def written(repeats: Repeats, message: str = "m", **values: Any) -> dict[str, Any] | None:  # noqa: ANN401
    try:
        return dict(repeats(None, "warning", {"event": message, **values}))
    except structlog.DropEvent:
        return None


def test_of_equal_lines_the_first_are_written_and_the_next_one_later_says_how_many_were_not() -> None:
    clock = Clock()
    repeats = Repeats(clock)
    lines = [written(repeats, number=number) for number in range(BURST + 7)]
    assert [line is not None for line in lines] == [True] * BURST + [False] * 7
    assert written(repeats, "another") == {"event": "another"}
    clock.now += WINDOW_SECONDS
    assert written(repeats) == {"event": "m", "left_out": 7}
    assert written(repeats) == {"event": "m"}
    registry = CollectorRegistry()
    registry.register(RepeatsCollector(repeats))
    assert b'gpu_extender_log_lines_left_out_total{message="m"} 7.0' in generate_latest(registry)


def test_lines_of_which_each_counts_are_all_written() -> None:
    repeats = Repeats(Clock())
    lines = [written(repeats, every_line=True) for _ in range(10 * BURST)]
    assert lines == [{"event": "m"}] * (10 * BURST)


async def test_hundreds_of_bad_requests_make_some_lines_of_log_and_are_counted() -> None:
    with served("--log-format", "text") as server:
        for number in range(200):
            await server.post("/filter", {"Pod": None, "x": number})
        lines = [line for line in server.log.splitlines() if "request cannot be answered" in line]
        # One more burst for every window that has begun since.
        assert len(lines) < 100
        assert server.stop() == 0


# -- the commands ------------------------------------------------------------------------------------------------------


async def test_a_bind_is_one_line_with_the_pod_the_node_the_cards_and_the_time() -> None:
    async with serving(node("n1")) as client:
        with structlog.testing.capture_logs() as lines:
            await client.place(pod("p"), "n1")
            await client.place(pod("q", memory=1), "n1")
    entries = [line for line in lines if line["event"] == "bound"]
    assert [(line["pod"], line["node"], line["cards"]) for line in entries] == [
        ("default/p", "n1", ["GPU-n1-0"]),
        ("default/q", "n1", ["GPU-n1-0"]),
    ]
    assert all(line["milliseconds"] >= 0 for line in entries)


async def test_where_logs_are_json_the_welcome_is_too() -> None:
    with served("--log-format", "json") as server:
        welcome = json.loads(server.welcome)
        assert (welcome["event"], welcome["address"], welcome["nodes"]) == ("listening", server.url, 14)
        assert server.stop() == 0


def test_verify_account_and_explain_print_foreign_text_as_lines_of_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil_card = node("n1", annotations={"hami.io/device-cordon": EVIL})
    holder, broken = bound("p", "n1", "GPU-\x1b[2J\nx", 5), bound("q", "n1", "GPU-n1-0")
    broken["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": f"junk{EVIL},"}
    cluster, single = tmp_path / "cluster.json", tmp_path / "pod.json"
    cluster.write_text(listed(evil_card, holder, broken))
    single.write_text(json.dumps(holder))
    for arguments in (
        ["verify", "--cluster", str(cluster)],
        ["account", "-f", str(single)],
        ["explain", "-f", str(single), "--cluster", str(cluster)],
    ):
        assert main(arguments) in (0, 1)
        out = capsys.readouterr().out
        assert [line for line in out.split("\n") if not line.isprintable()] == []
        assert "\\x1b" in out or arguments[0] == "explain"
    single.write_text(json.dumps(broken))
    assert main(["account", "-f", str(single)]) == 2
    assert capsys.readouterr().err.removesuffix("\n").isprintable()
