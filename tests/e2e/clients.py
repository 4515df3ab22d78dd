"""Finds helm and kubectl, or builds them.

It exists because what they make of charts/ and manifests/ is what users get, and no distribution has both at a pinned
version. It must not run them against a cluster. Invariant: what the cache holds under a name was built from the module
that client_toolchain/<name>/go.mod pins.

    python -m tests.e2e.clients     find what renders, build what is missing, and say where they are
"""

import argparse
import hashlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.e2e.binaries import NoGo, Unavailable, build_program, cache

_MODULES: Final = Path(__file__).with_name("client_toolchain")
#: Name and main package.
PACKAGES: Final = {"kubectl": "k8s.io/kubernetes/cmd/kubectl", "helm": "helm.sh/helm/v4/cmd/helm"}
_LDFLAGS: Final = ("-s", "-w")


def cached(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The program, if it has been built."""
    target = _folder(name, environment) / name
    return target if target.is_file() else None


def renderer(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The program that renders: the one that has been built, else a kubectl of this machine, which renders alike."""
    on_path = shutil.which(name, path=environment.get("PATH")) if name == "kubectl" else None
    return cached(name, environment) or (Path(on_path) if on_path else None)


def find_client(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The program, built if need be. Raises Unavailable."""
    return build_program(name, PACKAGES[name], _MODULES / name, _folder(name, environment), _LDFLAGS)


def _folder(name: str, environment: Mapping[str, str]) -> Path:
    parts = [(_MODULES / name / file).read_bytes() for file in ("go.mod", "go.sum")]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
    return cache(environment) / f"{name}-{digest}"


def main(argv: Sequence[str] | None = None) -> int:
    """Find or build what renders; exit status 1 if one cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.clients", description="Find or build helm and kubectl.")
    parser.add_argument("--where-possible", action="store_true", help="without Go, say so and be content")
    arguments = parser.parse_args(argv)
    try:
        for name in PACKAGES:
            sys.stdout.write(f"{renderer(name) or find_client(name)}\n")
    except Unavailable as why:
        sys.stderr.write(f"error: {why}\n")
        return 0 if arguments.where_possible and isinstance(why, NoGo) else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
