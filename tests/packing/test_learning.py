"""The expected workload is learned in the background, and can be replayed."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from accounting.node import Node
from accounting.policy import make_policies
from extender.cluster.cluster import Cluster
from extender.cluster.learning import EVERY, FIRST_AFTER, Learner
from extender.config import Settings
from extender.journal.journal import FileJournal, read_journal
from extender.journal.recording import Recorder
from extender.live.replaying import Replay
from extender.verbs.verbs import Verbs
from tests.packing.builders import SOME_PODS, card_node, named, share_pod
from tests.virtual_time import eventually


def _cluster(policy: str = "fragmentation") -> Cluster:
    cluster = Cluster(Settings(policies=make_policies(policy, None)))
    for number in range(3):
        cluster.cache.add_node(card_node(f"n{number}", 4))
    return cluster


def _arrive(cluster: Cluster, count: int) -> None:
    start = cluster.arrivals.count
    for number in range(count):
        cluster.put_pod(named(SOME_PODS[number % len(SOME_PODS)], f"{start + number}"))


def test_learning_is_due_after_some_pods_and_then_again_and_again() -> None:
    cluster = _cluster()
    learner = Learner(cluster)
    _arrive(cluster, FIRST_AFTER - 1)
    assert not learner.is_due()
    _arrive(cluster, 1)
    assert learner.is_due()
    learner.learn_now()
    assert not learner.is_due()
    _arrive(cluster, FIRST_AFTER)
    assert learner.is_due()
    learner.learn_now()
    _arrive(cluster, FIRST_AFTER)
    assert not learner.is_due()
    _arrive(cluster, 2 * EVERY)
    learner.learn_now()
    _arrive(cluster, EVERY)
    assert learner.is_due()


def test_a_pod_counts_once() -> None:
    cluster = _cluster()
    cluster.put_pod(share_pod(10, name="a"))
    cluster.put_pod(share_pod(10, name="a"))
    assert cluster.arrivals.count == len(cluster.arrivals.last) == 1


def test_nobody_looks_ahead_nothing_is_learned() -> None:
    cluster = _cluster("binpack")
    learner = Learner(cluster)
    _arrive(cluster, 3 * FIRST_AFTER)
    assert not learner.is_due()
    snapshot = cluster.cache.snapshot()
    cluster.packing.values(snapshot, share_pod(10), snapshot.rows_of(["n0"]))
    assert learner.is_due()


def test_what_is_given_is_kept_until_the_cards_change() -> None:
    cluster = _cluster()
    learner = Learner(cluster, SOME_PODS)
    assert learner.is_due()
    learner.learn_now()
    workload = cluster.packing.workload
    assert workload is not None
    _arrive(cluster, 3 * FIRST_AFTER)
    assert not learner.is_due()
    cluster.cache.add_node(card_node("other", 2, model="P100"))
    assert learner.is_due()
    learner.learn_now()
    later = cluster.packing.workload
    assert later is not None
    assert later is not workload
    assert later.mix == workload.mix


async def test_the_event_loop_goes_on_while_tables_are_built() -> None:
    cluster = _cluster()
    async with Learner(cluster, SOME_PODS).running():
        turns = 0

        def is_built() -> bool:
            nonlocal turns
            turns += 1
            return cluster.packing.workload is not None

        await eventually(is_built)
        assert turns > 1


async def test_a_failed_build_does_not_end_the_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _cluster()
    learner = Learner(cluster, SOME_PODS)
    monkeypatch.setattr("extender.cluster.learning._LOOK_SECONDS", 0.001)
    failures = 0

    def fail(*_: object) -> None:
        nonlocal failures
        failures += 1
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("extender.cluster.learning.build_workload", fail)
        async with learner.running():
            await eventually(lambda: failures >= 2)
        assert cluster.packing.workload is None
    used = asyncio.Event()
    cluster.events.workload_expected.subscribe(lambda _: used.set())
    async with learner.running():
        await used.wait()
    assert cluster.packing.workload is not None


def test_a_journal_with_workloads_replays(tmp_path: Path) -> None:
    settings = Settings(policies=make_policies("fragmentation", None))
    cluster, path = Cluster(settings), tmp_path / "journal"
    journal = FileJournal(str(path))
    recorder = Recorder(journal, settings)
    recorder.subscribe(cluster.events)
    verbs = Verbs(cluster, None, recorder.on_answer)
    for number in range(3):
        node = card_node(f"n{number}", 4)
        cluster.cache.add_node(node)
        journal.write({"op": "change", "kind": "Node", "change": "put", "object": _node_text(node)})
    question = {
        "Pod": {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        },
        "NodeNames": ["n0", "n1", "n2"],
    }
    body = msgspec.json.encode(question)
    verbs.prioritize(body)
    Learner(cluster, SOME_PODS).learn_now()
    verbs.prioritize(body)
    Learner(cluster, [share_pod(100, cards=4)]).learn_now()
    verbs.prioritize(body)
    journal.close()
    summary = Replay(Settings()).run(read_journal(str(path)))
    assert summary.difference is None
    assert summary.answers == 3


def _node_text(node: Node) -> str:
    cards = [
        {"id": c.uuid, "index": c.index, "count": c.slots, "devmem": c.memory, "devcore": c.cores, "type": c.type}
        | {"numa": 0, "health": True}
        for c in node.devices
    ]
    annotations = {"hami.io/node-nvidia-register": msgspec.json.encode(cards).decode()}
    meta = {"name": node.name, "annotations": annotations}
    return msgspec.json.encode({"metadata": meta, "status": {"allocatable": {"cpu": "16"}}}).decode()
