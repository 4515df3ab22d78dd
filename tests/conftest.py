"""Settings of all tests: how many examples hypothesis tries, what no test has to load, failures printed at once.

HYPOTHESIS_PROFILE: dev (the default), ci (always the same examples), mutants (the same, and few) or soak. It exists
because a checkout, a pipeline and a long search need different depths of one test. It must not know any test.
Invariant: no profile has a deadline, since a loaded machine is no bug.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from itertools import islice

import pytest
import structlog
from hypothesis import HealthCheck, settings

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("mutants", deadline=None, max_examples=40, derandomize=True, database=None)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "10000")),
    suppress_health_check=_SLOW_IS_FINE,
    print_blob=True,
)
# Every client makes a TLS context, and reading the machine's authorities into it takes 50 ms. Tests trust none of them.
os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(autouse=True)
def the_process_stays_as_it_was() -> Iterator[None]:
    """Undo what a command does to its process: the log format, and the handler of uncaught exceptions."""
    root = logging.getLogger()
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    formats = structlog.get_config()
    yield
    for each in list(root.handlers):
        if type(each).__module__.startswith("extender"):
            root.removeHandler(each)
            logging.captureWarnings(capture=False)
    sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
    structlog.configure(**formats)


class _FailuresAsTheyCome:
    """Names each failed test at once, so that a run that is cut off before its summary still says what failed."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or reporter is None or self._config.option.verbose > 0:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        why = str(getattr(crash, "message", report.longrepr)).strip().partition("\n")[0]
        reporter.write_line(f"\n{report.when} failed: {report.nodeid}: {why[:300]}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are processors: many tests wait for processes that they started."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the slow tests: one that begins last keeps a worker busy while all others have nothing left.

    At the start xdist cuts the list into as many parts as there are workers. Each part begins with its share of them.
    """
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    slow = [each for each in items if each.get_closest_marker("slow")]
    others = iter([each for each in items if not each.get_closest_marker("slow")])
    total = len(items)
    items.clear()
    for worker in range(workers):
        size = (total - len(items)) // (workers - worker)
        share = slow[worker::workers]
        items += [*share, *islice(others, max(0, size - len(share)))]
    items += others


def pytest_configure(config: pytest.Config) -> None:
    """Report failures where they are printed: not in a worker of xdist."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAsTheyCome(config), "failures-as-they-come")
