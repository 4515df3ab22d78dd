"""Options and control planes of the end-to-end tests.

It exists so that one control plane serves many scenarios. It must not start an extender. Invariants: one control plane
runs at a time, and none after the session; a scenario that fails says in which folder its evidence is, and that folder
stays.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.binaries import Unavailable, default_minors, find
from tests.e2e.control_plane import ControlPlane
from tests.e2e.figures import write_figures

_SECONDS = 900
Planes = Callable[..., ControlPlane]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("end to end")
    group.addoption("--minor", action="append", default=[], help="Kubernetes minor, repeatable; default: all")
    group.addoption("--scenario", action="append", default=[], help="number of a scenario, or conformance; repeatable")
    group.addoption("--quick", action="store_true", help="only the quick ones of these scenarios")
    group.addoption("--repeat", type=int, default=1, help="how often each is played; default: once")
    group.addoption("--figures", type=Path, help="JSON file for what was measured")
    group.addoption("--folder", type=Path, help="where evidence is left; default: a new temporary folder")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "scenario(name): the scenario's number, or conformance")
    config.addinivalue_line("markers", "quick: part of .ci/run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "minor" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--minor") or default_minors()
        metafunc.parametrize("minor", chosen, scope="session")
        repeat = metafunc.config.getoption("--repeat")
        if repeat > 1:
            metafunc.fixturenames.append("repetition")
            metafunc.parametrize("repetition", range(1, repeat + 1))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted, quick = set(config.getoption("--scenario")), config.getoption("--quick")
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        marker = item.get_closest_marker("scenario")
        fits = not wanted or (marker is not None and str(marker.args[0]) in wanted)
        (kept if fits and (not quick or item.get_closest_marker("quick")) else dropped).append(item)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS))
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


@pytest.fixture(scope="session")
def root(pytestconfig: pytest.Config) -> Iterator[Path]:
    """The folder of all evidence; a temporary one is removed if nothing is left in it."""
    given = pytestconfig.getoption("--folder")
    folder = given or Path(tempfile.mkdtemp(prefix="gpu-extender-e2e-"))
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    if given is None and not any(folder.iterdir()):
        folder.rmdir()


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Iterator[dict[str, Any]]:
    """What was measured, by version, then by scenario. The file's figures of other scenarios stay."""
    path = pytestconfig.getoption("--figures")
    measured: dict[str, Any] = {}
    yield measured
    if path is not None:
        write_figures(path, measured)


@pytest.fixture(scope="session")
def planes(root: Path) -> Iterator[Planes]:
    """Gives the control plane of a minor with feature gates; the one before it is ended if it is another."""
    current: list[tuple[object, ControlPlane]] = []

    def end() -> None:
        for _, plane in current:
            plane.stop()
            shutil.rmtree(plane.folder, ignore_errors=True)
        current.clear()

    def give(minor: str, gates: Sequence[str] = (), apis: Sequence[str] = ()) -> ControlPlane:
        key = (minor, tuple(gates), tuple(apis))
        if not current or current[0][0] != key:
            end()
            try:
                binaries = find(minor)
            except Unavailable as why:
                pytest.fail(str(why))
            folder = root / "-".join([f"kubernetes-{binaries.version}", *gates])
            flags = [f"--runtime-config={','.join(apis)}"] if apis else []
            plane = ControlPlane(binaries, folder, api_flags=flags, feature_gates=dict.fromkeys(gates, True))
            # A plane that did not get ready must not serve later scenarios.
            plane.__enter__()
            current.append((key, plane))
        return current[0][1]

    yield give
    end()


@pytest.fixture
def plane(planes: Planes, minor: str) -> ControlPlane:
    """The control plane of a minor, without extra feature gates."""
    return planes(minor)


@pytest.fixture
def folder(root: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder for one test, which stays if it fails."""
    made = root / request.node.name.replace("/", "_").replace("[", "-").rstrip("]")
    made.mkdir(parents=True, exist_ok=True)
    yield made
    report = getattr(request.node, "report_call", None)
    if report is not None and not report.failed:
        shutil.rmtree(made, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:  # noqa: ANN401 - pytest's own generator type
    report: pytest.TestReport = yield
    setattr(item, f"report_{report.when}", report)
    folder = getattr(item, "funcargs", {}).get("folder")
    if report.failed and folder is not None:
        report.sections.append(("evidence", f"logs, objects and journals: {folder}"))
    return report
