"""What helm and kubectl make of charts/ and manifests/, as objects.

It exists so that the two are compared and applied in one way. It must not judge. Invariant: an object appears once.
"""

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "gpu-extender"
INSTALL: Final = ROOT / "manifests" / "install"
MODES: Final = ("second-scheduler", "sidecar", "leader-election", "embedded")
#: Value of the chart that does what a component does.
COMPONENTS: Final = {
    "api-port": ("api.enabled=true",),
    "cert-manager": ("scheduler.certManager.enabled=true",),
    "monitoring": ("prometheus.enabled=true", "prometheus.rules.enabled=true"),
}

Json = dict[str, Any]


class Name(NamedTuple):
    """Which object."""

    kind: str
    namespace: str
    name: str


Objects = dict[Name, Json]


class RenderError(Exception):
    """A program failed; the text is its message."""


@cache
def by_helm(helm: Path, *flags: str, namespace: str = "kube-system") -> Objects:
    """What the chart gives, for reading. Raises RenderError."""
    return _objects(_said([helm, "template", "gpu-extender", CHART, "--namespace", namespace, *flags]))


def by_kustomize(kubectl: Path, mode: str, components: Sequence[str | Path], folder: Path) -> Objects:
    """What the manifests of a mode with components give, each by its name or its folder. Raises RenderError."""
    asked = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [_path(folder, INSTALL / mode)],
        "components": [_path(folder, INSTALL / "components" / each) for each in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(asked))
    return _objects(_said([kubectl, "kustomize", folder]))


def values_of(mode: str, components: Sequence[str]) -> list[str]:
    """The flags of helm that mean the same."""
    return [f"--set=mode={mode}", *(f"--set={each}" for one in components for each in COMPONENTS[one])]


def _path(folder: Path, target: Path) -> str:
    return os.path.relpath(target, folder.resolve())


def _said(command: Sequence[str | Path]) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, check=False, text=True, timeout=120)
    if done.returncode:
        raise RenderError(done.stderr)
    return done.stdout


def _objects(text: str) -> Objects:
    found: Objects = {}
    for each in yaml.safe_load_all(text):
        if each:
            meta = each["metadata"]
            name = Name(each["kind"], meta.get("namespace", ""), meta["name"])
            assert name not in found, name
            found[name] = each
    return found
