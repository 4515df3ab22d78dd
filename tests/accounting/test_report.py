"""The reports that verify, the API and the metrics show."""

from collections import Counter

from hypothesis import given

from accounting.answers.report import problem_counts, problems
from accounting.node import Node
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.state.cache import Cache
from tests import strategies


@given(strategies.clusters(), strategies.crowds())
def test_the_counts_from_the_arrays_equal_the_listed_problems(nodes: list[Node], pods: list[Pod]) -> None:
    cache = Cache()
    for node in nodes:
        cache.add_node(node)
    for pod in pods:
        cache.add_pod(record_pod(pod))
    listed = Counter(problem.code for problem in problems(cache))
    assert {code: count for code, count in problem_counts(cache).items() if count} == dict(listed)
