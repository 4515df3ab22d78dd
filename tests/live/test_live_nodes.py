"""The life of nodes on a live cluster: cards vanish, come back, change or move; registers break.

It exists because a stale or broken register must never become free capacity. It must not repeat the rules, which have
tests of their own. Invariant: after each story the state is the reference's, and a restart changes nothing.
"""

import json

import pytest

from accounting.status import ProblemCode
from tests.apiserver.resources import NODES
from tests.extender.objects import (
    ALLOCATION,
    CORDON,
    REGISTER,
    Json,
    asks,
    bound,
    card,
    container,
    node,
    pod,
    rows,
)
from tests.live.harness import eventually, running
from tests.live.harness_pods import GPU, held, orphan, problems, stays_so, takes

# -- nodes -------------------------------------------------------------------------------------------------------------


def register(*cards: Json) -> Json:
    return {REGISTER: json.dumps(cards)}


async def test_cards_vanish_and_come_back() -> None:
    cards = [card("GPU-a", 0), card("GPU-b", 1)]
    async with running(node("n1", cards), bound("p", "n1", "GPU-a", 600)) as bench:
        bench.kube.annotate_node("n1", register(cards[1]))
        await bench.agrees()
        assert problems(bench) == orphan("n1", "GPU-a")
        assert await takes(bench, 1000)
        two = pod("two", [container("main", asks(2, 1))])
        assert (await bench.scheduler.filter(two, "n1")).passed == []
        await stays_so(bench)
        bench.kube.annotate_node("n1", register(*cards))
        await bench.agrees()
        assert (await bench.scheduler.filter(two, "n1")).passed == ["n1"]
        assert not problems(bench)
        bench.kube.delete_pod("p")
        await stays_so(bench)


async def test_a_card_changes_its_size() -> None:
    async with running(node("n1", [card("GPU-a")]), bound("p", "n1", "GPU-a", 600)) as bench:
        bench.kube.annotate_node("n1", register(card("GPU-a", memory=500)))
        await eventually(lambda: problems(bench) != set())
        assert problems(bench) == {("node n1 device GPU-a", ProblemCode.OVERCOMMITTED)}
        assert not await takes(bench, 1)
        bench.audit.overcommitted.clear()
        await bench.agrees()
        bench.kube.annotate_node("n1", register(card("GPU-a", memory=2000)))
        await bench.agrees()
        assert await takes(bench, 1400)
        assert not await takes(bench, 1401)
        await stays_so(bench)


async def test_a_card_moves_to_another_node() -> None:
    """For a while both registers name it; what a pod holds stays on the pod's node."""
    nodes = node("n1", [card("GPU-a", 0), card("GPU-b", 1)]), node("n2", [card("GPU-c")])
    async with running(*nodes, bound("p", "n1", "GPU-a", 600)) as bench:
        bench.kube.annotate_node("n2", register(card("GPU-c"), card("GPU-a", 1)))
        await bench.agrees()
        assert problems(bench) == {("device GPU-a", ProblemCode.DUPLICATE_DEVICE)}
        bench.kube.annotate_node("n1", register(card("GPU-b", 1)))
        await bench.agrees()
        assert problems(bench) == orphan("n1", "GPU-a")
        assert await takes(bench, 1000, "n2")
        await stays_so(bench)


@pytest.mark.parametrize("text", ["", "[", "{}", "null", '[{"id": 7}]', '[{"id":"GPU-a","count":-1}]', "GPU-a,10;"])
async def test_a_broken_register_is_no_capacity_and_no_crash(text: str) -> None:
    async with running(node("n1", [card("GPU-a")]), node("n2"), bound("p", "n1", "GPU-a", 600)) as bench:
        bench.kube.annotate_node("n1", {REGISTER: text})
        await bench.agrees()
        assert not await takes(bench, 1)
        assert await takes(bench, 1, "n2")
        unreadable = {("node n1", ProblemCode.UNREADABLE_REGISTER)} if text else set()
        assert problems(bench) == orphan("n1", "GPU-a") | unreadable
        bench.kube.annotate_node("n1", register(card("GPU-a")))
        await bench.agrees()
        assert await takes(bench, 400)
        await stays_so(bench)


async def test_a_cordon_is_effective_at_once_and_changes_nothing_that_is_held() -> None:
    cards = [card("GPU-a", 0), card("GPU-b", 1)]
    async with running(node("n1", cards), bound("p", "n1", "GPU-a", 600)) as bench:
        bench.kube.annotate_node("n1", {CORDON: "GPU-a,GPU-b"})
        await bench.agrees()
        assert held(bench, "GPU-a") == (1, 600, 0)
        refused = await bench.scheduler.filter(bench.kube.create(pod("q", memory=1)))
        assert refused.unresolvable["n1"].startswith("DeviceCordoned")
        bench.kube.annotate_node("n1", {CORDON: "GPU-a"})
        await bench.agrees()
        assert await bench.scheduler.place(bench.kube.pod("q")) == "n1"
        assert bench.audit.uuids("q") == ["GPU-b"]
        await stays_so(bench)


async def test_a_cordon_between_filter_and_bind() -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(pod("p", memory=1))
        assert (await bench.scheduler.filter(made)).passed == ["n1"]
        bench.kube.annotate_node("n1", {CORDON: GPU})
        await bench.caught_up()
        assert (await bench.scheduler.bind(made, "n1")).startswith("DeviceCordoned")
        await bench.agrees()


async def test_health_comes_and_goes() -> None:
    async with running(node("n1", [card("GPU-a")])) as bench:
        bench.kube.annotate_node("n1", register(card("GPU-a", health=False)))
        await bench.agrees()
        assert not await takes(bench, 1)
        bench.kube.annotate_node("n1", register(card("GPU-a")))
        await bench.agrees()
        assert await takes(bench, 1000)


async def test_a_node_is_deleted_and_added_again() -> None:
    async with running(node("n1"), node("n2"), bound("p", "n1", GPU, 600)) as bench:
        bench.kube.delete_node("n1")
        await bench.agrees()
        assert not await takes(bench, 1)
        assert problems(bench) == orphan("n1", GPU)
        bench.kube.create(node("n1"))
        await bench.agrees()
        assert await takes(bench, 400)
        assert not await takes(bench, 401)
        assert problems(bench) == set()
        bench.kube.delete_node("n1")
        bench.kube.delete_pod("p")
        await stays_so(bench)
        assert bench.live.cluster.cache.node_names() == ["n2"]


async def test_nodes_deleted_in_a_watch_gap() -> None:
    async with running(node("n1"), node("n2"), bound("p", "n1", GPU, 600)) as bench:
        async with bench.watch_gap("nodes"):
            bench.kube.delete_node("n1")
            bench.kube.delete_node("n2")
        bench.api.compact()
        bench.api.cut(NODES)
        await stays_so(bench)


async def test_a_pod_on_a_node_that_is_not_known_yet() -> None:
    async with running(node("n1")) as bench:
        bench.kube.create(pod("p", memory=600))
        bench.kube.bind("p", "n9", {ALLOCATION: rows([("GPU-n9-0", 600, 0)])})
        await bench.agrees()
        bench.kube.create(node("n9"))
        await bench.agrees()
        assert not await takes(bench, 401, "n9")
        await stays_so(bench)
