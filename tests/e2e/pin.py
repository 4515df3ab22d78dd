"""Writes the go.mod that pins the control plane of another Kubernetes minor.

It exists because k8s.io/kubernetes replaces some thirty staging modules by folders that a module does not contain; each
has to be pinned to the version that was published with it. It must not build. Invariant: the same version gives the
same files.

    python -m tests.e2e.pin 1.37.2
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.binaries import PACKAGES, TOOLCHAIN


def pin(version: str) -> Path:
    """Write toolchain/<minor>/go.mod and go.sum. Raises CalledProcessError."""
    folder = TOOLCHAIN / version.rpartition(".")[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    said = _go(TOOLCHAIN, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}")
    upstream = Path(json.loads(said)["GoMod"]).read_text()
    staging = re.findall(r"^\t(\S+) => \./staging/", upstream, re.MULTILINE)
    go = re.search(r"^go (\S+)", upstream, re.MULTILINE)
    lines = [
        "module gpu-extender/tests/e2e/toolchain\n",
        f"go {go[1] if go else '1.24'}\n",
        *("tool (", *(f"\t{package}" for package in PACKAGES.values()), ")\n"),
        f"require k8s.io/kubernetes v{version}\n",
        *("replace (", *(f"\t{name} => {name} v0.{version.partition('.')[2]}" for name in staging), ")"),
    ]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    _go(folder, "mod", "tidy")
    return folder


def _go(folder: Path, *arguments: str) -> str:
    return subprocess.run(["go", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.stdout.write(f"{pin(sys.argv[1])}\n")
