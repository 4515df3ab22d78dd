"""What users reported about cards, nodes, models, exclusivity, NUMA and units, one test per report.

It exists so that what went wrong for users elsewhere does not go wrong here. It must not explain the rules;
docs/hami.md has them. Invariant: the numbers are the reporters'.
"""

from dataclasses import replace
from typing import Any

import pytest

from accounting.cards.score import node_loads, score_nodes
from accounting.node import Node
from accounting.policy import NodePolicy
from accounting.register import read_register
from accounting.selection import Selection, parse_types
from accounting.status import Code
from tests.accounting.case_builders import Cluster, asking, card, chosen, memory, node, pod, request_of
from tests.builders import app, make_device, make_node, make_pod


def test_hami_1456_a_plugin_that_reports_no_cards_any_more_takes_no_pods_and_keeps_its_usage() -> None:
    cluster = Cluster(node("n", card("A")))
    cluster.bind(pod(memory("app", 100)), "n")
    assert read_register("n", []).devices == ()
    cluster.cache.update_node(Node("n"))
    assert cluster.refusal(pod(memory("app", 100), name="next"), "n") is Code.NO_DEVICES
    assert cluster.cache.orphans() == 1
    assert cluster.cache.used("team").memory == 100


def test_hami_1336_an_unhealthy_card_takes_nothing_until_it_is_healthy_again() -> None:
    healthy, sick = [card("GPU-1"), card("GPU-2", index=1)], [card("GPU-1", healthy=False), card("GPU-2", index=1)]
    cluster = Cluster(node("n", *healthy))
    on_first = pod(memory("app", 100), annotations={"nvidia.com/use-gpuuuid": "GPU-1"})
    cluster.bind(on_first, "n")
    both = pod(memory("app", 100, count=2), name="both")
    cluster.cache.update_node(node("n", *sick))
    assert cluster.refusal(both, "n") is Code.DEVICE_UNHEALTHY
    assert chosen(cluster.place(pod(memory("app", 100), name="one"), "n")) == [["GPU-2"]]
    assert cluster.held("GPU-1") == (1, 100, 0)
    cluster.cache.update_node(node("n", *healthy))
    assert cluster.refusal(both, "n") is None


