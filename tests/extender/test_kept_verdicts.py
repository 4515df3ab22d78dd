"""Pods that ask for different things get different answers, however often similar pods were asked about before.

They exist because a memory with too small a key gives the answer to another question. They must not look into memories.
Invariant: every answer is that of a new process.
"""

import json
from collections.abc import Sequence

import pytest

from extender.cluster import Cluster
from extender.verbs import Verbs
from tests.extender.objects import Json, container, pod
from tests.extender.test_several_vendors import asks, cluster_of, mixed

NODES = tuple(f"n{number:03}" for number in range(256))


def passing(verbs: Verbs, asking: Json) -> int:
    """Return how many nodes pass."""
    return len(json.loads(verbs.filter(json.dumps({"Pod": asking, "NodeNames": NODES}).encode()))["NodeNames"])


def asking_both(name: str, dcu_memory: int) -> Json:
    """A pod that asks for an NVIDIA and a Hygon card in one container."""
    return pod(name, [container("main", asks(gpu=1, gpumem=100, dcunum=1, dcumem=dcu_memory))])


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return cluster_of(*(mixed(name) for name in NODES))


@pytest.mark.parametrize("before, then", [((100, 100, 100), 999_999), ((999_999,) * 3, 100)])
def test_what_a_pod_asks_of_another_vendor_is_part_of_the_question(
    cluster: Cluster, before: Sequence[int], then: int
) -> None:
    verbs = Verbs(cluster)
    for number, memory in enumerate(before):
        assert passing(verbs, asking_both(f"before-{number}", memory)) == (256 if memory == 100 else 0)
    assert passing(verbs, asking_both("then", then)) == (256 if then == 100 else 0)
