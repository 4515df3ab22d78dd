"""The reports that verify, the API and the metrics show."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from accounting.answers.report import problem_counts, problems
from accounting.node import Node
from accounting.pod import Pod
from accounting.status import ProblemCode
from tests import strategies
from tests.builders import app, make_allocation, make_cache, make_device, make_node, make_pod


@given(strategies.clusters(), strategies.crowds())
def test_the_counts_from_the_arrays_equal_the_listed_problems(nodes: list[Node], pods: list[Pod]) -> None:
    cache = make_cache(nodes, pods)
    listed = Counter(problem.code for problem in problems(cache))
    assert {code: count for code, count in problem_counts(cache).items() if count} == dict(listed)


@pytest.mark.parametrize("healthy, gone, found", [(False, False, 1), (True, True, 0), (False, True, 1)])
def test_a_held_card_is_unhealthy_by_its_register_and_not_by_a_silent_plugin(
    *, healthy: bool, gone: bool, found: int
) -> None:
    cards = [replace(make_device("GPU-0", healthy=healthy), gone=gone), make_device("GPU-1", index=1, healthy=False)]
    held = make_pod("p", [app(10)], node="n1", allocation=make_allocation([("GPU-0", 10, 0)]))
    cache = make_cache([make_node("n1", cards), make_node("n2", [make_device("GPU-2")])], [held])
    assert problem_counts(cache)[ProblemCode.UNHEALTHY_DEVICE] == found
    where = [(each.code, each.object) for each in problems(cache)]
    assert where == [(ProblemCode.UNHEALTHY_DEVICE, "node n1 device GPU-0")] * found