@pytest.mark.parametrize(
    "wanted, model, taken",
    [
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A10", "NVIDIA A10", True),
        ("H20", "NVIDIA H200", False),
        ("H20", "NVIDIA H20", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
    ],
)
def test_hami_295_a_model_is_matched_by_whole_words(wanted: str, model: str, *, taken: bool) -> None:
    cluster = Cluster(node("n", card("A", type=model)))
    asked = pod(memory("app", 10), annotations={"nvidia.com/use-gputype": wanted})
    assert cluster.refusal(asked, "n") is (None if taken else Code.TYPE_MISMATCH)
    avoided = make_pod("p", [app(10)], selection=Selection(nouse_types=parse_types(wanted)))
    assert cluster.refusal(avoided, "n") is (Code.TYPE_MISMATCH if taken else None)


def test_hami_13_cores_100_mean_the_card_alone_whoever_comes_first() -> None:
    whole, share = pod(memory("app", 1000, cores=100), name="p1"), pod(memory("app", 1000), name="p2")
    cluster = Cluster(node("n", card("A")))
    cluster.bind(whole, "n")
    assert cluster.refusal(share, "n") is Code.EXCLUSIVE_CONFLICT
    cluster = Cluster(node("n", card("A")))
    cluster.bind(share, "n")
    assert cluster.refusal(whole, "n") is Code.EXCLUSIVE_CONFLICT


def test_hami_2156_a_percentage_of_0_is_not_asked_and_means_the_whole_card() -> None:
    cluster = Cluster(node("n", card("A", 32_768)))
    bound = cluster.bind(pod(asking("app", {"gpu": 1, "gpumem-percentage": 0})), "n")
    assert bound.allocation is not None
    assert cluster.held("A") == (1, 32_768, 0)
    assert cluster.refusal(pod(memory("app", 30_000), name="next"), "n") is Code.INSUFFICIENT_MEMORY


@pytest.mark.parametrize("percentage", [101, 2**32 + 50, -1, "1500m"])
def test_hami_1781_a_percentage_is_from_0_to_100_and_never_wraps(percentage: object) -> None:
    request, invalid = request_of({"gpu": 1, "gpumem-percentage": percentage})
    assert request is None
    assert len(invalid) == 1


def test_hami_1997_a_count_alone_means_whole_cards() -> None:
    request, _ = request_of({"gpu": 2})
    assert request is not None
    assert (request.count, request.memory_percentage, request.whole) == (2, 100, True)


@pytest.mark.parametrize(
    "amount, hint", [("16Gi", "unit is MiB, write 16384"), (2**31, ""), ("9223372036854775808", "")]
)
def test_hami_2284_memory_in_bytes_is_refused_and_says_the_unit(amount: object, hint: str) -> None:
    request, invalid = request_of({"gpu": 1, "gpumem": amount})
    assert request is None
    assert hint in invalid[0].why


def test_volcano_5621_a_count_times_a_size_never_wraps() -> None:
    request, _ = request_of({"gpu": 2**31 - 1, "gpumem": 2**31 - 1})
    assert request is not None
    cluster = Cluster(node("n", card("A")))
    assert (
        cluster.refusal(pod(asking("app", {"gpu": 2**31 - 1, "gpumem": 2**31 - 1})), "n") is Code.INSUFFICIENT_DEVICES
    )


@pytest.mark.parametrize("nothing", [{"slots": 0}, {"memory": 0}, {"cores": 0}, {"slots": 0, "memory": 0, "cores": 0}])
def test_hami_1780_a_card_without_capacity_has_load_0_and_stops_nobody(nothing: dict[str, Any]) -> None:
    empty = make_node("empty", [make_device("A", **nothing)])
    cluster = Cluster(empty, make_node("good", [make_device("B")]))
    asked = make_pod("p", [app(10)])
    snapshot = cluster.cache.snapshot()
    assert cluster.refusal(asked, "good") is None
    assert node_loads(snapshot).tolist()[:2] == [0, 0]
    assert len(score_nodes(snapshot, snapshot.rows_of(["empty", "good"]), NodePolicy.SPREAD)) == 2


def test_koordinator_2097_memory_is_per_card_and_not_for_all_of_them_together() -> None:
    cluster = Cluster(node("n", *[card(f"GPU-{i}", 80 * 1024, index=i) for i in range(8)]))
    asked = pod(memory("app", 40 * 1024, count=4))
    placement = cluster.place(asked, "n")
    assert placement is not None
    assert [row.memory for row in placement.allocation[0]] == [40 * 1024] * 4


@pytest.mark.parametrize("policy", ["binpack", "spread", "numa", "mutex", "topology-aware", "binpack,numa"])
@pytest.mark.parametrize("cards", [1, 2, 5])
def test_koordinator_2228_a_best_card_is_found_among_equals_and_alone(policy: str, cards: int) -> None:
    cluster = Cluster(node("n", *[card(f"GPU-{i}", index=i) for i in range(cards)]))
    asked = pod(memory("app", 10), annotations={"hami.io/gpu-scheduler-policy": policy})
    assert chosen(cluster.place(asked, "n")) == [[f"GPU-{cards - 1}"]]


def test_kai_1598_a_node_with_the_single_numa_policy_needs_one_socket_with_enough_free_cards() -> None:
    sockets = [card(f"GPU-{i}", index=i, numa=i // 4) for i in range(8)]
    free, strict = node("free", *sockets), replace(node("strict", *sockets), single_numa=True)
    cluster = Cluster(free, strict)
    for name in ("free", "strict"):
        for number, uuid in enumerate(("GPU-0", "GPU-7")):
            notes = {"nvidia.com/use-gpuuuid": uuid}
            cluster.bind(pod(memory("app", 10, cores=100), name=f"on-{name}-{number}", annotations=notes), name)
    asked = pod(memory("app", 10, count=4), name="four")
    assert cluster.refusal(asked, "free") is None
    assert cluster.refusal(asked, "strict") is Code.NUMA_MISMATCH
    assert cluster.refusal(pod(memory("app", 10, count=3), name="three"), "strict") is None
