"""The table of possible victims is the one that a new process would make.

It exists because a stale row evicts a pod that is gone, or spares one that is not. It must not know what the table is
for. Invariant: after any changes and a refresh every row is as if everything had just been listed.
"""

import asyncio
from random import Random

import pytest

from accounting.answers.preemption.table import Field
from accounting.disruption import DisruptionBudget, Requirement
from accounting.node import Node
from accounting.pod import Pod
from accounting.pod_info import PodInfo
from accounting.state import Snapshot
from extender.cluster import Cluster, Heard
from extender.config import Settings
from extender.live.evicting.table_keeper import TableKeeper
from extender.live.evicting.wanting import Wanting
from tests.builders import app, make_allocation, make_device, make_node, make_pod

NODES, CARDS = 6, 3


def table_of(keeper: TableKeeper) -> set[tuple[int, ...]]:
    """Return everything in a table except the numbers that each process gives by itself."""
    entries = keeper.table.entries
    own = [field for field in Field if field not in (Field.POD, Field.NAMESPACE)]
    return {tuple(column) for column in entries[own].T.tolist() if column[Field.ROW] >= 0}


def running(random: Random, number: int) -> Pod:
    on, card = random.randrange(NODES), random.randrange(CARDS)
    made = make_pod(
        f"p{number}",
        [app(10)],
        node=f"n{on}",
        allocation=make_allocation([(f"GPU-{on}-{card}", random.randint(1, 20), 0)]),
    )
    info = PodInfo(random.choice((0, 5)), labels=(("app", random.choice("ab")),))
    return made._replace(info=info, started=random.randint(0, 9))


def changed(cluster: Cluster, random: Random, number: int) -> None:
    """One change of those that a cluster goes through."""
    known = sorted(cluster.registry.uids)
    kind = random.choice(("new", "new", "gone", "deleting", "important", "node", "budget"))
    if kind == "new" or not known:
        cluster.registry.put(running(random, number), Heard.WATCH)
    elif kind == "node":
        on = random.randrange(NODES)
        cluster.put_node(_node(on, memory=random.choice((100, 200))))
    elif kind == "budget":
        selector = (Requirement("app", "In", (random.choice("ab"),)),)
        cluster.residents.budgets.put(DisruptionBudget("default", random.choice("xy"), selector, random.randint(0, 1)))
    else:
        pod = cluster.pod(random.choice(known))
        assert pod is not None
        if kind == "gone":
            cluster.registry.forget(pod.uid)
        elif kind == "deleting":
            cluster.registry.put(pod._replace(deleting=True), Heard.WATCH)
        else:
            cluster.registry.put(pod._replace(info=pod.info._replace(priority=random.randint(0, 9))), Heard.WATCH)


def _node(on: int, memory: int = 100) -> Node:
    return make_node(f"n{on}", [make_device(f"GPU-{on}-{card}", index=card, memory=memory) for card in range(CARDS)])


@pytest.mark.parametrize("seed", range(8))
async def test_after_any_changes_the_table_is_that_of_a_new_process(seed: int) -> None:
    random, cluster = Random(seed), Cluster(Settings(), deletions_are_told=True)
    for on in range(NODES):
        cluster.cache.add_node(_node(on))
    kept = TableKeeper(cluster)
    for number in range(300):
        changed(cluster, random, number)
        if random.random() < 0.2:
            await kept.refresh()
            new = TableKeeper(cluster)
            await new.refresh()
            assert table_of(kept) == table_of(new)
    assert len(kept.table) > 10


async def test_pods_are_alike_if_they_ask_the_same_of_the_same_nodes_at_the_same_priority() -> None:
    cluster = Cluster(Settings())
    for on in range(NODES):
        cluster.cache.add_node(_node(on))
    wants, snapshot = Wanting(3), cluster.cache.snapshot()
    now = asyncio.get_running_loop().time()

    def put(name: str, memory: int = 10, priority: int = 7, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
        _put(wants, name, memory, priority, nodes, snapshot, now)

    put("a")
    put("b", nodes=("n2", "n1"))
    for memory, priority, nodes in ((11, 7, ("n1", "n2")), (10, 8, ("n1", "n2")), (10, 7, ("n1",))):
        put("c", memory, priority, nodes)
        first = wants.get("uid-a")
        assert first is not None
        assert [each.uid for each in wants.alike(first)] == ["uid-a", "uid-b"]
        wants.drop("uid-c")
    kept = wants.get("uid-a")
    assert kept is not None
    assert kept.nodes() == ["n1", "n2"]
    # There is room for three: among the least important, the pod that was refused last is dropped.
    put("higher", priority=9)
    put("later")
    assert {uid for uid in ("uid-a", "uid-b", "uid-higher", "uid-later") if wants.get(uid)} >= {"uid-a", "uid-higher"}
    assert len(wants) == 3


def _put(
    wants: Wanting, name: str, memory: int, priority: int, nodes: tuple[str, ...], snapshot: Snapshot, now: float
) -> None:
    pod = make_pod(name, [app(memory)])._replace(info=PodInfo(priority))
    wants.put(pod, nodes, snapshot, now, now)
