"""Builds or finds the control planes, then plays the scenarios.

It exists so that the build shows its progress before the first scenario begins. It must not judge anything. Invariant:
exit status 0 means that everything requested was played and held, or, with --where-possible, that there is no Go.

    python -m tests.e2e [--minor 1.37] [--scenario 3] [--scenario conformance] [--quick] [-o docs/e2e.json]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.binaries import NoGo, Unavailable, default_minors, find, minors

_HERE = Path(__file__).parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit status."""
    arguments = _parser().parse_args(argv)
    some = minors() if arguments.every_minor else default_minors()[: 1 if arguments.newest else None]
    chosen = arguments.minor or some
    playable = []
    for minor in chosen:
        try:
            playable.append(find(minor).minor)
        except NoGo as why:
            if arguments.where_possible:
                sys.stdout.write(f"not played: {why}\n")
                return 0
            sys.stderr.write(f"error: {why}\n")
            return 1
        except Unavailable as why:
            # What is available is still played, and the exit status says that something is missing.
            sys.stderr.write(f"error: {why}\n")
    status = pytest.main(_pytest_arguments(arguments, playable)) if playable else 1
    return int(status) if len(playable) == len(chosen) else 1


def _pytest_arguments(arguments: argparse.Namespace, minors: Sequence[str]) -> list[str]:
    options = [f"--minor={minor}" for minor in minors] + [f"--scenario={one}" for one in arguments.scenario]
    options += ["--quick"] if arguments.quick else []
    options += [f"--repeat={arguments.repeat}"]
    options += [f"--figures={arguments.output.resolve()}"] if arguments.output else []
    options += [f"--folder={arguments.folder.resolve()}"] if arguments.folder else []
    options += ["-k", arguments.only] if arguments.only else []
    return [str(_HERE), "-p", "no:xdist", "-v", "--durations=5", *options]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description="Play scenarios on a real control plane.")
    parser.add_argument(
        "--minor", action="append", default=[], help="such as 1.37, repeatable; default: newest, oldest"
    )
    parser.add_argument("--every-minor", action="store_true", help="every minor that is pinned")
    parser.add_argument("--newest", action="store_true", help="only the newest minor")
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        metavar="N",
        help="1 to 10, or a name, repeatable",
    )
    parser.add_argument("--quick", action="store_true", help="of these only the ones that take seconds")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="how often each is played; default: once")
    parser.add_argument("--only", metavar="TEXT", help="of these only the ones whose name contains it")
    parser.add_argument("--where-possible", action="store_true", help="without Go, say so and be content")
    parser.add_argument("--folder", type=Path, help="where evidence is left; default: a new temporary folder")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write what was measured as JSON")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
