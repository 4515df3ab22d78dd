"""Pods without cards on a live cluster: the extender keeps only their CPU, which packing needs."""

import msgspec
import pytest

from accounting.node import Node
from accounting.state.cache import Cache
from extender.cluster import Cluster, PodRegistry
from extender.config import Settings
from extender.kube.reflector import Change
from extender.live.watching import PodInformer, PodSink


def _sink() -> tuple[Cache, PodSink, PodRegistry]:
    cluster = Cluster(Settings(), deletions_are_told=True)
    return cluster.cache, PodSink(cluster, PodInformer(cluster)), cluster.registry


def _pod(*, node: str = "n1", phase: str = "Running", cpu: str = "2", cards: int = 0) -> msgspec.Raw:
    requests = {"cpu": cpu} if cpu else {}
    containers = [{"name": "c", "resources": {"requests": requests, "limits": {"nvidia.com/gpu": cards}}}]
    pod = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "1"},
        "spec": {"nodeName": node, "containers": containers} if node else {"containers": containers},
        "status": {"phase": phase},
    }
    return msgspec.Raw(msgspec.json.encode(pod))


def _residents(cluster: Cluster) -> list[str]:
    occupied = cluster.residents.occupied("n1")
    return [] if occupied is None else [each.record.uid for each in occupied.pods]


def test_its_cpu_counts_from_its_binding_to_its_end() -> None:
    cache, sink, registry = _sink()
    sink.change(Change.PUT, _pod(node="", phase="Pending"))
    assert not cache.cardless_pods
    sink.change(Change.PUT, _pod())
    assert set(cache.cardless_pods) == {"u"}
    sink.change(Change.PUT, _pod(phase="Succeeded"))
    assert not cache.cardless_pods
    assert not registry.uids


def test_a_deletion_or_a_list_without_it_ends_it() -> None:
    cache, sink, _ = _sink()
    sink.change(Change.PUT, _pod())
    sink.change(Change.DELETED, _pod())
    assert not cache.cardless_pods
    sink.change(Change.PUT, _pod())
    sink.replaced({"other"})
    assert not cache.cardless_pods


@pytest.mark.parametrize("cpu", ["2", "0", ""])
def test_a_list_without_it_ends_it_for_preemption_too(cpu: str) -> None:
    cluster = Cluster(Settings(), deletions_are_told=True)
    cluster.put_node(Node("n1"))
    sink = PodSink(cluster, PodInformer(cluster))
    assert _residents(cluster) == []
    sink.change(Change.PUT, _pod(cpu=cpu))
    assert _residents(cluster) == ["u"]
    sink.replaced({"other"})
    assert _residents(cluster) == []


@pytest.mark.parametrize("cpu", ["2", "0", ""])
def test_it_is_there_once_when_it_concerns_cards(cpu: str) -> None:
    cluster = Cluster(Settings(), deletions_are_told=True)
    cluster.put_node(Node("n1"))
    sink = PodSink(cluster, PodInformer(cluster))
    sink.change(Change.PUT, _pod(cpu=cpu))
    sink.change(Change.PUT, _pod(cpu=cpu, cards=1))
    assert _residents(cluster) == ["u"]


@pytest.mark.parametrize("cpu", ["2", "0", ""])
def test_it_arrives_once(cpu: str) -> None:
    cluster = Cluster(Settings(), deletions_are_told=True)
    sink = PodSink(cluster, PodInformer(cluster))
    for _ in range(3):
        sink.change(Change.PUT, _pod(cpu=cpu))
    assert cluster.arrivals.count == 1


def test_an_event_that_changes_nothing_leaves_the_state_as_it_is() -> None:
    cache, sink, _ = _sink()
    sink.change(Change.PUT, _pod())
    before = cache.generation
    sink.change(Change.PUT, _pod())
    assert cache.generation == before
