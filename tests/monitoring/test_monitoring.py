"""Alert rules, dashboard and runbook against the program that they are about.

They exist because an alert over a renamed metric never fires. They must not run Prometheus beyond promtool. Invariant:
the program exports or logs every name in them, and every message and alert is explained.
"""

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from extender.config import ServerSettings
from tests.extender.objects import bound, node, pod, quota
from tests.extender.serving import serving

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "manifests" / "monitoring"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")
_LOUD = ("warning", "error", "exception", "critical")
_METRIC = re.compile(r"gpu_extender_[a-z_]+|process_[a-z_]+")
ALERTS = [
    each for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for each in group["rules"]
]


def promtool(*arguments: str) -> None:
    done = subprocess.run([str(PROMTOOL), *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_rules_are_rules() -> None:
    promtool("check", "rules", "alerts.yaml")


@needs_promtool
def test_every_alert_fires_when_it_should_and_none_on_a_quiet_cluster() -> None:
    promtool("test", "rules", "alerts_test.yaml")
    tests = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    named = [(rule["alertname"], bool(rule["exp_alerts"])) for each in tests for rule in each["alert_rule_test"]]
    for alert in ALERTS:
        assert (alert["alert"], True) in named
        assert (alert["alert"], False) in named


def test_every_alert_has_a_section_in_the_runbook_and_the_other_way_round() -> None:
    sections = re.findall(r"^### (GpuExtender\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [alert["alert"] for alert in ALERTS]
    for alert in ALERTS:
        assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in ("warning", "critical")


async def test_rules_and_dashboard_name_metrics_that_are_exported() -> None:
    objects = [node("n1"), bound("p", "n1", "GPU-n1-0"), quota({"requests.nvidia.com/gpu": "3"})]
    async with serving(*objects, settings=ServerSettings(port=0, metrics_per_card=True)) as client:
        await client.filter(pod("q"), "n1", "n2")
        text = (await client.send("GET", "/metrics")).body.decode()
    exported = {name for line in text.splitlines() for name in _METRIC.findall(line)} | set(_live_metrics())
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > 10
    for expression in [*asked, *(alert["expr"] for alert in ALERTS)]:
        names = set(_METRIC.findall(expression))
        assert names
        assert names <= exported


def test_every_message_of_a_warning_or_worse_is_in_the_runbook_and_no_other() -> None:
    explained = re.findall(r"^\| `([^`]+)` \| .{20,} \|$", RUNBOOK, re.MULTILINE)
    assert len(explained) == len(set(explained))
    assert set(explained) == set(_messages())


def _messages() -> Iterator[str]:
    """Yield the text of every call of a logger at warning or above."""
    for path in sorted((ROOT / "extender").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LOUD:
                logged = call.func.value
                if isinstance(logged, ast.Call) and ast.unparse(logged.func) == "logger":
                    first = call.args[0]
                    assert isinstance(first, ast.Constant), f"{path}: {ast.unparse(call)}: the message must be constant"
                    yield str(first.value)


def _live_metrics() -> Iterator[str]:
    """Yield the metrics of the live parts and of certificates, whose names stand in the source."""
    for name in ("live/collector.py", "security/tls.py"):
        for call in ast.walk(ast.parse((ROOT / "extender" / name).read_text())):
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                kind, text = ast.unparse(call.func), str(call.args[0].value)
                whole = text if text.startswith("gpu_extender_") else f"gpu_extender_{text}"
                if kind == "_per_resource_counter":
                    whole = f"gpu_extender_reflector_{text}"
                if "ounter" in kind or "auge" in kind:
                    yield f"{whole}_total" if "ounter" in kind else whole
