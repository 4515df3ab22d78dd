"""The scenarios that are data, each on every minor and in every lock mode that it names."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Planes
from tests.e2e.language import Scenario, read_scenario, scenario_files
from tests.e2e.story import VERBS, play


def _cases() -> list[Any]:
    cases = []
    for path in scenario_files():
        scenario = read_scenario(path, VERBS)
        marks = [pytest.mark.scenario(scenario.number), *([pytest.mark.quick] if scenario.quick else [])]
        cases += [pytest.param(scenario, lock, id=f"{scenario.name}-{lock}", marks=marks) for lock in scenario.lock]
    return cases


@pytest.mark.parametrize("scenario, lock", _cases())
async def test_scenario(
    scenario: Scenario, lock: str, minor: str, planes: Planes, folder: Path, figures: dict[str, Any]
) -> None:
    if not _number(scenario.since or minor) <= _number(minor) <= _number(scenario.until or minor):
        pytest.skip(f"Kubernetes {minor} has nothing of the kind: {scenario.title}")
    plane = planes(minor, scenario.gates, scenario.apis)
    figures.setdefault(plane.binaries.version, {})[f"{scenario.name}, {lock}"] = await play(
        scenario, plane, folder, lock=lock
    )


def _number(minor: str) -> list[int]:
    return [int(part) for part in minor.split(".")]
