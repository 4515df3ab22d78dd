"""Nothing is left in a live extender of a pod that is gone, or was only asked about and dropped from memory.

It exists because no count shows an unknown leak. It must not know which containers there are: `traces` visits all of
them. Invariant: after the last event of a pod its UID is nowhere.
"""

import json

import pytest

from accounting.answers import Claims
from extender.cluster import Cluster
from extender.config import Settings
from extender.kube.events import EventRecorder
from extender.live.binding import PodReader
from extender.live.evicting import Evictor, EvictSettings
from extender.live.hooks import LiveHooks, Refused
from extender.live.leading import SoleLeader
from extender.live.refusals import RefusalReporter
from extender.live.waking import Waker
from extender.live.watching import PodInformer
from extender.verbs import Verbs
from tests.builders import make_node
from tests.extender.objects import Json, node, pod
from tests.extender.serving import asked
from tests.extender.traces import paths_to
from tests.live.harness import Bench, eventually, running
from tests.live.kube_harness import client_of

QUESTIONS, REMEMBERED = 500, 100


async def _nothing(_others_unknown: bool) -> None:
    """Prepare nothing: the leader needs no preparation here."""


async def test_pods_that_were_only_asked_about_leave_no_more_than_is_remembered() -> None:
    cluster = Cluster(Settings(), REMEMBERED, claims=Claims(), deletions_are_told=True)
    cluster.cache.add_node(make_node("n1"))
    leadership = SoleLeader(_nothing)
    await leadership.run()
    async with client_of("http://127.0.0.1:1") as client:
        waker = Waker(cluster, client, leadership.is_leader)
        cluster.events.over.subscribe(lambda event: waker.forget(event.uid))
        informer = PodInformer(cluster)
        events, reader = EventRecorder(client, "test"), PodReader(client, cluster, informer)
        evicts = EvictSettings(evicts=True)
        evictor = Evictor(cluster, client, leadership, reader, events, leadership.is_leader, evicts)
        cluster.events.over.subscribe(lambda event: evictor.forget(event.uid))
        refused = Refused(waker, evictor, RefusalReporter(events))
        hooks = LiveHooks(cluster, informer, refused, leadership, lambda: True, lambda: 0.0)
        verbs = Verbs(cluster, hooks)
        for number in range(QUESTIONS):
            # Every second pod fits nowhere, so that some have claims and others wait to be woken.
            question = pod(f"p{number}", memory=100 if number % 2 else 5000)
            question["metadata"]["resourceVersion"] = "7"
            body = json.dumps(asked(question, "n1")).encode()
            verbs.filter(body)
            verbs.prioritize(body)
        registry = cluster.registry
        assert len(registry) == REMEMBERED
        assert sum(facts.resource_version == "7" for _, facts in registry.unbound()) == REMEMBERED
        assert registry.claims is not None
        assert len(registry.claims) == REMEMBERED / 2
        assert len(waker._refused) == len(evictor._wants) == REMEMBERED / 2
        for number in range(0, QUESTIONS - REMEMBERED, 50):
            assert paths_to(f"uid-p{number}", registry) == paths_to(f"uid-p{number}", waker) == []
            assert paths_to(f"uid-p{number}", evictor) == []


def _told(made: Json) -> str:
    return str(made["metadata"]["uid"])


async def _bound(bench: Bench) -> Json:
    made = bench.kube.create(pod("p", memory=700))
    assert await bench.scheduler.place(made) == "n1"
    await bench.caught_up()
    return made


async def _claimed(bench: Bench) -> Json:
    made = bench.kube.create(pod("p", memory=700))
    assert await bench.scheduler.choose(made) == "n1"
    return made


async def _refused(bench: Bench) -> Json:
    made = bench.kube.create(pod("p", memory=5000))
    assert (await bench.scheduler.filter(made)).passed == []
    await bench.caught_up()
    return made


@pytest.mark.parametrize("life", [_bound, _claimed, _refused])
async def test_of_a_pod_that_is_deleted_nothing_is_left(life: object) -> None:
    assert callable(life)
    async with running(node("n1")) as bench:
        uid = _told(await life(bench))
        live = bench.live
        parts = (
            live.cluster.registry,
            live.cluster.cache,
            live.waker,
            live.binder,
            live.overcommit,
            live.refusals,
            live.locks,
        )
        assert any(paths_to(uid, part) for part in parts)
        bench.kube.delete_pod("p")
        await eventually(lambda: uid not in live.cluster.registry)
        assert live.claims is not None
        # The last computed cards are bounded in number, and the next ones replace them.
        live.claims.placed.clear()
        # So are the sent events, which name their pods.
        live.events._series.clear()
        assert {path for part in parts for path in paths_to(uid, part)} == set()
