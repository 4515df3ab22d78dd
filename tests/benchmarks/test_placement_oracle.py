"""Filter and bind agree with an oracle that tries every placement, on 2,000 random nodes; and the oracle is right.

It exists because the answers do not show a placement that was missed. Invariant: the seeds are fixed; `make soak` runs
longer, with other seeds, and with CP-SAT on larger cases.
"""

from importlib.util import find_spec

import pytest

from accounting.holdings import DeviceUse
from benchmarks import placement_oracle
from benchmarks.placement_cases import LARGE, SMALL, case
from benchmarks.placement_check import Counts, Difference, check
from tests.builders import app, init, make_allocation, make_device, make_node, make_pod, make_policies, sidecar

CASES = 100


def test_filter_and_bind_agree_with_the_oracle_on_2000_nodes() -> None:
    seen = Counts()
    for seed in range(CASES):
        found = check(seed, SMALL)
        assert not isinstance(found, Difference), found
        seen = seen.plus(found)
    assert seen.nodes == 2_000
    # The cases prove something: both answers are frequent, and greedy alone would not decide many of them.
    assert 400 < seen.feasible < 1_600
    assert seen.searched > 100
    assert seen.limited == 0


def test_a_case_depends_on_its_seed_alone() -> None:
    assert case(7, LARGE) == case(7, LARGE) != case(8, LARGE)


def test_an_oracle_that_is_wrong_is_noticed() -> None:
    assert isinstance(check(0, SMALL, lambda *_: True), Difference)
    assert isinstance(check(0, SMALL, lambda *_: False), Difference)


NODE = make_node(devices=[make_device("GPU-0", memory=1000), make_device("GPU-1", index=1, memory=500, numa=1)])
HELD = (DeviceUse("GPU-0", 1, 400, 60),)


@pytest.mark.parametrize(
    "containers, policy, uses, fits",
    [
        ([sidecar(500), app(1000)], "spread", (), True),
        ([app(600), app(600)], "spread", (), False),
        ([app(600), app(600)], "spread", HELD, False),
        ([sidecar(600), init(600), app(1)], "spread", (), False),
        ([init(600), sidecar(600), app(1)], "spread", (), True),
        ([app(1, cores=100), app(1, cores=100), app(1)], "spread", (), False),
        ([app(1, cores=100), app(1)], "spread", HELD, True),
        ([app(1, cores=100, count=2)], "spread", HELD, False),
        ([app(1), app(1), app(1)], "mutex", (), False),
        ([app(1), app(1)], "mutex", (), True),
        ([app(600), app(1, cores=40), app(400, cores=70)], "spread", HELD, False),
        ([app(1, cores=40), app(1, cores=100), app(1)], "spread", HELD, False),
        ([app(1), app(1, cores=40), app(1, cores=100)], "spread", HELD, True),
        ([app(percentage=50, count=2), app(percentage=50, count=2)], "spread", (), True),
        ([app(percentage=51, count=2), app(percentage=50, count=2)], "spread", (), False),
    ],
)
def test_the_oracle(containers: list, policy: str, uses: tuple[DeviceUse, ...], *, fits: bool) -> None:
    pod = make_pod("p", containers, policies=make_policies(policy))
    assert placement_oracle.exists(NODE, uses, pod) == fits
    if find_spec("ortools") is not None:
        from benchmarks import placement_cp_sat

        assert placement_cp_sat.exists(NODE, uses, pod) == fits


def test_the_oracle_knows_a_legal_placement() -> None:
    pod = make_pod("p", [sidecar(300), app(percentage=50)])
    right = make_allocation([("GPU-1", 300, 0)], [("GPU-0", 500, 0)])
    assert placement_oracle.legal(NODE, HELD, pod, right)
    for wrong in (
        make_allocation([("GPU-0", 300, 0)], [("GPU-0", 500, 0)]),  # 400 + 300 + 500 of 1000
        make_allocation([("GPU-1", 300, 0)], [("GPU-1", 500, 0)]),  # half of that card is 250
        make_allocation([("GPU-1", 300, 0)], []),
        make_allocation([("GPU-1", 299, 0)], [("GPU-0", 500, 0)]),
        make_allocation([("GPU-9", 300, 0)], [("GPU-0", 500, 0)]),
    ):
        assert not placement_oracle.legal(NODE, HELD, pod, wrong)
