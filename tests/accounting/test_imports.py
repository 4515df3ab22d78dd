"""Each module of accounting imports by itself, in little time, and brings nothing along that does I/O.

It must look at a fresh process: in this one everything is imported already.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "accounting").rglob("*.py")
)
#: What only layers above may use.
FORBIDDEN = {
    "aiohttp",
    "asyncio",
    "http",
    "json",
    "kubernetes_asyncio",
    "logging",
    "msgspec",
    "orjson",
    "prometheus_client",
    "socket",
    "ssl",
    "structlog",
    "yaml",
}
#: Seconds; generous, for a loaded machine. A module alone takes a tenth of a second, most of it for numpy.
_PATIENCE = 20


def loaded_by(statement: str) -> set[str]:
    """Return the modules in `sys.modules` of a fresh process after a statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_there_are_modules() -> None:
    assert {"accounting", "accounting.state.cache", "accounting.answers.filter", "accounting.quantity"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_alone(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert not {name.partition(".")[0] for name in loaded} & {"extender", "tests", "benchmarks"}


def test_all_modules_together_load_nothing_that_numpy_does_not_load_itself() -> None:
    everything = loaded_by("import " + ", ".join(MODULES))
    brought_along = everything - loaded_by("import numpy")
    assert {name.partition(".")[0] for name in brought_along} & FORBIDDEN == set()


def test_the_package_alone_loads_no_module_of_its_own() -> None:
    assert {name for name in loaded_by("import accounting") if name.startswith("accounting.")} == set()


def test_values_and_rules_need_no_numpy() -> None:
    plain = [
        "accounting.codec",
        "accounting.container_resources",
        "accounting.holdings",
        "accounting.lifecycle",
        "accounting.pod_record",
        "accounting.quantity",
        "accounting.register",
    ]
    assert "numpy" not in loaded_by("import " + ", ".join(plain))
