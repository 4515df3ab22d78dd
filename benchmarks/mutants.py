"""Changes accounting/ in one place after another, and reports which changes no test notices.

It exists because a line that can change without a test failing is not tested. It must not change the checkout: mutmut
works on a copy. Invariants: each module is judged by the tests that are named for it here, all of them fast; a change
that survives is shown as a diff.

    python -m benchmarks.mutants [MODULE...] [-o docs/mutants.json]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

ROOT: Final = Path(__file__).resolve().parent.parent
_FITTING: Final = "tests/accounting/test_fit_against_reference.py"
#: Module -> the tests that cover it.
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "accounting/quantity.py": ("tests/accounting/test_quantity.py",),
    "accounting/codec.py": ("tests/accounting/test_codec.py", "tests/extender/test_several_vendors.py"),
    "accounting/register.py": ("tests/accounting/test_register.py", "tests/extender/test_hami_reader.py"),
    "accounting/row_order.py": ("tests/accounting/test_row_order.py", "tests/accounting/test_codec.py"),
    "accounting/plain_rows.py": ("tests/accounting/test_plain_rows.py",),
    "accounting/lifecycle.py": ("tests/accounting/test_lifecycle.py",),
    "accounting/policy.py": ("tests/accounting/test_policy.py", "tests/accounting/test_hami_cases.py"),
    "accounting/topology.py": ("tests/accounting/test_topology.py", "tests/accounting/test_together.py"),
    "accounting/holdings.py": ("tests/accounting/test_worked_values.py", "tests/accounting/test_upstream_cases.py"),
    "accounting/pod_record.py": ("tests/accounting/test_worked_values.py", "tests/accounting/test_mig.py"),
    "accounting/quota_scope.py": ("tests/accounting/test_quota_scope.py",),
    "accounting/selection.py": ("tests/accounting/test_hami_cases.py", _FITTING),
    "accounting/answers/report.py": ("tests/accounting/test_report.py", "tests/extender/test_command_verify.py"),
    "accounting/cards/greedy.py": (_FITTING, "tests/accounting/test_together.py"),
    "accounting/cards/footprint.py": (_FITTING,),
}
#: Exit codes of mutmut: a test failed; the tests ran for too long, as in an endless loop; no test ran the line.
_KILLED, _TIMED_OUT, _UNTESTED = (1, 3), (-24, 24, 36, 152, 255), (5, 33)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    known = {} if options.output is None or not options.output.exists() else orjson.loads(options.output.read_bytes())
    for module in options.modules or MODULES:
        known[module] = figures = _figures(module)
        survived = figures.pop("diffs")
        sys.stdout.write(f"{module}: {figures['killed']} of {figures['mutants']} noticed\n")
        sys.stdout.writelines(survived)
        sys.stdout.flush()
        if options.output is not None:
            text = orjson.dumps(known, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
            options.output.write_bytes(text)
    return 0


def _figures(module: str) -> dict[str, Any]:
    """Change one module in a copy of the checkout."""
    with tempfile.TemporaryDirectory(prefix="gpu-extender-mutants-") as name:
        folder = Path(name)
        for each in ("accounting", "extender", "tests", "benchmarks", "manifests", "docs"):
            shutil.copytree(ROOT / each, folder / each, ignore=shutil.ignore_patterns("__pycache__"))
        for each in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / each, folder)
        with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(_configuration(module))
        environment = {**os.environ, "HYPOTHESIS_PROFILE": "mutants"}
        command = [sys.executable, "-m", "mutmut"]
        done = _run([*command, "run", "--max-children", "1"], folder, environment)
        meta = folder / "mutants" / f"{module}.meta"
        if done.returncode or not meta.exists():
            raise SystemExit(done.stdout[-4000:] + done.stderr[-4000:])
        codes = orjson.loads(meta.read_bytes())["exit_code_by_key"]
        counts = Counter(codes.values())
        left = [key for key, code in codes.items() if code not in (*_KILLED, *_TIMED_OUT)]
        diffs = [_run([*command, "show", key], folder, environment).stdout for key in left]
    return {
        "mutants": len(codes),
        "killed": len(codes) - len(left),
        "of_them_timed_out": sum(counts[code] for code in _TIMED_OUT),
        "without_a_test": sum(counts[code] for code in _UNTESTED),
        "tests": list(MODULES[module]),
        "left": left,
        "diffs": diffs,
    }


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _configuration(module: str) -> str:
    tests = ", ".join(f'"{path}"' for path in MODULES[module])
    return f"""
[tool.mutmut]
source_paths = ["accounting"]
only_mutate = ["{module}"]
also_copy = ["extender", "benchmarks", "manifests", "docs", "README.md", "LICENSE"]
pytest_add_cli_args = ["-p", "no:xdist", "-p", "no:cacheprovider", "--timeout=0", "-q"]
pytest_add_cli_args_test_selection = [{tests}]
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as accounting/codec.py; default: all")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
