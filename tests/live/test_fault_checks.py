"""The checks of the runs under faults can fail.

It exists because a check that never fails says nothing. It must not run a trial. Invariant: each wrong answer is named.
"""

import pytest

from tests.extender.objects import Json, bound, node
from tests.live.fault_admission import QUOTA_MIB, charged, over_quota, reviewed, team_pod, team_quota
from tests.live.fault_preemption import HIGH, wrong_victims
from tests.live.harness import running


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


def test_what_a_team_holds_beyond_its_quota_is_noticed() -> None:
    waiting, ended, stranger = team_pod(1), team_pod(2), bound("v", "n1", "GPU-n1-0", 900)
    held = team_pod(3, QUOTA_MIB)
    for each in (held, ended):
        each["spec"]["nodeName"] = "n1"
    ended["status"] = {"phase": "Succeeded"}
    pods = [waiting, held, ended, stranger]
    assert charged(pods) == QUOTA_MIB
    assert over_quota(pods, waiting)
    assert not over_quota([waiting, ended, stranger], waiting)


async def test_the_webhooks_admit_what_the_quota_leaves_and_deny_more() -> None:
    async with running(node("n1"), team_quota()) as bench:
        await bench.caught_up()
        assert reviewed(bench.live, team_pod(1)) == "allowed"
        assert reviewed(bench.live, team_pod(1, QUOTA_MIB + 1)).startswith("denied: ")
