"""The checks of the runs under faults can fail.

It exists because a check that never fails says nothing. It must not run a trial. Invariant: each wrong answer is named.
"""

import pytest

from tests.extender.objects import Json, bound
from tests.live.fault_preemption import HIGH, wrong_victims


def _victim(node: str, priority: int) -> Json:
    made = bound("v", node, "GPU-n1-0", 900)
    made["spec"]["priority"] = priority
    return made


@pytest.mark.parametrize(
    "victims, on, priority, wrong",
    [
        ({"n1": ["uid-v"]}, "n1", 0, []),
        ({"n1": ["uid-v"]}, "n1", HIGH, [f"n1: v has priority {HIGH}"]),
        ({"n1": ["uid-v"]}, "n2", 0, ["n1: v is on n2"]),
        ({"n1": []}, "n1", 0, ["n1: nobody"]),
    ],
)
def test_victims_that_kube_scheduler_must_not_delete_are_noticed(
    victims: dict[str, list[str]], on: str, priority: int, wrong: list[str]
) -> None:
    assert wrong_victims(victims, [_victim(on, priority)]) == wrong
