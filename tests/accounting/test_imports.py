"""Each module of accounting can be imported alone, quickly, and loads nothing that does I/O.

It must use a fresh process: in this one everything is already imported.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "accounting").rglob("*.py")
)
#: Packages, and the modules beside them. Python imports a package before any module in it: importing a module alone
#: begins like importing its package.
ENTRIES = [module for module in MODULES if module.count(".") < 2 or (ROOT / module.replace(".", "/")).is_dir()]
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
#: Imports each module named in its arguments in a child of its own, which has loaded numpy and nothing else.
_ONE_BY_ONE = """
import json, os, sys, numpy
def loaded(module):
    mine, theirs = os.pipe()
    if (child := os.fork()) == 0:
        __import__(module)
        with os.fdopen(theirs, "w") as answer:
            print(*sys.modules, file=answer)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(mine) as answer:
        names = answer.read().split()
    return names if os.waitpid(child, 0)[1] == 0 else None
print(json.dumps({module: loaded(module) for module in sys.argv[1:]}))
"""


def fresh(code: str, *arguments: str) -> str:
    """Run a fresh process; return what it prints."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def loaded_by(statement: str) -> set[str]:
    """Return the modules in `sys.modules` of a fresh process after a statement."""
    return set(fresh(f"import sys\n{statement}\nprint(*sys.modules)").split())


@pytest.fixture(scope="module")
def loaded_alone() -> dict[str, list[str] | None]:
    """Return, for each module, what was loaded once it was imported alone; None if the import failed."""
    found: dict[str, list[str] | None] = json.loads(fresh(_ONE_BY_ONE, *ENTRIES))
    return found


def test_there_are_modules() -> None:
    assert {"accounting", "accounting.state.cache", "accounting.answers.filter", "accounting.quantity"} <= set(MODULES)


@pytest.mark.parametrize("module", ENTRIES)
def test_a_module_imports_alone(loaded_alone: dict[str, list[str] | None], module: str) -> None:
    loaded = loaded_alone[module]
    assert loaded is not None
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
